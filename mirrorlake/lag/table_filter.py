"""Limit the tables of a lag query to the times and offsets that it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lag import sql as relay_lag
from mirrorlake.lag.columns import Ints, numbers
from mirrorlake.lag.dense_ranges import RangesByRoute, SourcePartitionKey
from mirrorlake.lag.last_read import LastRead
from mirrorlake.lag.sql import LATER_COLUMNS, LagTables
from mirrorlake.lake import OFFSET_MAP, POSITIONS, SAMPLES, Lake, RelayPart, TableSchema, micros
from mirrorlake.model.flow import SourcePartition

# File statistics cut times to milliseconds, and DuckDB compares them with a query's bounds through any function: a lower bound
# needs this margin, or a whole millisecond.
_MARGIN = timedelta(seconds=1)
# Offsets of one partition. Past this many, a query for the oldest waiting record reads that record alone: after a day's outage of
# a target it would read 400 million.
_MANY_OFFSETS = 50_000
_FLOWS = pa.schema({"flow": pa.string(), "source": pa.string(), "target": pa.string()})


class NothingSampled(UsageError):
    """No sample reaches so far back."""


class LagTableFilter:
    def __init__(self, lake: Lake, flows: Sequence[FlowConfig], *, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._flows = flows
        self._now = now
        # A month is queried in intervals; what they share is read once.
        self._complete, self._reached, self._ranges = (
            LastRead[list[Any]](),
            LastRead[list[Any]](),
            LastRead[RangesByRoute](),
        )

    def all_rows(self) -> LagTables:
        """Return the tables without limits; UsageError if nothing was landed yet."""
        lake = self._lake
        landed = [a for a in sorted({flow.source for flow in self._flows}) if lake.exists(lake.relay_location(a))]
        if not landed:
            raise UsageError("nothing was landed yet", remedy="mirrorlake run --once")
        flows = [{"flow": flow.name, "source": flow.source, "target": flow.target} for flow in self._flows]
        return self.limit_to_offsets(
            LagTables(lake=lake, relays="", tables={"flows": pa.Table.from_pylist(flows, _FLOWS)}), None, landed
        )

    def limit_to_time(self, start: datetime, end: datetime) -> LagTables:
        """Limit the tables to the time from the last complete samples before `start` to `end`."""
        if not self._lake.exists(self._lake.meta_location(SAMPLES)):
            raise UsageError("nothing was sampled yet", remedy="mirrorlake run: a running mirror samples")
        tables = self.all_rows()
        firsts: dict[tuple[str, str], datetime] = {}
        # A flow or cluster that left the settings was sampled long ago; it would make every query read from then on.
        asked = {("flow", flow.name) for flow in self._flows} | {("relay", flow.source) for flow in self._flows}
        asked |= {("cluster", alias) for flow in self._flows for alias in (flow.source, flow.target)}
        for row in self._complete_samples():
            subject = row.subject, row.name
            if row.observed_at <= start and subject in asked:
                firsts[subject] = max(row.observed_at, firsts.get(subject, row.observed_at))
        begin = min(firsts.values(), default=start)
        values = {
            **tables.values,
            "near": begin - _MARGIN,
            "end": micros(end),
            "end_at": end,
        }
        # A sample of a second before has ended when the complete one begins.
        since = "observed_at >= :near"
        samples = f"(SELECT * FROM {{samples}} WHERE {since} AND unix_micros(observed_at) <= :end)"  # noqa: S608  no value in it
        if not firsts and not self._lake.query_rows(f"SELECT 1 AS one FROM {samples} LIMIT 1", **values):  # noqa: S608  likewise
            raise NothingSampled(
                f"nothing was sampled up to {end.isoformat(timespec='seconds')}",
                remedy="ask for a later time",
            )
        known = f"(SELECT * FROM {{positions}} WHERE {since} AND observed_at <= :end_at)"  # noqa: S608  likewise
        tables = replace(tables, positions=known, samples=samples, since=start, values=values)
        return tables if end >= self._now() else self._with_later(tables, map(vars, self._read_landed_since(end)))

    def limit_to_waiting(self, tables: LagTables, *, oldest: bool = False) -> LagTables:
        """Limit the relays to records that waited, by file statistics; with `oldest` to the oldest ones."""
        later = tables.tables.get("later_positions")
        if all(self._lake.relay_log(flow.source) for flow in self._flows):
            # Spark would bring all samples of a month to the driver.
            is_whole = tables.offset_map == "{offset_map}"
            tables = relay_lag.materialize_hops(tables, keep=self._keep_ranges if is_whole else None)
        rows = relay_lag.waiting_bounds(tables).rows()
        if later is not None:
            known = {tuple(row.values()) for row in later.drop_columns("position").to_pylist()}
            gone = {row.topic for row in rows if (row.source, row.topic, row.generation, row.partition) not in known}
            if gone:
                # Generations that have ended since, and partitions that no complete sample names; their positions are known.
                found = [*later.to_pylist(), *map(vars, self._read_landed_since(tables.values["end_at"], gone))]
                tables = self._with_later(tables, found)
        bounds = pa.Table.from_pylist([vars(row) for row in rows], _BOUNDS)
        cut = self.limit_to_offsets(tables, rows, positions=self._backlog_positions(tables, rows) if oldest else {})
        return replace(cut, bounds="{bounds}", tables={**cut.tables, "bounds": bounds})

    def _backlog_positions(self, tables: LagTables, waited: Sequence[Any]) -> dict[SourcePartitionKey, Ints]:
        """Return the hop positions of partitions with a large backlog, except where a flow withheld records."""
        made = tables.tables.get("made_hops")
        much = {_partition_key(row) for row in waited if row.highest - row.lowest > _MANY_OFFSETS}
        if made is None or not much:
            return {}
        much -= {_partition_key(row) for row in self._lake.query_rows(_WITHHELD, tables=tables.tables, missing_ok=True)}
        flow_partition, position, known_end = (
            numbers(made[name]) for name in ("flow_partition", "position", "known_end")
        )
        waits = position < known_end
        found: dict[SourcePartitionKey, list[Ints]] = {}
        for row in tables.tables["made_flow_partitions"].to_pylist():
            partition = SourcePartitionKey(*(row[name] for name in SourcePartitionKey._fields))
            if partition in much:
                found.setdefault(partition, []).append(
                    np.unique(position[waits & (flow_partition == row["flow_partition"])])
                )
        return {partition: np.concatenate(several) for partition, several in found.items()}

    def limit_to_offsets(
        self,
        tables: LagTables,
        bounds: Sequence[Any] | None,
        aliases: Collection[str] = (),
        positions: Mapping[SourcePartitionKey, Ints] = MappingProxyType({}),
    ) -> LagTables:
        """Limit the relays to offsets within `bounds`, by file statistics; None reads all.

        Of a partition in `positions`, only the first record at or past each position is needed.
        """
        lows: dict[str, dict[SourcePartition, int]] = {alias: {} for alias in aliases}
        highs: dict[str, dict[SourcePartition, int]] = {alias: {} for alias in aliases}
        for row in bounds or ():
            place = SourcePartition(row.topic, row.generation, row.partition)
            low, high = lows.setdefault(row.source, {}), highs.setdefault(row.source, {})
            low[place] = min(row.lowest, low.get(place, row.lowest))
            high[place] = max(row.highest, high.get(place, row.highest))
        of: dict[str, dict[SourcePartition, Ints]] = {alias: {} for alias in lows}
        for partition, several in positions.items():
            of[partition.source][SourcePartition(*partition[1:])] = several
        parts: dict[str, tuple[str, RelayPart | None]] = {
            f"relay_{n}": (
                alias,
                None if bounds is None else RelayPart(lows[alias], ends=highs[alias], others=False, places=of[alias]),
            )
            for n, alias in enumerate(sorted(lows))
        }
        texts = [
            f"SELECT :{name} AS source, topic, generation, partition, `offset`, timestamp FROM {{{name}}}"  # noqa: S608  numbered names
            for name in parts
        ]
        values = {**tables.values, **{name: alias for name, (alias, _) in parts.items()}}
        if not texts:
            # Nothing waits, and no relay is read.
            none = pa.schema({**_RELAYS, "timestamp": pa.timestamp("us", "UTC")}).empty_table()
            return replace(tables, relays="{no_relay}", tables={**tables.tables, "no_relay": none})
        return replace(tables, relays=f"({' UNION ALL '.join(texts)})", parts=parts, values=values)

    def _complete_samples(self) -> list[Any]:
        return self._complete.of(self._version(SAMPLES), lambda: self._lake.query_rows(_COMPLETE))

    def _read_landed_since(self, end: datetime, topics: Collection[str] = ()) -> list[Any]:
        """Read how far landing has read since a time, so that the past is reported with today's knowledge.

        The newest complete sample has every position, so a month need not be read; for `topics` it is.
        """
        newest: dict[str, datetime] = {}
        for row in () if topics else self._complete_samples():
            if row.subject == "relay":
                newest[row.name] = max(row.observed_at, newest.get(row.name, row.observed_at))
        text, grouped = _LANDED_SINCE, "GROUP BY source, topic, generation, partition"
        later = max(end, min(newest.values(), default=end)) - _MARGIN
        if topics:
            text = f"{text} AND array_contains(:topics, topic) {grouped}"
            return self._lake.query_rows(text, later=later, topics=sorted(topics))
        # The result is the same for all times before the newest complete samples.
        key = self._version(POSITIONS), later
        return self._reached.of(key, lambda: self._lake.query_rows(f"{text} {grouped}", later=later))

    def _keep_ranges(self, targets: str, read: Callable[[], RangesByRoute]) -> RangesByRoute:
        return self._ranges.of((self._version(OFFSET_MAP), targets), read)

    def _version(self, table: TableSchema) -> int:
        place = self._lake.meta_location(table)
        return self._lake.version(place) if self._lake.exists(place) else -1

    def _with_later(self, tables: LagTables, rows: Iterable[Mapping[str, Any]]) -> LagTables:
        schema = pa.schema({**{name: _RELAYS[name] for name in LATER_COLUMNS[:-1]}, LATER_COLUMNS[-1]: pa.int64()})
        found = pa.Table.from_pylist(list(rows), schema)
        return replace(tables, later="{later_positions}", tables={**tables.tables, "later_positions": found})


def _partition_key(row: Any) -> SourcePartitionKey:
    return SourcePartitionKey(*(getattr(row, name) for name in SourcePartitionKey._fields))


_COMPLETE = """
    SELECT DISTINCT subject, name, observed_at FROM {samples} WHERE complete AND error IS NULL
"""
_LANDED_SINCE = """
    SELECT source, topic, generation, partition, max(position) AS position FROM {positions}
    WHERE kind = 'reached' AND observed_at >= :later
"""
_WITHHELD = """
    SELECT DISTINCT f.source, w.topic, w.generation, w.partition FROM {withheld} w JOIN {flows} f ON w.flow = f.flow
"""
_RELAYS = {
    "source": pa.string(),
    "topic": pa.string(),
    "generation": pa.int32(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
_BOUNDS = pa.schema(
    {
        "scope": pa.string(),
        **{name: kind for name, kind in _RELAYS.items() if name != "offset"},
        "lowest": pa.int64(),
        "highest": pa.int64(),
    }
)
