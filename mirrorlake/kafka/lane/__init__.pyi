"""The face of `mirrorlake.kafka.lane`: what other rooms use of it; its modules are its own."""

from mirrorlake.kafka.lane.batch import Batch as Batch
from mirrorlake.kafka.lane.faults import fenced_error as fenced_error
from mirrorlake.kafka.lane.faults import is_contested as is_contested
from mirrorlake.kafka.lane.ledger_reader import LedgerReader as LedgerReader
from mirrorlake.kafka.lane.ledger_reader import ledger_spec as ledger_spec
from mirrorlake.kafka.lane.sender import LaneSender as LaneSender
from mirrorlake.kafka.lane.sent_ends import OverwriteDetector as OverwriteDetector
from mirrorlake.kafka.lane.sent_ends import find_ends as find_ends
from mirrorlake.kafka.lane.spec import LaneSpec as LaneSpec
from mirrorlake.kafka.lane.throttle import Throttle as Throttle
