"""The face of `mirrorlake.records`: what other rooms use of it; its modules are its own."""

from mirrorlake.records.browse import read_page as read_page
from mirrorlake.records.conflicts import key_conflicts as key_conflicts
from mirrorlake.records.landed_log import LandedLog as LandedLog
from mirrorlake.records.log import ClusterLog as ClusterLog
from mirrorlake.records.match import Match as Match
from mirrorlake.records.page import Page as Page
from mirrorlake.records.page import SideBySide as SideBySide
from mirrorlake.records.passport import Registry as Registry
from mirrorlake.records.record import BrowsedRecord as BrowsedRecord
from mirrorlake.records.record import Passport as Passport
from mirrorlake.records.seek import Seek as Seek
from mirrorlake.records.side_by_side import Anchor as Anchor
from mirrorlake.records.side_by_side import read_side_by_side as read_side_by_side
from mirrorlake.records.sql import json_view as json_view
from mirrorlake.records.sql import run_sql as run_sql
from mirrorlake.records.tail import Stop as Stop
from mirrorlake.records.tail import tail_cluster as tail_cluster
from mirrorlake.records.tail import tail_relay as tail_relay
