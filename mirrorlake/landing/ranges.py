"""Read ranges of offsets from a source with librdkafka: to land records again, or what Spark's Kafka source cannot read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka import Fetcher
from mirrorlake.model.flow import TopicPartition

# The columns of Spark's Kafka source.
KAFKA_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
# A source that sends nothing for so long counts as unreachable.
_SILENCE_TIMEOUT_S = 30.0
_STEP_S, _STEP_BYTES, _STEP_RECORDS = 2.0, 64 << 20, 1_000_000


def read_ranges(
    alias: str, options: Mapping[str, Any], ranges: Mapping[TopicPartition, tuple[int, int]]
) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """Yield records of `ranges`, first offset and end, as they arrive; each partition's in offset order.

    Raises:
        PositionGone: records have left the source.
        ClusterUnreachable: the source sends nothing for a while.
    """
    reached, moved_at = {tp: first for tp, (first, _) in ranges.items()}, time.monotonic()
    with Fetcher(alias, options, reached) as fetcher:
        while left := [tp for tp, (_, end) in ranges.items() if reached[tp] < end]:
            fetched = fetcher.fetch(_STEP_S, max_s=_STEP_S, max_bytes=_STEP_BYTES, max_records=_STEP_RECORDS)
            for tp, table in fetched.rows.items():
                rows = table.filter(pc.less(table["offset"], ranges[tp][1]))
                if len(rows):
                    yield tp, rows
            reached |= fetched.read_to
            if any(tp in fetched.read_to for tp in left):
                moved_at = time.monotonic()
            elif time.monotonic() > moved_at + _SILENCE_TIMEOUT_S:
                raise ClusterUnreachable(
                    f"cluster {alias} sends no records of {left[0]} from offset {reached[left[0]]} on",
                    consequence="nothing was changed by this step",
                    remedy=f"bring {alias} back, then run the same command again",
                    alias=alias,
                )


def range_reader(
    alias: str, options: Mapping[str, Any]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` from rows `topic, partition, first, end` to `KAFKA_COLUMNS`."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in (row for batch in batches for row in batch.to_pylist()):
            # One after another: the relay's writer takes each partition's rows together.
            tp = TopicPartition(row["topic"], row["partition"])
            for _, rows in read_ranges(alias, options, {tp: (row["first"], row["end"])}):
                rows = rows.add_column(0, "topic", pa.repeat(tp.topic, len(rows)))
                rows = rows.add_column(1, "partition", pa.repeat(pa.scalar(tp.partition, pa.int32()), len(rows)))
                yield from rows.rename_columns({"timestamp_type": "timestampType"}).to_batches()

    return read
