"""The republishing query itself: a stream over the relay, where its log is not read here."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import COLUMNS, Lake

# One micro-batch; the default of 1 000 files alone would make a batch of any size after a pause.
MAX_BYTES_PER_TRIGGER = "512m"


def start_republishing(
    lake: Lake,
    flow: FlowConfig,
    checkpoint_location: str,
    *,
    each_batch: Callable[[DataFrame, int], None],
    version: int | None,
    once: bool,
) -> StreamingQuery:
    """Start a query over the relay of a flow.

    `version` is the version of the relay to start at, None to resume where the checkpoint location ends; `once` ends it
    where the relay ends now.
    """
    reader = (
        lake.spark.readStream.format("delta")
        .option("maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER)
        # Upkeep and repair rewrite records that were landed, and sent, long before.
        .option("skipChangeCommits", "true")
        .option("failOnDataLoss", "true")
    )
    if version is not None:
        reader = reader.option("startingVersion", version)
    relay = lake.relay_stream(reader, flow.source)
    frame = relay.select("topic", "generation", "partition", *COLUMNS)
    writer = (
        frame.writeStream.queryName(f"republish {flow.name}")
        .option("checkpointLocation", checkpoint_location)
        .foreachBatch(each_batch)
    )
    if once:
        return writer.trigger(availableNow=True).start()
    trigger = f"{int(flow.trigger.total_seconds() * 1000)} milliseconds"
    return writer.trigger(processingTime=trigger).start()
