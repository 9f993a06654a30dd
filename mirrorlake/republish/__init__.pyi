"""The face of `mirrorlake.republish`: what other rooms use of it; its modules are its own."""

from mirrorlake.republish.fencing import merged_positions as merged_positions
from mirrorlake.republish.fencing import read_lanes as read_lanes
from mirrorlake.republish.files import list_files as list_files
from mirrorlake.republish.ledger_tables import LedgerCopy as LedgerCopy
from mirrorlake.republish.ledger_tables import map_rows as map_rows
from mirrorlake.republish.ledger_tables import withheld_rows as withheld_rows
from mirrorlake.republish.lost_topics import find_lost_topics as find_lost_topics
from mirrorlake.republish.lost_topics import inspect_remote_topics as inspect_remote_topics
from mirrorlake.republish.lost_topics import read_owner as read_owner
from mirrorlake.republish.lost_topics import resolve_lost_topic as resolve_lost_topic
from mirrorlake.republish.make import make_republisher as make_republisher
from mirrorlake.republish.make import open_ordered_sender as open_ordered_sender
from mirrorlake.republish.make import open_quarantine as open_quarantine
from mirrorlake.republish.ordered_sender import OrderedSender as OrderedSender
from mirrorlake.republish.prepare import fingerprint_selection as fingerprint_selection
from mirrorlake.republish.prepare import republish_settings as republish_settings
from mirrorlake.republish.prepare import sending_settings as sending_settings
from mirrorlake.republish.quarantine import Quarantine as Quarantine
from mirrorlake.republish.republisher import Republisher as Republisher
from mirrorlake.republish.settings import FlowListener as FlowListener
from mirrorlake.republish.settings import RelaySlice as RelaySlice
from mirrorlake.republish.settings import RepublishSettings as RepublishSettings
from mirrorlake.republish.tenure import Tenure as Tenure
