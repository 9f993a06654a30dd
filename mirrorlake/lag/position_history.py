"""Compute each hop's position at every sample with NumPy (SQL twin: `HOPS`).

A month has millions of rows: a binary search finds each of them, where a query would join and sort all. Terms are those of
`lag/sql_hops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

NOTHING = np.iinfo(np.int64).min
"""Marks an unknown number."""
_UNBOUNDED = np.iinfo(np.int64).max
_TIME = pa.timestamp("us", "UTC")


class SourcePartitionKey(NamedTuple):
    """A source partition in one generation of its topic."""

    source: str
    topic: str
    generation: int
    partition: int


class PartitionRoute(NamedTuple):
    """A source partition and a target partition that it feeds; the fields are ordered as in `DENSE_RANGES_BY_ROUTE`."""

    flow: str
    source: str
    source_topic: str
    generation: int
    source_partition: int
    target: str
    target_topic: str
    target_partition: int

    @property
    def spot(self) -> SourcePartitionKey:
        """Where it begins."""
        return SourcePartitionKey(self.source, self.source_topic, self.generation, self.source_partition)

    @property
    def end(self) -> tuple[str, str, int]:
        """Where it ends."""
        return self.target, self.target_topic, self.target_partition


@dataclass(frozen=True, slots=True)
class DenseRanges:
    """The dense ranges of a route, ordered by downstream offset."""

    first: Ints
    downstream: Ints
    last: Ints

    def unread(self, positions: Ints) -> Ints:
        """Translate target positions to the upstream offset of the oldest unread record (law A); unbounded past all records."""
        if not len(self.last):
            return np.full(len(positions), _UNBOUNDED)
        at = np.searchsorted(self.last, positions)
        near = np.minimum(at, len(self.last) - 1)
        unread = self.first[near] + np.maximum(positions - self.downstream[near], 0)
        return np.where(at < len(self.last), unread, _UNBOUNDED)


RangesByRoute = dict[PartitionRoute, DenseRanges]
"""The dense ranges of all routes to partitions that groups read."""


class _PositionSpans(NamedTuple):
    """Positions of one subject, each with its first and last sample; `moments` numbers the samples among all."""

    position_number: Ints
    position: Ints
    first: Ints
    last: Ints
    moments: Ints

    def repeat_at_samples(self, rows: Ints, positions: Ints, width: int) -> tuple[Ints, Ints]:
        """Repeat each position for its samples, in the given rows of a grid."""
        count = self.last - self.first + 1
        look = np.arange(count.sum()) + np.repeat(self.first - (np.cumsum(count) - count), count)
        return np.repeat(rows * width, count) + self.moments[look], np.repeat(positions, count)

    def only(self, which: Any) -> _PositionSpans:
        return _PositionSpans(
            self.position_number[which], self.position[which], self.first[which], self.last[which], self.moments
        )


def numbers(values: pa.ChunkedArray | pa.Array) -> Ints:
    """Return numbers or times as integers, NOTHING for null."""
    found = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_timestamp(found.type):
        found = found.cast(_TIME)
    found = found.cast(pa.int64())
    return np.asarray(found.fill_null(NOTHING) if found.null_count else found)


def lists(values: pa.ChunkedArray) -> tuple[Ints, dict[str, Ints]]:
    """Return the length of each list, and the fields of the structs in all of them."""
    held = values.combine_chunks()
    flat = held.flatten()
    return np.diff(np.asarray(held.offsets)).astype(np.int64), {
        field.name: numbers(flat.field(field.name)) for field in flat.type
    }


def read_dense_ranges(rows: pa.Table) -> RangesByRoute:
    """Read the answer to `DENSE_RANGES_BY_ROUTE`."""
    counts, held = lists(rows["stretches"])
    found, end = {}, 0
    for route, count in zip(_rows(rows, PartitionRoute._fields), counts, strict=True):
        begin, end = end, end + count
        downstream, first, length = (held[name][begin:end] for name in ("downstream", "first", "length"))
        last = downstream + length - 1
        order = np.argsort(last, kind="stable")
        found[PartitionRoute(*route)] = DenseRanges(first[order], downstream[order], last[order])
    return found


def _rows(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


class PositionHistory:
    """Positions of each hop at each sample since a time.

    Args:
        listed: the rows of `LISTED`: positions and when they were sampled, by subject.
        looks: the rows of `SAMPLE_TIMES`.
        flows: `flow`, `source` and `target` of the flows.
        since: microseconds; earlier samples give positions but are not shown.
        read_ranges: reads the dense ranges of all routes; called if a group reads a target.
    """

    def __init__(
        self,
        listed: pa.Table,
        looks: pa.Table,
        flows: pa.Table,
        *,
        since: int,
        read_ranges: Callable[[], RangesByRoute],
    ) -> None:
        self._looks = looks
        # A subject that was never sampled has no position.
        looked_at = [subject in self._times for subject in _rows(listed, ("subject", "name"))]
        self._listed = listed = listed.filter(pa.array(looked_at, pa.bool_()))
        self._since = since
        self._targets = dict(_rows(flows, ("flow", "target")))
        self._read_ranges = read_ranges
        columns = ("kind", "flow", "group_id", *SourcePartitionKey._fields)
        self._places = [
            (kind, flow, group, SourcePartitionKey(*spot)) for kind, flow, group, *spot in _rows(listed, columns)
        ]
        self._flow_partitions = sorted(
            {(f, spot) for kind, f, _, spot in self._places if kind == "republished" and f in self._targets}
        )
        self._source_partitions = {
            spot: number for number, spot in enumerate(sorted({spot for _, spot in self._flow_partitions}))
        }
        groups = sorted({(group, spot.source) for kind, _, group, spot in self._places if kind == "group"})
        self._readers = {reader: number for number, reader in enumerate(groups, start=1)}

    # -- who ------------------------------------------------------------------------------------------------------

    def flow_partitions(self) -> pa.Table:
        """List the source partitions as flows carry them."""
        rows = [
            {
                "flow_partition": number,
                "spot": self._source_partitions[spot] + 1,
                "flow": flow,
                **spot._asdict(),
                "target": self._targets[flow],
            }
            for number, (flow, spot) in enumerate(self._flow_partitions, start=1)
        ]
        return pa.Table.from_pylist(rows, _FLOW_PARTITIONS)

    def readers(self) -> pa.Table:
        """List the groups of each cluster."""
        rows = [{"reader": n, "group_id": group, "cluster": cluster} for (group, cluster), n in self._readers.items()]
        return pa.Table.from_pylist(rows, _READERS)

    def landed(self) -> pa.Table:
        """List how far landing was seen."""
        furthest = self._listed["furthest"].to_pylist()
        rows = [
            {**spot._asdict(), "furthest": seen}
            for (kind, _, _, spot), seen in zip(self._places, furthest, strict=True)
            if kind == "reached"
        ]
        return pa.Table.from_pylist(rows, _LANDED)

    def read_targets(self) -> list[dict[str, Any]]:
        """List the partitions of targets where groups stand."""
        targets = set(self._targets.values())
        read = {(spot.source, spot.topic, spot.partition) for kind, _, _, spot in self._places if kind == "group"}
        return [
            {"source": cluster, "topic": topic, "partition": partition}
            for cluster, topic, partition in sorted(read)
            if cluster in targets
        ]

    # -- when and where -------------------------------------------------------------------------------------------

    @cached_property
    def _times(self) -> dict[tuple[str, str], tuple[Ints, npt.NDArray[np.bool_]]]:
        """The looks at each subject, oldest first, and which of them were complete."""
        found, end = {}, 0
        counts, held = lists(self._looks["looks"])
        for subject, count in zip(_rows(self._looks, ("subject", "name")), counts, strict=True):
            begin, end = end, end + count
            times, number = np.unique(held["seen_at"][begin:end], return_inverse=True)
            complete = np.bincount(number, weights=held["complete"][begin:end] > 0, minlength=len(times)) > 0
            found[subject] = times, complete
        return found

    @cached_property
    def _moments(self) -> Ints:
        shown = [times[np.searchsorted(times, self._since) :] for times, _ in self._times.values()]
        return np.unique(np.concatenate(shown)) if shown else np.empty(0, np.int64)

    def _position_spans(self) -> Iterator[_PositionSpans]:
        """Yield the positions of each subject with their first and last samples.

        A complete sample ends the positions that it lacks: a restarted sampler cannot know what went away before.
        """
        counts, seen = lists(self._listed["stood"])
        ends = np.cumsum(counts)
        place = np.repeat(np.arange(len(counts)), counts)
        subjects = list(_rows(self._listed, ("subject", "name")))
        begin = 0
        while begin < len(subjects):
            end = begin + 1
            while end < len(subjects) and subjects[end] == subjects[begin]:
                end += 1
            if subjects[begin] in self._times:
                part = slice(ends[begin] - counts[begin], ends[end - 1])
                yield self._spans_of_subject(
                    *self._times[subjects[begin]], place[part], seen["seen_at"][part], seen["position"][part]
                )
            begin = end

    def _spans_of_subject(
        self, times: Ints, complete: npt.NDArray[np.bool_], place: Ints, seen_at: Ints, position: Ints
    ) -> _PositionSpans:
        count = len(times)
        look = np.searchsorted(times, seen_at)
        known = times[np.minimum(look, count - 1)] == seen_at
        place, look, position = place[known], look[known], position[known]
        key = place * count + look
        if np.any(key[1:] < key[:-1]):
            order = np.argsort(key, kind="stable")
            place, look, position = place[order], look[order], position[order]
        completes = np.append(np.flatnonzero(complete), count)
        ended = completes[np.searchsorted(completes[:-1], look, side="right")]
        following = np.full(len(look), count)
        following[:-1] = np.where(place[1:] == place[:-1], look[1:], count)
        shown = np.searchsorted(times, self._since)
        first, last = np.maximum(look, shown), np.minimum(ended, following) - 1
        moments = np.searchsorted(self._moments, times)
        return _PositionSpans(place, position, first, last, moments).only((last >= first) & (position != NOTHING))

    # -- what -----------------------------------------------------------------------------------------------------

    def hops(self) -> pa.Table:
        """Return each hop's position at each sample, in the columns of `hops` in `lag/sql_hops.py`."""
        width, held = len(self._moments), list(self._position_spans())
        ends, landed = self._grids(
            held, ("last_stable", "reached"), self._source_row, len(self._source_partitions), width
        )
        (republished,) = self._grids(held, ("republished",), self._flow_row, len(self._flow_partitions), width)
        spot_of = np.array([self._source_partitions[spot] for _, spot in self._flow_partitions], np.int64)
        marks = _PositionGrid(ends, landed, republished, spot_of, width)
        parts = [marks.of(0), marks.of(1), *self._consumed(held, marks)]
        named = ("flow_partition", "hop", "reader", "backlog", "moment", "position", "end_position", "known_end")
        columns = {name: np.concatenate(values) for name, values in zip(named, zip(*parts, strict=True), strict=True)}
        times = pa.array(self._moments[columns.pop("moment")]).cast(_TIME)
        made = {"observed_at": times, **{name: pa.array(values) for name, values in columns.items()}}
        unknown = columns["end_position"] == NOTHING
        made["end_position"] = pa.array(columns["end_position"], mask=unknown)
        return pa.table(made)

    def _source_row(self, number: int) -> int:
        return self._source_partitions.get(self._places[number][3], -1)

    @cached_property
    def _flow_partition_numbers(self) -> dict[tuple[str, SourcePartitionKey], int]:
        return {flow_partition: number for number, flow_partition in enumerate(self._flow_partitions)}

    def _flow_row(self, number: int) -> int:
        _, flow, _, spot = self._places[number]
        return self._flow_partition_numbers.get((flow, spot), -1)

    def _grids(
        self, held: Sequence[_PositionSpans], kinds: Sequence[str], row_of: Callable[[int], int], rows: int, width: int
    ) -> list[Ints]:
        """Return a grid for each kind of position: a row for each partition, a column for each sample."""
        found = []
        for kind in kinds:
            grid = np.full(rows * width, NOTHING)
            row = np.array([row_of(n) if place[0] == kind else -1 for n, place in enumerate(self._places)], np.int64)
            for part in held:
                mine = part.only(row[part.position_number] >= 0)
                at, positions = mine.repeat_at_samples(row[mine.position_number], mine.position, width)
                grid[at] = positions
            found.append(grid)
        return found

    def _consumed(self, held: Sequence[_PositionSpans], marks: _PositionGrid) -> Iterator[tuple[Any, ...]]:
        """Yield the positions of groups on source and target; of several target partitions the smallest position counts."""
        by_spot: dict[SourcePartitionKey, list[int]] = {}
        for number, (_, spot) in enumerate(self._flow_partitions):
            by_spot.setdefault(spot, []).append(number)
        by_end: dict[tuple[str, str, int], list[tuple[int, DenseRanges]]] = {}
        for route, held_records in self._read_ranges().items() if self.read_targets() else ():
            known = self._flow_partition_numbers.get((route.flow, route.spot))
            if known is not None:
                by_end.setdefault(route.end, []).append((known, held_records))
        pairs: dict[tuple[int, int], int] = {}
        rows: list[tuple[int, int, DenseRanges | None]] = []
        for number, (kind, _, group, spot) in enumerate(self._places):
            if kind == "group":
                reader = self._readers[group, spot.source]
                routes = [
                    *((flow_partition, None) for flow_partition in by_spot.get(spot, ())),
                    *by_end.get((spot.source, spot.topic, spot.partition), ()),
                ]
                rows += [
                    (number, pairs.setdefault((flow_partition, reader), len(pairs)), route)
                    for flow_partition, route in routes
                ]
        if not pairs:
            return
        width = len(self._moments)
        positions = np.full(len(pairs) * width, _UNBOUNDED)
        there, translated = np.zeros(len(positions), bool), np.zeros(len(positions), bool)
        place_of = np.array([number for number, _, _ in rows], np.int64)
        for part in held:
            # The rows of a place stand together.
            starts = np.searchsorted(part.position_number, place_of)
            stops = np.searchsorted(part.position_number, place_of, side="right")
            for (_, pair, stretches), start, stop in zip(rows, starts, stops, strict=True):
                if start < stop:
                    mine = part.only(slice(start, stop))
                    passed = mine.position if stretches is None else stretches.unread(mine.position)
                    at, passed = mine.repeat_at_samples(np.full(stop - start, pair), passed, width)
                    positions[at] = np.minimum(positions[at], passed)
                    there[at] = True
                    translated[at] |= stretches is not None
        found = np.flatnonzero(there)
        pair_of, moment = np.divmod(found, width)
        of_flow_partition, of_reader = np.array(list(pairs), np.int64).T
        yield marks.read(of_flow_partition[pair_of], of_reader[pair_of], moment, positions[found], translated[found])


