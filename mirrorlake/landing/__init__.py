"""Kafka to relay: one streaming query a source cluster, and an account of every offset."""

from mirrorlake.landing.mending import Mended, Mending
from mirrorlake.landing.prepare import land, sign_interval_s
from mirrorlake.landing.query import GRACE_S, await_query, is_location_in_use
from mirrorlake.landing.query_driver import read_between
from mirrorlake.landing.retry import backoff_s
from mirrorlake.landing.settings import LandListener
from mirrorlake.landing.start import refuse_other_cluster
