"""Read lag and latency as time series: partitions summed in the lake, and the worst value of each bucket of a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.lag.lag import Lag, When
from mirrorlake.lag.sql import LagQuery
from mirrorlake.render import MAX_POINTS

# 80 positions that all move between two samples of 30 s take 0.4 GB; an interval costs 0.3 CPU-s, however few rows it has.
_INTERVAL = timedelta(days=4)
# Each on its own core, because DuckDB runs in one thread.
_MAX_PARALLEL = 2

LINE_COLUMNS = ("observed_at", "flow", "hop", "group_id", "offset_lag", "time_lag_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """Percentiles of the time from a record's timestamp to its target, in milliseconds, in one time bucket."""

    at: datetime
    flow: str
    topic: str
    records: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


def lag_lines(lag: Lag, since: When = "1h") -> Any:
    """Return the worst total lag of each hop by time bucket, as a pandas frame with as many points as a chart holds."""
    import pandas as pd

    rows = _worst_lags(lag.query_over, *lag.span(since))
    return pd.DataFrame([{**vars(row), "observed_at": row.at} for row in rows], columns=list(LINE_COLUMNS))


# Partitions are summed as in `time_lag.sum_lags`: an unknown part makes the sum unknown.
_TOTALS = """
    SELECT observed_at, flow, hop, group_id,
        CASE WHEN count(offset_lag) = count(*) THEN CAST(sum(offset_lag) AS BIGINT) END AS offset_lag,
        CASE WHEN count(time_lag_ms) = count(*) THEN max(time_lag_ms) END AS time_lag_ms
    FROM {answer} GROUP BY observed_at, flow, hop, group_id
"""


Over = Callable[[datetime, datetime], LagQuery]
"""Query a time range: `Lag.query_over`."""


def _worst_lags(over: Over, start: datetime, end: datetime) -> Iterator[Any]:
    """Query interval by interval, so that the samples of a month are never in memory together; intervals hold whole buckets."""
    text = f"""
        SELECT flow, hop, group_id, max(observed_at) AS at,
            CASE WHEN count(time_lag_ms) = count(*) THEN max(time_lag_ms) END AS time_lag_ms,
            CASE WHEN count(offset_lag) = count(*) THEN max(offset_lag) END AS offset_lag
        FROM ({_TOTALS}) GROUP BY flow, hop, group_id, {_BUCKET} ORDER BY at, flow, hop, group_id
        """  # noqa: S608  no value enters the text
    bucket = bucket_s(start, end)
    values = {"since_us": int(start.timestamp()) * 1_000_000, "bucket_us": bucket * 1_000_000}
    least = timedelta(seconds=bucket)
    # Buckets start at a whole second.
    length, at = max(1, _INTERVAL // least) * least, start.replace(microsecond=0)
    begins = [at + length * number for number in range(-(-(end - at) // length))]

    def ask(begin: datetime) -> list[Any]:
        following = begin + length
        is_last = following >= end
        try:
            answer = over(max(begin, start), end if is_last else following - timedelta(microseconds=1))
            return answer.rows(text, **values)
        except UsageError:
            # The interval is older than the first sample.
            if is_last:
                raise
            return []

    with ThreadPoolExecutor(max_workers=_MAX_PARALLEL, thread_name_prefix="lag") as pool:
        yield from chain.from_iterable(pool.map(ask, begins))


def latency_points(latency: LagQuery) -> tuple[LatencyPoint, ...]:
    text = "SELECT bucket AS at, flow, topic, records, p50_ms, p95_ms, p99_ms FROM {answer} ORDER BY at, flow, topic"
    return tuple(LatencyPoint(**vars(row)) for row in latency.rows(text))


def bucket_s(start: datetime, end: datetime) -> int:
    """Return the bucket length in seconds with which a chart holds the whole time range."""
    return max(1, -(-int((end - start).total_seconds()) // MAX_POINTS))


_BUCKET = "CAST(floor((unix_micros(observed_at) - :since_us) / :bucket_us) AS BIGINT)"
