"""Compute each hop's position at every sample with NumPy (SQL twin: `HOPS`).

A month has millions of rows: a binary search finds each of them, where a query would join and sort all. Terms are those of
`lag/sql_hops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirrorlake.lag.columns import NOTHING, TIME, Ints, rows
from mirrorlake.lag.dense_ranges import UNBOUNDED, DenseRanges, RangesByRoute, SourcePartitionKey
from mirrorlake.lag.position_spans import PositionSpans, SampleTimes


class _Sampled(NamedTuple):
    kind: str
    flow: str
    group_id: str
    partition: SourcePartitionKey


class PositionHistory:
    """Positions of each hop at each sample since a time.

    Samples before `since` (microseconds) give positions but are not shown; `read_ranges` is called if a group reads a target.
    """

    def __init__(
        self,
        sampled: pa.Table,
        samples: pa.Table,
        flows: pa.Table,
        *,
        since: int,
        read_ranges: Callable[[], RangesByRoute],
    ) -> None:
        self._times = SampleTimes(samples, since=since)
        # A subject without a sample has no position.
        is_known = [subject in self._times for subject in rows(sampled, ("subject", "name"))]
        self._table = sampled.filter(pa.array(is_known, pa.bool_()))
        self._targets = dict(rows(flows, ("flow", "target")))
        self._read_ranges = read_ranges
        columns = ("kind", "flow", "group_id", *SourcePartitionKey._fields)
        self._sampled = [
            _Sampled(kind, flow, group, SourcePartitionKey(*key))
            for kind, flow, group, *key in rows(self._table, columns)
        ]
        self._flow_partitions = sorted(
            {(s.flow, s.partition) for s in self._sampled if s.kind == "republished" and s.flow in self._targets}
        )
        partitions = sorted({partition for _, partition in self._flow_partitions})
        self._source_partitions = {partition: number for number, partition in enumerate(partitions)}
        groups = sorted({(s.group_id, s.partition.source) for s in self._sampled if s.kind == "group"})
        self._readers = {reader: number for number, reader in enumerate(groups, start=1)}

    # -- who ------------------------------------------------------------------------------------------------------

    def flow_partitions(self) -> pa.Table:
        found = [
            {
                "flow_partition": number,
                "source_number": self._source_partitions[partition] + 1,
                "flow": flow,
                **partition._asdict(),
                "target": self._targets[flow],
            }
            for number, (flow, partition) in enumerate(self._flow_partitions, start=1)
        ]
        return pa.Table.from_pylist(found, _FLOW_PARTITIONS)

    def readers(self) -> pa.Table:
        found = [{"reader": n, "group_id": group, "cluster": cluster} for (group, cluster), n in self._readers.items()]
        return pa.Table.from_pylist(found, _READERS)

    def landed(self) -> pa.Table:
        furthest = self._table["furthest"].to_pylist()
        found = [
            {**sampled.partition._asdict(), "furthest": position}
            for sampled, position in zip(self._sampled, furthest, strict=True)
            if sampled.kind == "reached"
        ]
        return pa.Table.from_pylist(found, _LANDED)

    def read_targets(self) -> list[dict[str, Any]]:
        targets = set(self._targets.values())
        keys = [sampled.partition for sampled in self._sampled if sampled.kind == "group"]
        read = {(key.source, key.topic, key.partition) for key in keys if key.source in targets}
        return [{"source": source, "topic": topic, "partition": partition} for source, topic, partition in sorted(read)]

    # -- what -----------------------------------------------------------------------------------------------------

    def hops(self) -> pa.Table:
        """Return each hop's position at each sample, in the columns of `hops` in `lag/sql_hops.py`."""
        width, spans = len(self._times.moments), list(self._times.spans(self._table))
        ends, landed = (
            self._grid(
                spans, kind, lambda row: self._source_partitions.get(row.partition, -1), len(self._source_partitions)
            )
            for kind in ("last_stable", "reached")
        )
        republished = self._grid(spans, "republished", self._flow_row, len(self._flow_partitions))
        source_rows = np.array([self._source_partitions[partition] for _, partition in self._flow_partitions], np.int64)
        grid = _PositionGrid(ends, landed, republished, source_rows, width)
        parts = [grid.of(0), grid.of(1), *self._consumed(spans, grid)]
        names = ("flow_partition", "hop", "reader", "backlog", "moment", "position", "end_position", "known_end")
        columns = {name: np.concatenate(values) for name, values in zip(names, zip(*parts, strict=True), strict=True)}
        times = pa.array(self._times.moments[columns.pop("moment")]).cast(TIME)
        hops = {"observed_at": times, **{name: pa.array(values) for name, values in columns.items()}}
        is_unknown = columns["end_position"] == NOTHING
        hops["end_position"] = pa.array(columns["end_position"], mask=is_unknown)
        return pa.table(hops)

    @cached_property
    def _flow_partition_numbers(self) -> dict[tuple[str, SourcePartitionKey], int]:
        return {flow_partition: number for number, flow_partition in enumerate(self._flow_partitions)}

    def _flow_row(self, sampled: _Sampled) -> int:
        return self._flow_partition_numbers.get((sampled.flow, sampled.partition), -1)

    def _grid(self, spans: Sequence[PositionSpans], kind: str, row_of: Callable[[_Sampled], int], count: int) -> Ints:
        """Return a grid of the positions of one kind: `count` rows, one for each partition, and a column for each sample."""
        width = len(self._times.moments)
        grid = np.full(count * width, NOTHING)
        grid_rows = np.array([row_of(one) if one.kind == kind else -1 for one in self._sampled], np.int64)
        for part in spans:
            mine = part.only(grid_rows[part.row] >= 0)
            at, positions = mine.repeat_at_samples(grid_rows[mine.row], mine.position, width)
            grid[at] = positions
        return grid

    def _consumed(self, spans: Sequence[PositionSpans], grid: _PositionGrid) -> Iterator[tuple[Any, ...]]:
        """Yield the positions of groups on source and target; of several target partitions the smallest position counts."""
        pairs: dict[tuple[int, int], int] = {}
        readings = [
            (row, pairs.setdefault((flow_partition, reader), len(pairs)), ranges)
            for row, flow_partition, reader, ranges in self._readings()
        ]
        if not pairs:
            return
        width = len(self._times.moments)
        positions = np.full(len(pairs) * width, UNBOUNDED)
        is_known, is_translated = np.zeros(len(positions), bool), np.zeros(len(positions), bool)
        sampled_rows = np.array([row for row, _, _ in readings], np.int64)
        for part in spans:
            # The values of one sampled position follow one another.
            starts = np.searchsorted(part.row, sampled_rows)
            stops = np.searchsorted(part.row, sampled_rows, side="right")
            for (_, pair, ranges), start, stop in zip(readings, starts, stops, strict=True):
                if start < stop:
                    mine = part.only(slice(start, stop))
                    upstream = mine.position if ranges is None else ranges.unread(mine.position)
                    at, upstream = mine.repeat_at_samples(np.full(stop - start, pair), upstream, width)
                    positions[at] = np.minimum(positions[at], upstream)
                    is_known[at] = True
                    is_translated[at] |= ranges is not None
        known = np.flatnonzero(is_known)
        pair_of, moment = np.divmod(known, width)
        flow_partition, reader = np.array(list(pairs), np.int64).T
        yield grid.read(flow_partition[pair_of], reader[pair_of], moment, positions[known], is_translated[known])

    def _readings(self) -> Iterator[tuple[int, int, int, DenseRanges | None]]:
        """Yield row, flow partition, reader and ranges of each group's position; on the source it needs no ranges."""
        on_source: dict[SourcePartitionKey, list[int]] = {}
        for number, (_, partition) in enumerate(self._flow_partitions):
            on_source.setdefault(partition, []).append(number)
        on_target: dict[tuple[str, str, int], list[tuple[int, DenseRanges]]] = {}
        for route, ranges in self._read_ranges().items() if self.read_targets() else ():
            number = self._flow_partition_numbers.get((route.flow, route.start), -1)
            if number >= 0:
                on_target.setdefault(route.end, []).append((number, ranges))
        for row, (kind, _, group, key) in enumerate(self._sampled):
            if kind == "group":
                reader = self._readers[group, key.source]
                for number in on_source.get(key, ()):
                    yield row, number, reader, None
                for number, ranges in on_target.get((key.source, key.topic, key.partition), ()):
                    yield row, number, reader, ranges


