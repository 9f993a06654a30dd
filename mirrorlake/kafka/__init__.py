"""Clients of Kafka; the only importer of confluent_kafka."""

from mirrorlake.kafka.admin import GROUPS_TOPIC, ClusterAdmin
from mirrorlake.kafka.connect_offsets import StoredOffsets, stored_offsets
from mirrorlake.kafka.errors import COORDINATOR_MOVING, retry_transient, wait_until
from mirrorlake.kafka.fetched_rows import FetchedRows, UnreadableHeaders
from mirrorlake.kafka.fetcher import Fetched, Fetcher, PositionGone
from mirrorlake.kafka.groups import Committed, Groups
from mirrorlake.kafka.leaders import describe_with_leaders, format_partitions, leaderless_error, those_led
from mirrorlake.kafka.mm2_internal import Mm2Writer, mm2_topics, mm2_writer, write_plan_checkpoints
from mirrorlake.kafka.options import librdkafka_options, spark_options
from mirrorlake.kafka.reach import probe
from mirrorlake.kafka.record_reader import SMALL_QUEUES, RawRecord, RecordReader
from mirrorlake.kafka.remotes import (
    check_topic_ids,
    describe_with_retry,
    find_truncated_topics,
    lost_topic_error,
    truncated_topic_error,
)
from mirrorlake.kafka.topic_metadata import TopicSetting, TopicState, list_partitions
from mirrorlake.kafka.watermarks import Offsets, SourceSilent, WatermarkReader
