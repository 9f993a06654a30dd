"""The face of `mirrorlake.kafka`: what other rooms use of it; its modules are its own."""

from mirrorlake.kafka.admin import ClusterAdmin as ClusterAdmin
from mirrorlake.kafka.admin import TopicState as TopicState
from mirrorlake.kafka.connect_offsets import StoredOffsets as StoredOffsets
from mirrorlake.kafka.connect_offsets import stored_offsets as stored_offsets
from mirrorlake.kafka.fetcher import Fetched as Fetched
from mirrorlake.kafka.fetcher import Fetcher as Fetcher
from mirrorlake.kafka.fetcher import PositionGone as PositionGone
from mirrorlake.kafka.fetcher import UnreadableHeaders as UnreadableHeaders
from mirrorlake.kafka.groups import Committed as Committed
from mirrorlake.kafka.groups import Groups as Groups
from mirrorlake.kafka.mm2_internal import Mm2Writer as Mm2Writer
from mirrorlake.kafka.mm2_internal import mm2_topics as mm2_topics
from mirrorlake.kafka.mm2_internal import mm2_writer as mm2_writer
from mirrorlake.kafka.mm2_internal import tell_checkpoints as tell_checkpoints
from mirrorlake.kafka.options import librdkafka_options as librdkafka_options
from mirrorlake.kafka.options import spark_options as spark_options
from mirrorlake.kafka.reach import probe as probe
from mirrorlake.kafka.record_reader import FEW as FEW
from mirrorlake.kafka.record_reader import RawRecord as RawRecord
from mirrorlake.kafka.record_reader import RecordReader as RecordReader
from mirrorlake.kafka.remotes import describe_surely as describe_surely
from mirrorlake.kafka.remotes import lost as lost
from mirrorlake.kafka.remotes import require_same as require_same
from mirrorlake.kafka.topic_looks import PartitionState as PartitionState
from mirrorlake.kafka.topic_looks import TopicSetting as TopicSetting
