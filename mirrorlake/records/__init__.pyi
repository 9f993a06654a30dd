"""The face of `mirrorlake.records`: what other rooms use of it; its modules are its own."""

from mirrorlake.records.browse import Seek as Seek
from mirrorlake.records.browse import browse_cluster as browse_cluster
from mirrorlake.records.browse import browse_relay as browse_relay
from mirrorlake.records.conflicts import key_conflicts as key_conflicts
from mirrorlake.records.passport import Registry as Registry
from mirrorlake.records.record import BrowsedRecord as BrowsedRecord
from mirrorlake.records.record import Page as Page
from mirrorlake.records.record import Passport as Passport
from mirrorlake.records.record import SideBySide as SideBySide
from mirrorlake.records.side_by_side import Anchor as Anchor
from mirrorlake.records.side_by_side import read_side_by_side as read_side_by_side
from mirrorlake.records.sql import json_view as json_view
from mirrorlake.records.sql import run_sql as run_sql
