"""Lag, latency and RPO as series over time: partitions added up by Spark, and the worst of each stretch of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.lag.lag import Lag, When
from mirrorlake.lake import from_micros as utc
from mirrorlake.render import MOST_POINTS

_HOP = ("flow", "hop", "group_id")
LINE_COLUMNS = ("observed_at", *_HOP, "offset_lag", "time_lag_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagPoint:
    """The worst lag of one hop of one flow in a stretch of time; None where it was not known of every partition.

    `line` names flow, hop and group.
    """

    at: datetime
    line: str
    time_lag_ms: int | None
    offset_lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """Percentiles of the time from a record's timestamp to its target, in milliseconds, of one bucket of time."""

    at: datetime
    flow: str
    topic: str
    records: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RpoPoint:
    """What would have been lost: records, and the age of the oldest in milliseconds, None where it is not known yet."""

    at: datetime
    flow: str
    records: int
    data_ms: int | None


def lag_lines(lag: Lag, since: When = "1h") -> Any:
    """Return the total lag of each hop at each sampling moment, as a pandas frame; partitions do not come to the notebook.

    Raises:
        UsageError: nothing was sampled yet.
    """
    return _totals(lag.over(since), *_HOP, "observed_at").select(*LINE_COLUMNS).orderBy("observed_at").toPandas()


def lag_points(frame: DataFrame, start: datetime, end: datetime) -> tuple[LagPoint, ...]:
    """Read the lag of each hop from the frame of lag, as many points as a picture holds; one action."""
    rows = (
        _totals(frame, *_HOP, "observed_at")
        .groupBy(*_HOP, _bucket("observed_at", start, end).alias("bucket"))
        .agg(_worst("time_lag_ms"), _worst("offset_lag"), F.unix_micros(F.max("observed_at")).alias("at"))
        .orderBy("at", *_HOP)
        .collect()
    )
    return tuple(
        LagPoint(
            at=utc(row["at"]),
            line=f"{row.flow} {row.hop}" + (f" by {row.group_id}" if row.group_id else ""),
            time_lag_ms=row.time_lag_ms,
            offset_lag=row.offset_lag,
        )
        for row in rows
    )


def latency_points(frame: DataFrame) -> tuple[LatencyPoint, ...]:
    """Read the rows of the frame of latency, oldest first; one action."""
    rows = frame.drop("max_ms").withColumn("at", F.unix_micros("bucket")).drop("bucket").orderBy("at", "flow", "topic")
    return tuple(LatencyPoint(**{**row.asDict(), "at": utc(row["at"])}) for row in rows.collect())


def rpo_points(frame: DataFrame, start: datetime, end: datetime) -> tuple[RpoPoint, ...]:
    """Read the worst RPO of each stretch of time from the frame of RPO, not known where one of its moments is not."""
    rows = (
        frame.groupBy("flow", _bucket("observed_at", start, end).alias("bucket"))
        .agg(_worst("data_ms"), F.max("records").alias("records"), F.unix_micros(F.max("observed_at")).alias("at"))
        .drop("bucket")
        .orderBy("at", "flow")
    )
    return tuple(RpoPoint(**{**row.asDict(), "at": utc(row["at"])}) for row in rows.collect())


def _totals(frame: DataFrame, *keys: str) -> DataFrame:
    """Add up partitions as `moment.total` does."""
    offset_lag = F.when(F.count("offset_lag") == F.count("*"), F.sum("offset_lag"))
    return frame.groupBy(*keys).agg(offset_lag.alias("offset_lag"), _worst("time_lag_ms"))


def _worst(column: str) -> Column:
    return F.when(F.count(column) == F.count("*"), F.max(column)).alias(column)


def bucket_s(start: datetime, end: datetime) -> int:
    """Choose the length of a stretch of time in seconds, of which a picture holds all.

    >>> from datetime import timedelta, timezone
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    >>> bucket_s(noon, noon + timedelta(days=1)), bucket_s(noon, noon + timedelta(seconds=5))
    (360, 1)
    """
    return max(1, -(-int((end - start).total_seconds()) // MOST_POINTS))


def _bucket(column: str, start: datetime, end: datetime) -> Column:
    seconds = F.unix_seconds(column) - F.lit(int(start.timestamp()))
    return F.floor(seconds / F.lit(bucket_s(start, end)))
