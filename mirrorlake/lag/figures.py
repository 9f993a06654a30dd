"""Measure: the figures of a mirror at one moment, out of its tables, for whoever watches over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.lag.judge import LagVerdict
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import GAPS, WITHHELD, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Time from a record's timestamp to its target, in milliseconds, over the records of the last minutes."""

    flow: str
    topic: str
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one look at the tables found.

    Attributes:
        at: when.
        lag: verdicts, positions and lags of every hop.
        latency: percentiles by flow and topic.
        gaps: offsets that were never landed, by source and kind (law E).
        withheld: records that were kept from the target, by flow and kind (`filtered`, `quarantined`).
    """

    at: datetime
    lag: LagVerdict
    latency: Sequence[Latency] = ()
    gaps: Mapping[tuple[str, str], int] = field(default_factory=dict)
    withheld: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def rpo_ms(self) -> dict[str, int | None]:
        """The age of the oldest record that would be lost with the source, by flow; None where it is not known."""
        found: dict[str, int | None] = {}
        for hop in self.lag.hops:
            if hop.place.hop == "republished":
                before, age = found.get(hop.place.flow, 0), hop.judgement.time_lag_ms
                found[hop.place.flow] = None if before is None or age is None else max(before, age)
        return found


def measure(lake: Lake, *, lag: LagVerdict, latency: DataFrame | None, now: datetime) -> Figures:
    """Return the figures of a moment; three actions on small tables.

    Args:
        lake: the lake.
        lag: the verdicts.
        latency: latency in buckets of time, of which the newest counts; None where nothing was landed yet.
        now: the present.
    """
    return Figures(
        at=now,
        lag=lag,
        latency=() if latency is None else _newest(latency),
        gaps=_sums(lake, GAPS, "source", "missing"),
        withheld=_sums(lake, WITHHELD, "flow", "record_count"),
    )


def _newest(latency: DataFrame) -> list[Latency]:
    newest = latency.groupBy("flow", "topic").agg(
        *(F.max_by(column, "bucket").alias(column) for column in ("p50_ms", "p95_ms", "p99_ms"))
    )
    return [Latency(**row.asDict()) for row in newest.collect()]


def _sums(lake: Lake, table: TableSchema, place: str, column: str) -> dict[tuple[str, str], int]:
    if not lake.exists(lake.meta_location(table)):
        return {}
    rows: list[Any] = lake.meta(table).groupBy(place, "kind").agg(F.sum(column).alias("total")).collect()
    return {(row[place], row.kind): int(row.total or 0) for row in rows}
