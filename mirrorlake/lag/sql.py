"""Build the queries of lag, latency and RPO: one SQL text each, for rows, frames and the views of `lag/sql_views.py`.

Lag is reported at every sample, hop by hop:

    source end  ->  landed  ->  republished  ->  consumed (by a group on the target; or on the source itself)

The law of time lag is `lag/time_lag.py`'s. A record that was landed only later is looked up, too, so the past is exact (law E).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.lag.dense_ranges import RangesByRoute, read_dense_ranges
from mirrorlake.lag.position_history import PositionHistory
from mirrorlake.lag.sql_hops import (
    DENSE_RANGES_BY_ROUTE,
    HOPS,
    KNOWN_HOPS,
    KNOWN_SIDES,
    SAMPLE_TIMES,
    SAMPLED_POSITIONS,
    WAITED,
)
from mirrorlake.lag.sql_texts import (
    KNOWN_WAITED,
    LAG,
    LATENCY,
    LOSS,
    RECORDS_BY_PARTITION,
    RPO,
    WAITED_COUNTED,
    WAITED_SINCE,
    WITHHELD_BY_BACKLOG,
)
from mirrorlake.lag.waiting import add_waiting
from mirrorlake.lake import Lake, LakeQuery, RelayPart, micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAG_COLUMNS = {
    "observed_at": ("timestamp", "Sampling moment"),
    "flow": ("string", "Flow"),
    "source": ("string", "Alias of the flow's source cluster"),
    "topic": ("string", "Source topic"),
    "generation": ("int", "Life of the topic"),
    "partition": ("int", "Source partition"),
    "hop": ("string", "landed | republished | consumed"),
    "group_id": ("string", "Consumer group of the hop consumed, null for the others"),
    "position": ("bigint", "Next upstream offset that has not passed the hop"),
    "end_position": ("bigint", "Last stable offset of the source; null where it did not answer"),
    "offset_lag": (
        "bigint",
        "Offsets between both, markers of transactions among them; null where the end is not known",
    ),
    "waiting_since": (
        "timestamp",
        "Timestamp of the oldest record that had not passed the hop; null when none waited, or when it is not known",
    ),
    "time_lag_ms": ("bigint", "Age of that record then; 0 when none waited, null when it is not known yet"),
    "cluster": ("string", "Where the position is held: the source, or the flow's target"),
}
"""The columns of `lag`, with type and meaning."""

LATENCY_COLUMNS = {
    "bucket": ("timestamp", "Beginning of the time bucket, by the time of the target transaction"),
    "flow": ("string", "Flow"),
    "topic": ("string", "Source topic"),
    "records": ("bigint", "Records that reached the target"),
    "p50_ms": ("double", "Half of them were on the target within this time after their own timestamp"),
    "p95_ms": ("double", "95 % of them"),
    "p99_ms": ("double", "99 % of them"),
    "max_ms": ("bigint", "All of them"),
}
"""The columns of `latency`; each figure is exact, from every record of the bucket."""

KeepRanges = Callable[[str, Callable[[], RangesByRoute]], RangesByRoute]
"""Return the dense ranges of the routes that a text names, from a cache or read by the function."""

LATER_COLUMNS = ("source", "topic", "generation", "partition", "position")
NO_LATER = f"(SELECT {', '.join(LATER_COLUMNS)} FROM {{positions}} WHERE false)"  # noqa: S608  names of columns

RPO_COLUMNS = {
    "observed_at": ("timestamp", "Sampling moment"),
    "flow": ("string", "Flow"),
    "records": ("bigint", "Records that were on the source and not on the target, filtered ones left out"),
    "data_ms": ("bigint", "Age of the oldest of them then; 0 when there was none, null when it is not known yet"),
    "is_exact": ("boolean", "False while some of them are not landed: each of their offsets counts as a record then"),
}
"""The columns of `rpo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagQuery:
    """A query with its tables and values; it may be part of another query."""

    lake: Lake
    text: str
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    relays: Mapping[str, tuple[str, RelayPart | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, text: str = "SELECT * FROM {answer}", **values: Any) -> list[Any]:
        """Ask, without Spark where the lake is a folder (`Lake.ask`); `{answer}` stands for this question."""
        asked = text.replace("{answer}", f"({self.text})")
        return self.lake.query_rows(asked, tables=self.tables, relays=self.relays, **self.values, **values)

    def table(self) -> pa.Table:
        return self.lake.query_table(self._question)

    def pandas(self) -> Any:
        return self.table().to_pandas()

    def where(self, condition: str, **values: Any) -> LagQuery:
        text = f"SELECT * FROM ({self.text}) WHERE {condition}"  # noqa: S608  values are named in it
        return replace(self, text=text, values={**self.values, **values})

    def frame(self) -> DataFrame:
        return self.lake.query_frame(self._question)

    @property
    def _question(self) -> LakeQuery:
        return LakeQuery(self.text, self.relays, self.tables, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTables:
    """The tables that lag is computed from, each as what stands for it in the text of a question.

    `positions`, `samples`, `offset_map` and `withheld` are the side tables; `relays` holds the rows of all relays with a column
    `source`, the alias; `flows` is a table of `flow`, `source` and `target`; `later` says how far landing has read since the last
    of `positions`, in the columns of `LATER_COLUMNS`. Each may be cut to what a question needs: positions
    and samples from a complete look on, relays to the offsets between positions and ends. Samples before `since` give
    positions, and are not shown. What the texts name is in the lake, in `tables`, `parts` or `values`.
    """

    lake: Lake
    positions: str = "{positions}"
    samples: str = "{samples}"
    offset_map: str = "{offset_map}"
    withheld: str = "{withheld}"
    relays: str
    flows: str = "{flows}"
    later: str = NO_LATER
    hops: str = HOPS
    bounds: str = ""
    since: datetime | None = None
    tables: Mapping[str, pa.Table]
    parts: Mapping[str, tuple[str, RelayPart | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def lag(tables: LagTables) -> LagQuery:
    """Query the lag of each hop at every sample, in the columns `LAG_COLUMNS`.

    A sample that a cluster did not answer has no rows that only this cluster knows. Unchanged positions have rows, positions
    without a sample have none. A group's position on a target is that of its oldest unread record on the source (law A), with
    a row for each source partition that feeds the target partition.
    """
    return _build_waiting_query(LAG, WAITED_SINCE, tables)


def latency(tables: LagTables, *, bucket_s: int = 60) -> LagQuery:
    """Query percentiles of the time from a record's timestamp to its target transaction, in `LATENCY_COLUMNS`."""
    return _build_query(with_bucket(LATENCY, bucket_s), tables)


def with_bucket(text: str, bucket_s: int) -> str:
    return text.replace("{bucket_us}", str(bucket_s * 1_000_000))


def waiting_bounds(tables: LagTables) -> LagQuery:
    """Query the offset range in which records waited: `scope`, `source`, `topic`, `generation`, `partition`, `lowest`, `highest`.

    `lag` and `rpo` need no other records of the relays; `highest` is exclusive. They compute the ranges themselves if
    `tables.bounds` is empty; computed before, the ranges also limit the relays.
    """
    return _build_query(f"WITH {{hops}} SELECT * FROM {WAITED}", tables)  # noqa: S608  no value enters the text


def materialize_hops(tables: LagTables, *, keep: KeepRanges | None = None) -> LagTables:
    """Compute the position of every hop at every sample once, for all queries on the same tables, which are limited to a time.

    `keep` caches the dense ranges of all routes for the next call; no time limits them.
    """

    def read_ranges() -> RangesByRoute:
        targets = history.read_targets()
        limited = replace(
            tables, tables={**tables.tables, "read_targets": pa.Table.from_pylist(targets, schema=_TARGETS)}
        )
        read = partial(_read_routes, limited)
        return keep(repr(targets), read) if keep else read()

    sampled, samples, flows = (
        _build_query(text, tables).table() for text in (SAMPLED_POSITIONS, SAMPLE_TIMES, "SELECT * FROM {flows}")
    )
    history = PositionHistory(
        sampled, samples, flows, since=micros(tables.since) if tables.since else 0, read_ranges=read_ranges
    )
    made = {
        "made_hops": history.hops(),
        "made_flow_partitions": history.flow_partitions(),
        "made_readers": history.readers(),
        "made_reached": history.landed(),
    }
    return replace(tables, hops=KNOWN_HOPS, tables={**tables.tables, **made})


def _read_routes(tables: LagTables) -> RangesByRoute:
    return read_dense_ranges(_build_query(DENSE_RANGES_BY_ROUTE, tables).table())


def rpo(tables: LagTables) -> LagQuery:
    """Query the loss at each sample, had the source been lost then, in `RPO_COLUMNS`."""
    return _build_waiting_query(RPO, WAITED_COUNTED, tables)


def loss(tables: LagTables) -> LagQuery:
    """Query the terms of `rpo`: a row for each flow, partition and sample, with `position` and `end_position`."""
    return _build_waiting_query(LOSS, WAITED_COUNTED, tables)


def _build_waiting_query(text: str, waited: str, tables: LagTables) -> LagQuery:
    """Build a query about waiting records; if the hops are computed, NumPy finds the records by offset."""
    hops = tables.tables.get("made_hops")
    if hops is None:
        return _build_query(text.replace("{waited}", waited), tables)
    made = add_waiting(
        hops,
        tables.tables["made_flow_partitions"],
        records=_build_query(RECORDS_BY_PARTITION, tables).table(),
        withheld=_build_query(WITHHELD_BY_BACKLOG, tables).table(),
        counted=waited is WAITED_COUNTED,
    )
    known = replace(tables, hops=KNOWN_SIDES, tables={**tables.tables, "made_waited": made})
    return _build_query(text.replace("{waited}", KNOWN_WAITED), known)


def _build_query(text: str, tables: LagTables) -> LagQuery:
    text = text.replace("{hops}", tables.hops)
    text = text.replace("{bounds}", tables.bounds or WAITED)
    # As a value it leaves the text the same in each interval, so the text is translated for DuckDB once.
    text = text.replace("{since}", ":shown_since")
    values = {**tables.values, "shown_since": micros(tables.since) if tables.since else 0}
    for name in ("later", "positions", "samples", "offset_map", "withheld", "relays", "flows"):
        # Once each, because the replacement of a table may name the table.
        text = getattr(tables, name).join(text.split(f"{{{name}}}"))
    return LagQuery(lake=tables.lake, text=text, tables=tables.tables, relays=tables.parts, values=values)


_TARGETS = pa.schema([("source", pa.string()), ("topic", pa.string()), ("partition", pa.int32())])
