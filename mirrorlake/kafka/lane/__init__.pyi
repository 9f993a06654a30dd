"""The face of `mirrorlake.kafka.lane`: what other rooms use of it; its modules are its own."""

from mirrorlake.kafka.lane.batch import Batch as Batch
from mirrorlake.kafka.lane.faults import fenced_error as fenced_error
from mirrorlake.kafka.lane.faults import is_contested as is_contested
from mirrorlake.kafka.lane.ledger_reader import LedgerReader as LedgerReader
from mirrorlake.kafka.lane.ledger_reader import ledger_spec as ledger_spec
from mirrorlake.kafka.lane.sender import LaneSender as LaneSender
from mirrorlake.kafka.lane.sent_ends import SharedPlaces as SharedPlaces
from mirrorlake.kafka.lane.sent_ends import ends_of as ends_of
from mirrorlake.kafka.lane.task import LaneTask as LaneTask
from mirrorlake.kafka.lane.throttle import Throttle as Throttle
