"""A lane: records of a fixed set of source partitions, sent in transactions of one producer."""

from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.kafka.lane.faults import fenced_error, is_contested
from mirrorlake.kafka.lane.ledger_reader import LedgerReader, ledger_spec
from mirrorlake.kafka.lane.sender import LaneSender
from mirrorlake.kafka.lane.sent_ends import OverwriteDetector, find_ends
from mirrorlake.kafka.lane.spec import LaneSpec
