"""Source cluster to relay: one lander a source, by live tasks or by a streaming query, with an account of every offset."""

from mirrorlake.landing.mending import Mended, Mending
from mirrorlake.landing.prepare import land, sign_interval_s
from mirrorlake.landing.query import await_query, is_location_in_use
from mirrorlake.landing.retry import backoff_s
from mirrorlake.landing.settings import LandListener
from mirrorlake.landing.start import refuse_other_cluster
