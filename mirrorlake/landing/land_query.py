"""The landing query itself: Spark's Kafka source, and where it starts; and batches that are planned here.

A query repeats the batch that it planned, however large, so a source that is too slow for one gets batches that are planned here.
Over Spark Connect a query's `foreachBatch` runs in a process of the server, with neither the clients nor the state of a lander.
There each batch is a read of its own between offsets that are planned here, as a long-lived task plans them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.lake import KnownTopic
from mirrorlake.model.chunk_size import ChunkSize
from mirrorlake.model.flow import TopicPartition

_COMMITTED = {
    # Loss is found by Spark before a batch is written, and judged before the next start.
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "groupIdPrefix": "mirrorlake-land",
    "kafka.isolation.level": "read_committed",
}
# Offsets of the first batch that is planned here: 500 records of 10 KB take 100 s at 50 kB/s.
_FIRST_OFFSETS = 500
# A batch of Spark's takes a second or two whatever it holds.
_MIN_OFFSETS = 50
_AIM_S = 30.0
# Java's client gives up an answer after 30 s: as long as little is known of the source, an answer is small.
_SMALL_ANSWER = {"kafka.max.partition.fetch.bytes": str(2**18), "kafka.fetch.max.bytes": str(2**18)}
# Between two looks of a lander that plans its batches: each look asks the source for its topics and ends.
_LOOK_EVERY_S = 1.0


def relay_rows(frame: DataFrame, topics: Iterable[KnownTopic], *, never_leave: str) -> DataFrame:
    """Give a batch of Spark's Kafka source the relay's columns, but for the time of the batch.

    `topics` say which life a record belongs to; those that `never_leave` matches, a regular expression, are left out.
    """
    if never_leave:
        frame = frame.where(~F.col("topic").rlike(f"^(?:{never_leave})$"))
    return frame.select(
        "topic",
        _generation_column(topics).alias("generation"),
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
    )


def _generation_column(topics: Iterable[KnownTopic]) -> Column:
    """Return the life that a record of the source belongs to."""
    column = F.lit(1)
    for topic in topics:
        is_topic = F.col("topic") == topic.name
        if topic.generation > 1:
            column = F.when(is_topic, F.lit(topic.generation)).otherwise(column)
        for cut in sorted(topic.cuts, key=lambda cut: cut.generation):
            is_cut = is_topic & (F.col("partition") == cut.partition)
            column = F.when(is_cut, F.lit(cut.generation)).otherwise(column)
    return column.cast("int")


def start_landing(
    spark: SparkSession,
    *,
    name: str,
    options: Mapping[str, str],
    checkpoint_location: str,
    each_batch: Callable[[DataFrame, int], None],
    start: Mapping[TopicPartition, int] | None,
    trigger: str | None,
) -> StreamingQuery:
    """Start a query over the topics of a source.

    `start` is the first offset of each partition, None to resume where the checkpoint location ends; `trigger` the time
    between two batches, None to end where the source ends now.
    """
    starting = _document(start) if start else "earliest"
    frame = spark.readStream.format("kafka").options(**{**options, **_COMMITTED, "startingOffsets": starting}).load()
    writer = (
        frame.writeStream.queryName(name).option("checkpointLocation", checkpoint_location).foreachBatch(each_batch)
    )
    if trigger is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def land_planned(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    start: Mapping[TopicPartition, int],
    ends: Callable[[], Mapping[TopicPartition, int]],
    each_batch: Callable[[DataFrame, int, Mapping[TopicPartition, int]], None],
    tick: Callable[[], None],
    stop: threading.Event,
    once: bool,
    pace_s: float,
    most_records: int,
) -> None:
    """Land batches that are planned here, until `stop` is set or, with `once`, up to where the source ends now.

    Batches are sized to take half a minute at most, so that progress from a slow source outlives a kill.

    Law F: a batch is appended under its number with where it ends; whoever comes after a kill claims another number and goes on
    at what the relay holds, or at where its commits say that a batch ended, whichever is further.

    Args:
        spark: the session.
        options: those of Spark's Kafka source that say how to reach it.
        start: the first offset of each partition.
        ends: looks where the source's partitions end, committed; raises where it has other topics.
        each_batch: appends a batch, and where it ends.
        tick: called after each look.
        stop: set it to return between two batches.
        once: land the records so far, then return.
        pace_s: the time between the starts of two batches, at least a second where nothing comes.
        most_records: how many offsets a batch may span; the first ones span fewer, until the rate of the source is known.
    """
    positions, batch = dict(start), 0
    size = ChunkSize(most_records, start=_FIRST_OFFSETS, least=_MIN_OFFSETS, aim_s=_AIM_S)
    goal = ends() if once else None
    while not stop.is_set():
        began = time.monotonic()
        planned = next_batch(positions, ends() if goal is None else goal, size.limit)
        if planned:
            batch += 1
            first = {tp: positions[tp] for tp in planned}
            answers = {} if size.limit == most_records else _SMALL_ANSWER
            each_batch(_between(spark, {**options, **answers}, first, planned), batch, planned)
            size.record_success(
                sum(end - positions[tp] for tp, end in planned.items()), seconds=time.monotonic() - began
            )
            positions |= planned
        elif goal is not None:
            return
        tick()
        if goal is None:
            stop.wait(began + (pace_s if planned else max(pace_s, _LOOK_EVERY_S)) - time.monotonic())


def next_batch(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most_records: int
) -> dict[TopicPartition, int]:
    """Plan where a batch ends, by partition: each gets the same share of what a batch may hold.

    Example:
        >>> orders = [TopicPartition("orders", number) for number in range(3)]
        >>> planned = next_batch(dict.fromkeys(orders, 5), dict(zip(orders, (5, 6, 90))), 20)
        >>> {str(tp): end for tp, end in planned.items()}
        {'orders-1': 6, 'orders-2': 15}
    """
    due = {tp: end for tp, end in ends.items() if end > positions.get(tp, end)}
    share = max(1, most_records // max(1, len(due)))
    return {tp: min(end, positions[tp] + share) for tp, end in due.items()}


def _between(
    spark: SparkSession,
    options: Mapping[str, str],
    first: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> DataFrame:
    partitions: dict[str, list[int]] = {}
    for tp in sorted(first):
        partitions.setdefault(tp.topic, []).append(tp.partition)
    named: dict[str, Any] = {
        "assign": json.dumps(partitions),
        "startingOffsets": _document(first),
        "endingOffsets": _document(ends),
    }
    return spark.read.format("kafka").options(**{**options, **_COMMITTED, **named}).load()


def _document(offsets: Mapping[TopicPartition, int]) -> str:
    document: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(document)
