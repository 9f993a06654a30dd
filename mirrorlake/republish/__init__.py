"""Relay to target: fencing, lanes, the follower of the relay's log, the copies of the ledger, quarantine."""

from mirrorlake.republish.fencing import read_lanes, read_last_records, read_sent_positions
from mirrorlake.republish.ledger_tables import LedgerCopy, fate_rows
from mirrorlake.republish.lost_topics import (
    find_lost_topics,
    inspect_remote_topics,
    list_renamed_topics,
    read_owner,
    resolve_lost_topic,
)
from mirrorlake.republish.make import make_republisher
from mirrorlake.republish.prepare import fingerprint_selection, republish_settings, sending_settings
from mirrorlake.republish.quarantine import Quarantine, find_waiting
from mirrorlake.republish.republisher import Republisher
from mirrorlake.republish.settings import FlowListener, RelaySlice
from mirrorlake.republish.tenure import Tenure
from mirrorlake.republish.unsent import UnsentPositions, find_unsent
