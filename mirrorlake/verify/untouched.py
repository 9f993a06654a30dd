"""Fetch by Spark from a source without any group: Java's client needs no group coordinator (law H).

librdkafka asks for one, and a broker then makes `__consumer_offsets` (`kafka/fetcher.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.kafka import Fetched, FetchedRows, PositionGone
from mirrorlake.landing import read_between
from mirrorlake.model.flow import TopicPartition
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.unit import Fetching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Offsets of all partitions that are collected at once.
_OFFSETS = 100_000


def fetch_by_spark(spark: SparkSession, options: Mapping[str, str]) -> Fetching:
    """Return a factory of fetchers that read by Spark, with its options for the cluster."""
    return lambda _, spans: SparkFetcher(spark, options, spans)


class SparkFetcher:
    """Read one range of offsets of each partition, `read_committed`, with the calls of a `Fetcher`; partitions together."""

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], spans: Mapping[TopicPartition, OffsetRange]
    ) -> None:
        self._spark = spark
        self._options = options
        self._left = [
            (tp, first, min(first + _OFFSETS, span.end))
            for tp, span in spans.items()
            for first in range(span.first, span.end, _OFFSETS)
        ]

    def __enter__(self) -> SparkFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.clear()

    def fetch(self, _wait_s: float, /, **_bounds: Any) -> Fetched:
        """Return the next records of some partitions.

        Raises:
            PositionGone: a partition is gone, or does not hold the next offset any more.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        chosen = self._next()
        if not chosen:
            return Fetched()
        first = {tp: begin for tp, (begin, _) in chosen.items()}
        ends = {tp: end for tp, (_, end) in chosen.items()}
        frame = read_between(self._spark, self._options, first, ends)
        columns = ["offset", "timestamp", F.col("timestampType").alias("timestamp_type"), "key", "value", "headers"]
        try:
            found = frame.select("topic", "partition", *columns).toArrow()
        except PySparkException as error:
            if "DATA_LOSS" in str(error) or "OffsetOutOfRange" in str(error):
                raise PositionGone(f"{', '.join(map(str, chosen))}: {str(error)[:200]}") from error
            raise
        rows = FetchedRows.from_tables({tp: _of(tp, found) for tp in chosen})
        return Fetched(rows, ends)

    def _next(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return ranges of several partitions, because a job takes about as long for one as for many."""
        chosen: dict[TopicPartition, tuple[int, int]] = {}
        while self._left:
            tp, first, end = self._left[0]
            whole = end - first + sum(stop - start for start, stop in chosen.values())
            if chosen and (tp in chosen or whole > _OFFSETS):
                break
            chosen[tp] = first, end
            del self._left[0]
        return chosen


def _of(tp: TopicPartition, rows: pa.Table) -> pa.Table:
    mine = pc.and_(pc.equal(rows["topic"], tp.topic), pc.equal(rows["partition"], tp.partition))
    return rows.filter(mine).drop_columns(["topic", "partition"]).sort_by("offset")
