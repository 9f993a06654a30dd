"""Fetch from a source that nobody ever consumed from, by Spark: Java's client asks for no group's coordinator (law H).

librdkafka asks for one, and a broker then makes `__consumer_offsets` (`kafka/fetcher.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from mirrorlake.kafka import Fetched, PositionGone
from mirrorlake.model.flow import TopicPartition
from mirrorlake.verify.spans import OffsetSpan
from mirrorlake.verify.unit import Fetching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Collected at once.
_OFFSETS = 100_000


def fetch_by_spark(spark: SparkSession, options: Mapping[str, str]) -> Fetching:
    """Make what fetches the partitions of a unit by Spark, with its options for the cluster."""
    return lambda _, spans: SparkFetcher(spark, options, spans)


class SparkFetcher:
    """Read one range of offsets of each partition, `read_committed`, with the calls of a `Fetcher`."""

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], spans: Mapping[TopicPartition, OffsetSpan]
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
        """Return the next records of one partition.

        Raises:
            PositionGone: a partition is gone, or does not hold the next offset any more.
        """
        if not self._left:
            return Fetched()
        tp, first, end = self._left.pop(0)
        options = {
            **self._options,
            "assign": json.dumps({tp.topic: [tp.partition]}),
            "startingOffsets": json.dumps({tp.topic: {str(tp.partition): first}}),
            "endingOffsets": json.dumps({tp.topic: {str(tp.partition): end}}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.isolation.level": "read_committed",
        }
        frame = self._spark.read.format("kafka").options(**options).load()
        columns = ["offset", "timestamp", F.col("timestampType").alias("timestamp_type"), "key", "value", "headers"]
        try:
            rows = frame.select(*columns).toArrow().sort_by("offset")
        except PySparkException as error:
            if "DATA_LOSS" in str(error) or "OffsetOutOfRange" in str(error):
                raise PositionGone(f"{tp.topic}-{tp.partition}: {str(error)[:200]}") from error
            raise
        return Fetched({tp: rows} if len(rows) else {}, {tp: end})