class _PositionGrid:
    def __init__(self, ends: Ints, landed: Ints, republished: Ints, source_rows: Ints, width: int) -> None:
        self._ends, self._landed, self._republished = ends, landed, republished
        self._source_rows, self._width = source_rows, width

    def of(self, hop: int) -> tuple[Any, ...]:
        flow_partition, moment = np.divmod(np.arange(len(self._republished)), max(1, self._width))
        at = self._source_rows[flow_partition] * self._width + moment
        position = self._landed[at] if hop == 0 else self._republished
        backlog = -1 - self._source_rows[flow_partition] if hop == 0 else flow_partition + 1
        return self._columns(flow_partition, hop, np.zeros(len(flow_partition), np.int64), backlog, moment, position)

    def read(
        self, flow_partition: Ints, reader: Ints, moment: Ints, position: Ints, translated: Any
    ) -> tuple[Any, ...]:
        """Return the columns of the hop `consumed`; on a target it is no further than what was republished."""
        republished = self._republished[flow_partition * self._width + moment]
        position = np.where(translated, np.minimum(position, republished), position)
        return self._columns(
            flow_partition,
            2,
            reader,
            np.where(translated, flow_partition + 1, -1 - self._source_rows[flow_partition]),
            moment,
            position,
        )

    def _columns(
        self, flow_partition: Ints, hop: int, reader: Ints, backlog: Ints, moment: Ints, position: Ints
    ) -> tuple[Any, ...]:
        at = self._source_rows[flow_partition] * self._width + moment
        end, landed = self._ends[at], self._landed[at]
        known_end = np.where(end == NOTHING, landed, end)
        known = (position != NOTHING) & (landed != NOTHING)
        narrow = np.int32
        columns = (
            (flow_partition + 1).astype(narrow),
            np.full(len(flow_partition), hop, narrow),
            reader.astype(narrow),
            backlog.astype(narrow),
        )
        return tuple(column[known] for column in (*columns, moment, position, end, known_end))


_SOURCE_PARTITION = [
    ("source", pa.string()),
    ("topic", pa.string()),
    ("generation", pa.int32()),
    ("partition", pa.int32()),
]
_FLOW_PARTITIONS = pa.schema(
    [
        ("flow_partition", pa.int32()),
        ("source_number", pa.int32()),
        ("flow", pa.string()),
        *_SOURCE_PARTITION,
        ("target", pa.string()),
    ]
)
_READERS = pa.schema([("reader", pa.int32()), ("group_id", pa.string()), ("cluster", pa.string())])
_LANDED = pa.schema([*_SOURCE_PARTITION, ("furthest", pa.int64())])
