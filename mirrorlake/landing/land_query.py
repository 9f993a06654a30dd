"""The landing query itself: Spark's Kafka source, and where it starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import TopicPartition


def generation_column(topics: Iterable[KnownTopic]) -> Column:
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
    starting = "earliest"
    if start:
        document: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(start.items()):
            document.setdefault(tp.topic, {})[str(tp.partition)] = offset
        starting = json.dumps(document)
    frame = (
        spark.readStream.format("kafka")
        .options(
            **{
                **options,
                "startingOffsets": starting,
                # Loss is found by Spark before a batch is written, and judged before the next start.
                "failOnDataLoss": "true",
                "includeHeaders": "true",
                "groupIdPrefix": "mirrorlake-land",
                "kafka.isolation.level": "read_committed",
            }
        )
        .load()
    )
    writer = (
        frame.writeStream.queryName(name).option("checkpointLocation", checkpoint_location).foreachBatch(each_batch)
    )
    if trigger is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()
