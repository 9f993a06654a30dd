"""The face of `mirrorlake.landing`: what other rooms use of it; its modules are its own."""

from mirrorlake.landing.mending import Mended as Mended
from mirrorlake.landing.mending import Mending as Mending
from mirrorlake.landing.prepare import land as land
from mirrorlake.landing.prepare import sign_interval_s as sign_interval_s
from mirrorlake.landing.query import GRACE_S as GRACE_S
from mirrorlake.landing.query import await_query as await_query
from mirrorlake.landing.query import is_location_in_use as is_location_in_use
from mirrorlake.landing.query_driver import read_between as read_between
from mirrorlake.landing.retry import backoff_s as backoff_s
from mirrorlake.landing.settings import LandListener as LandListener
from mirrorlake.landing.start import refuse_other_cluster as refuse_other_cluster
