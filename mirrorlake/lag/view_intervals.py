"""Query a long time range as a frame: each Spark task queries some intervals of it in a folder or store, without the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig, LakeConfig
from mirrorlake.errors import UsageError
from mirrorlake.lag.lag_queries import LagQueries
from mirrorlake.lag.sql import LAG_COLUMNS, LATENCY_COLUMNS, RPO_COLUMNS, LagQuery
from mirrorlake.lake import Lake, arrow_type, from_micros, micros
from mirrorlake.runtime import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# An interval costs 0.2 CPU-s, however few rows it has.
LONGEST, _SHORTEST = timedelta(days=2), timedelta(minutes=10)
LATENCY_BUCKET_S = 60
# Rows of an interval (positions times samples, or records) at 0.3 KB each: two days of 80 positions, sampled every 30 s.
_MAX_ROWS = 500_000
_DAY_OF_LOOKS = """
    SELECT max(held) AS held FROM (
      SELECT sum(held) AS held FROM (
        SELECT date_trunc('day', observed_at) AS day, max(positions) * count(*) AS held FROM {samples}
        WHERE error IS NULL GROUP BY date_trunc('day', observed_at), subject, name)
      GROUP BY day)
"""
_DAY_OF_RECORDS = """
    SELECT max(held) AS held FROM (
      SELECT sum(record_count) AS held FROM {offset_map} GROUP BY date_trunc('day', committed_at))
"""

QueryInterval = Callable[[LagQueries, datetime, datetime], LagQuery]


class TimeView(NamedTuple):
    """A view: its columns, its time column, the query of an interval, and the SQL for the row count of its busiest day."""

    columns: Mapping[str, tuple[str, str]]
    column: str
    ask: QueryInterval
    held: str


VIEWS = {
    "lag": TimeView(LAG_COLUMNS, "observed_at", LagQueries.over, _DAY_OF_LOOKS),
    "latency": TimeView(
        LATENCY_COLUMNS, "bucket", partial(LagQueries.latency, bucket_s=LATENCY_BUCKET_S), _DAY_OF_RECORDS
    ),
    "rpo": TimeView(RPO_COLUMNS, "observed_at", LagQueries.rpo, _DAY_OF_LOOKS),
}


def frame_by_interval(lake: Lake, flows: Sequence[FlowConfig], name: str, *, days: int) -> DataFrame:
    # One task a core, because a local session has 24 slots more, and a worker takes 0.3 GB.
    piece = choose_interval(lake, name)
    numbered = lake.spark.range(count_intervals(days, piece)).selectExpr(
        "id", "unix_micros(current_timestamp()) AS now"
    )
    columns = VIEWS[name].columns
    schema = ", ".join(f"`{column}` {kind}" for column, (kind, _) in columns.items())
    return numbered.mapInArrow(
        query_intervals(lake.address, lake.store, tuple(flows), VIEWS[name], days, piece), schema
    )


def choose_interval(lake: Lake, name: str) -> timedelta:
    """Return the interval of a view by its busiest day: from ten minutes to two days."""
    [row] = lake.query_rows(VIEWS[name].held)
    fitting = int(timedelta(days=1) // _SHORTEST * _MAX_ROWS // max(1, row.held or 0))
    return min(LONGEST, max(1, fitting) * _SHORTEST)


def count_intervals(days: int, piece: timedelta) -> int:
    """Count the intervals; they start at whole minutes, as latency buckets do, so the shown time starts within one."""
    return -(-timedelta(days=days) // piece) + 1


def query_intervals(
    root: str, store: Store | None, flows: Sequence[FlowConfig], view: TimeView, days: int, length: timedelta
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Build the function for `mapInArrow` that queries intervals, numbered from the newest, as of a time `now`."""
    schema = _schema(view)

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = [piece for batch in numbers for piece in batch.to_pylist()]
        # All intervals belong to one query, so shared tables are read once.
        settings = None if store is None else tuple(sorted(store.values.items()))
        asked = LagQueries(_lake(root, settings), flows, now=lambda: from_micros(pieces[0]["now"]))
        for piece in pieces:
            now, number = from_micros(piece["now"]), piece["id"]
            yield from _query_interval(asked, view, days, length, number, now).cast(schema).to_batches()

    return rows


def _query_interval(
    asked: LagQueries, view: TimeView, days: int, length: timedelta, number: int, now: datetime
) -> pa.Table:
    length_us = length // timedelta(microseconds=1)
    begin = (micros(now) // length_us - number) * length_us
    # The present limits the newest interval, the shown time the oldest.
    shown = (now - timedelta(days=days)).replace(microsecond=0)
    first, last = max(from_micros(begin), shown), min(from_micros(begin + length_us - 1), now)
    if last < first:
        return _schema(view).empty_table()
    try:
        return view.ask(asked, first, last).table()
    except UsageError:
        # Nothing was landed, or sampled up to then.
        return _schema(view).empty_table()


def _schema(view: TimeView) -> pa.Schema:
    return pa.schema({column: arrow_type(kind) for column, (kind, _) in view.columns.items()})


@lru_cache(maxsize=4)
def _lake(root: str, settings: tuple[tuple[str, str], ...] | None) -> Lake:
    store = None if settings is None else Store(root, dict(settings))
    return Lake(_no_session, LakeConfig(root=root), sees_all=lambda: True, store=store)


def _no_session() -> Any:
    raise AssertionError("a view's tables are asked without Spark")
