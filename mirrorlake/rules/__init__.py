"""Apply the rules of a flow to Arrow batches of records, without Kafka and without a Spark session."""

from mirrorlake.config.predicates import FALSE, TRUE
from mirrorlake.rules.conditions import answers
from mirrorlake.rules.flow_view_build import make_flow_view, view_of_flow
from mirrorlake.rules.headers import FRAME
from mirrorlake.rules.hop_header import RULE
from mirrorlake.rules.murmur2 import murmur2_of, partitions_for
from mirrorlake.rules.partitioner import Placer
from mirrorlake.rules.replayed import TIMES, BetweenTimes, HopAdded, Restamped
from mirrorlake.rules.view import View, Viewed
