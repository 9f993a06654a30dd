"""Republish by a stream over the relay, for lakes whose log this process cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import COLUMNS, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

# The size of a micro-batch; the default of 1 000 files would allow a batch of any size after a pause.
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

    `version` is the relay's version to start at, or None to resume from the checkpoint location. With `once` the query ends
    at the relay's present end.
    """
    reader = (
        lake.spark.readStream.format("delta")
        .option("maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER)
        # Maintenance and repair rewrite records that were landed, and sent, long before.
        .option("skipChangeCommits", "true")
        .option("failOnDataLoss", "true")
    )
    if version is not None:
        reader = reader.option("startingVersion", version)
    relay = lake.load_relay(reader, flow.source)
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
