"""The points of a report: as many as a picture holds, out of the frames of lag, latency and RPO, the worst of each stretch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.lake.times import from_micros as utc
from mirrorlake.render.svg_chart import MOST_POINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class LagPoint:
    """Lag of one hop of one flow in a stretch of time: the largest of its partitions' time lags, the largest sum of offset lags.

    `line` names flow, hop and group; None where it was not known of every partition.
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


def lag_points(frame: DataFrame, start: datetime, end: datetime) -> tuple[LagPoint, ...]:
    """Return the lag of each hop out of the frame of lag, as many points as a picture holds; one action."""

    def known(found: Column, column: str) -> Column:
        return F.when(F.count(column) == F.count("*"), found)

    moments = frame.groupBy("flow", "hop", "group_id", "observed_at").agg(
        known(F.max("time_lag_ms"), "time_lag_ms").alias("time_lag_ms"),
        known(F.sum("offset_lag"), "offset_lag").alias("offset_lag"),
    )
    bucket = _bucket("observed_at", start, end)
    rows = (
        moments.groupBy("flow", "hop", "group_id", bucket.alias("bucket"))
        .agg(
            known(F.max("time_lag_ms"), "time_lag_ms").alias("time_lag_ms"),
            known(F.max("offset_lag"), "offset_lag").alias("offset_lag"),
            F.unix_micros(F.max("observed_at")).alias("at"),
        )
        .orderBy("at", "flow", "hop", "group_id")
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
    """Return the rows of the frame of latency; its buckets are made by who asks for it; one action."""
    rows = frame.withColumn("at", F.unix_micros("bucket")).orderBy("at", "flow", "topic").collect()
    return tuple(
        LatencyPoint(
            at=utc(row["at"]),
            flow=row.flow,
            topic=row.topic,
            records=row.records,
            p50_ms=row.p50_ms,
            p95_ms=row.p95_ms,
            p99_ms=row.p99_ms,
        )
        for row in rows
    )


def rpo_points(frame: DataFrame, start: datetime, end: datetime) -> tuple[RpoPoint, ...]:
    """Return the worst RPO of each stretch of time out of the frame of RPO, not known where one of its moments is not."""
    worst = F.when(F.count("data_ms") == F.count("*"), F.max("data_ms"))
    rows = (
        frame.groupBy("flow", _bucket("observed_at", start, end).alias("bucket"))
        .agg(worst.alias("data_ms"), F.max("records").alias("records"), F.unix_micros(F.max("observed_at")).alias("at"))
        .orderBy("at", "flow")
        .collect()
    )
    return tuple(RpoPoint(at=utc(row["at"]), flow=row.flow, records=row.records, data_ms=row.data_ms) for row in rows)


def bucket_s(start: datetime, end: datetime) -> int:
    """Return the length of a stretch of time in seconds, of which a picture holds all.

    >>> from datetime import timedelta, timezone
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    >>> bucket_s(noon, noon + timedelta(days=1)), bucket_s(noon, noon + timedelta(seconds=5))
    (360, 1)
    """
    return max(1, -(-int((end - start).total_seconds()) // MOST_POINTS))


def _bucket(column: str, start: datetime, end: datetime) -> Column:
    seconds = F.unix_seconds(column) - F.lit(int(start.timestamp()))
    return F.floor(seconds / F.lit(bucket_s(start, end)))
