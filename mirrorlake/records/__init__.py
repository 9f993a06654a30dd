"""Browse records, follow a record from cluster to cluster, query records with SQL."""

from mirrorlake.records.browse import read_page
from mirrorlake.records.landed_log import LandedLog
from mirrorlake.records.log import ClusterLog
from mirrorlake.records.match import Match
from mirrorlake.records.page import Page
from mirrorlake.records.passport import Registry
from mirrorlake.records.record import BrowsedRecord, Passport
from mirrorlake.records.seek import Seek
from mirrorlake.records.sql import run_query, run_sql
from mirrorlake.records.tail import Stop, tail_cluster, tail_relay
