"""What a flow owes: landed records that its ledger says are done and that no run holds, and those that still wait.

Law E (accounted for): every landed record is republished, withheld, or named here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from mirrorlake.config.schema import FlowConfig
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.verify import Difference
from mirrorlake.offsets import Clusters
from mirrorlake.republish import merged_positions, read_lanes
from mirrorlake.verify.cut import SOURCE_KEY

# A flow that runs commits every few seconds; one that has not for so long stands still.
_STANDS_STILL_MS = 20_000
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Landed records of one source partition that the flow has not come to: how many, the first and the last."""

    records: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a flow stands in one source partition: it has to send from `begins`, and has come to `position`."""

    begins: int
    position: int


def owed(
    relay: DataFrame, bounds: Mapping[SourcePartition, Bounds], mapped: Mapping[SourcePartition, int]
) -> tuple[list[Difference], dict[SourcePartition, Waiting]]:
    """Tell the landed records that are lost between relay and target from those that wait.

    `relay` holds each record once; partitions that `bounds` leaves out owe nothing; `mapped` counts what was sent or withheld.
    """
    rows = [(s.topic, s.generation, s.partition, b.begins, b.position) for s, b in bounds.items()]
    if not rows:
        return [], {}
    frame = relay.sparkSession.createDataFrame(
        rows, "topic string, generation int, partition int, begins bigint, position bigint"
    )
    is_done = F.col("offset") < F.col("position")
    counts = (
        relay.join(F.broadcast(frame), SOURCE_KEY)
        .where("offset >= begins")
        .groupBy(*SOURCE_KEY)
        .agg(
            F.count_if(is_done).alias("done"),
            F.min(F.when(is_done, F.col("offset"))).alias("first_done"),
            F.count_if(~is_done).alias("waiting"),
            F.min(F.when(~is_done, F.col("offset"))).alias("first"),
            F.max("offset").alias("last"),
        )
        .collect()
    )
    lost: list[Difference] = []
    waiting: dict[SourcePartition, Waiting] = {}
    for row in counts:
        source = SourcePartition(row.topic, row.generation, row.partition)
        if row.done != mapped.get(source, 0):
            offset = row.first_done if row.first_done is not None else row["first"]
            records = max(1, row.done - mapped.get(source, 0))
            lost.append(Difference.at(source, offset, where="target", problem="missing", records=records))
        if row.waiting:
            waiting[source] = Waiting(records=row.waiting, first=row["first"], last=row["last"])
    return lost, waiting


def still_waiting(
    relay: DataFrame, waiting: Mapping[SourcePartition, Waiting], flow: FlowConfig, clusters: Clusters
) -> dict[SourcePartition, Waiting]:
    """Give a flow that moves time to send what waited at the cut, and return what it has not come to by then."""
    if not waiting:
        return {}
    reached: dict[SourcePartition, int] = {}

    def is_over() -> bool:
        last = read_lanes(ledger, clusters.admin(flow.target), flow.ledger_topic)
        reached.update(merged_positions(last))
        newest = max((record.committed_at_ms for record in last.values() if record), default=0)
        has_come = all(reached.get(source, 0) > one.last for source, one in waiting.items())
        return has_come or time.time() * 1000 - newest > _STANDS_STILL_MS

    with clusters.ledger(flow) as ledger, suppress(RetryError):
        Retrying(
            retry=retry_if_result(lambda over: not over), stop=stop_after_delay(_PATIENCE_S), wait=wait_fixed(0.25)
        )(is_over)
    left = {source: one for source, one in waiting.items() if reached.get(source, 0) <= one.last}
    moved = {source: reached[source] for source, one in left.items() if reached.get(source, 0) > one.first}
    if moved:
        bounds = {source: Bounds(begins=position, position=position) for source, position in moved.items()}
        left |= owed(relay, bounds, {})[1]
    return left
