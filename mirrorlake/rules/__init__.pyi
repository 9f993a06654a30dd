"""The face of `mirrorlake.rules`: what other rooms use of it; its modules are its own."""

from mirrorlake.rules.conditions import FALSE as FALSE
from mirrorlake.rules.conditions import TRUE as TRUE
from mirrorlake.rules.conditions import answers as answers
from mirrorlake.rules.flow_view_build import make_flow_view as make_flow_view
from mirrorlake.rules.flow_view_build import view_of_flow as view_of_flow
from mirrorlake.rules.headers import FRAME as FRAME
from mirrorlake.rules.hop_header import RULE as RULE
from mirrorlake.rules.murmur2 import murmur2_of as murmur2_of
from mirrorlake.rules.murmur2 import partitions_for as partitions_for
from mirrorlake.rules.partitioner import Placer as Placer
from mirrorlake.rules.replayed import TIMES as TIMES
from mirrorlake.rules.replayed import BetweenTimes as BetweenTimes
from mirrorlake.rules.replayed import HopAdded as HopAdded
from mirrorlake.rules.replayed import Restamped as Restamped
from mirrorlake.rules.view import View as View
from mirrorlake.rules.view import Viewed as Viewed