class _PositionGrid:
    """Grids of source ends, landed positions and republished positions."""

    def __init__(self, ends: Ints, landed: Ints, republished: Ints, spot_of: Ints, width: int) -> None:
        self._ends, self._landed, self._republished = ends, landed, republished
        self._spot_of, self._width = spot_of, width

    def of(self, hop: int) -> tuple[Any, ...]:
        """Return the columns of the hop `landed` (0) or `republished` (1)."""
        flow_partition, moment = np.divmod(np.arange(len(self._republished)), max(1, self._width))
        at = self._spot_of[flow_partition] * self._width + moment
        position = self._landed[at] if hop == 0 else self._republished
        backlog = -1 - self._spot_of[flow_partition] if hop == 0 else flow_partition + 1
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
            np.where(translated, flow_partition + 1, -1 - self._spot_of[flow_partition]),
            moment,
            position,
        )

    def _columns(
        self, flow_partition: Ints, hop: int, reader: Ints, backlog: Ints, moment: Ints, position: Ints
    ) -> tuple[Any, ...]:
        at = self._spot_of[flow_partition] * self._width + moment
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
        ("spot", pa.int32()),
        ("flow", pa.string()),
        *_SOURCE_PARTITION,
        ("target", pa.string()),
    ]
)
_READERS = pa.schema([("reader", pa.int32()), ("group_id", pa.string()), ("cluster", pa.string())])
_LANDED = pa.schema([*_SOURCE_PARTITION, ("furthest", pa.int64())])
