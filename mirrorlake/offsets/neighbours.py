"""The neighbours of a reader's position on each target partition: the last read record, the first unread one.

The tables find the one or two mapped ranges around it, and the model (`mirrorlake.model.offset_map`) reads them.

Law A (never ahead): unread records are at or past `first_unread`, on that target partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.offsets.maps import OffsetMaps, to_mapped_range

ReadPosition = tuple[SourcePartition, int]
"""A source partition and the next offset that a reader reads from it."""


class NeighbourOffsets(NamedTuple):
    """Downstream offsets of the last read record and of the first unread one; None without such a record."""

    last_read: int | None
    first_unread: int | None


@dataclass(slots=True)
class PositionNeighbours:
    """The neighbours of one position, by target partition; `republished_from` is the first upstream offset of any range."""

    republished_from: int | None = None
    by_target: dict[TopicPartition, NeighbourOffsets] = field(default_factory=dict)


def find_neighbours(
    maps: OffsetMaps, flow: str, asked: Iterable[ReadPosition]
) -> Mapping[ReadPosition, PositionNeighbours]:
    """Return the records around positions of a flow's source partitions; a position of an unknown partition has none."""
    positions: dict[SourcePartition, list[int]] = {}
    for source, at in sorted(set(asked)):
        positions.setdefault(source, []).append(at)
    nearest, begins = _find_nearest(maps, flow, positions)
    neighbours = {
        (source, at): PositionNeighbours(begins.get(source)) for source, offsets in positions.items() for at in offsets
    }
    for run in _read_ranges(maps, flow, nearest):
        for at in nearest[run.source, run.target, run.first_upstream]:
            places = neighbours[run.source, at].by_target
            read = run.records_before(at)
            before = places.get(run.target, NeighbourOffsets(None, None))
            last = run.first_downstream + read - 1 if read else None
            unread = run.first_downstream + read if read < run.count else None
            # Of two ranges, the earlier one has the last read record, and either has the first unread one.
            places[run.target] = NeighbourOffsets(
                max((one for one in (before.last_read, last) if one is not None), default=None),
                min((one for one in (before.first_unread, unread) if one is not None), default=None),
            )
    return neighbours


_RangeStart = tuple[SourcePartition, TopicPartition, int]
"""A source partition, a target partition that it feeds, and the first upstream offset of a mapped range between them."""


def _find_nearest(
    maps: OffsetMaps, flow: str, positions: Mapping[SourcePartition, Sequence[int]]
) -> tuple[dict[_RangeStart, list[int]], dict[SourcePartition, int]]:
    """Find the last range before each position and the first one at or after it, of each target partition.

    Return them with the positions that they are nearest to, and the first upstream offset of each source partition.
    """
    sources, ranges = list(positions), list[dict[str, Any]]()
    for number, (source, offsets) in enumerate(positions.items()):
        # Between two positions only the first and the last range count.
        for low, high in pairwise((-_UNBOUNDED, *offsets, _UNBOUNDED)):
            ranges.append({"number": number, **asdict(source), "low": low, "high": high})
    spans: dict[tuple[SourcePartition, TopicPartition], list[tuple[int, int]]] = {}
    for row in _query_ranges(maps, _SPANS, flow, sources, {"ranges": pa.Table.from_pylist(ranges, _RANGES)}):
        route = sources[row.number], TopicPartition(row.target_topic, row.target_partition)
        spans.setdefault(route, []).append((int(row.first), int(row.last)))
    nearest, begins = dict[_RangeStart, list[int]](), dict[SourcePartition, int]()
    for (source, target), several in spans.items():
        firsts, lasts = zip(*sorted(several), strict=True)
        begins[source] = min(firsts[0], begins.get(source, firsts[0]))
        for at in positions[source]:
            following = bisect_left(firsts, at)
            for first in (*lasts[max(0, following - 1) : following], *firsts[following : following + 1]):
                nearest.setdefault((source, target, first), []).append(at)
    return nearest, begins


def _read_ranges(maps: OffsetMaps, flow: str, wanted: Collection[_RangeStart]) -> list[MappedRange]:
    if not wanted:
        return []
    rows = [
        {**asdict(source), "target_topic": target.topic, "target_partition": target.partition, "first_upstream": first}
        for source, target, first in wanted
    ]
    sources, firsts = {source for source, _, _ in wanted}, [first for _, _, first in wanted]
    tables = {"wanted": pa.Table.from_pylist(rows, _WANTED)}
    found = _query_ranges(maps, _RUNS, flow, sources, tables, least=min(firsts), most=max(firsts))
    return [to_mapped_range(row) for row in found]


def _query_ranges(
    maps: OffsetMaps, text: str, flow: str, sources: Collection[SourcePartition], tables: Any, **values: Any
) -> list[Any]:
    """Query ranges of source partitions; the bounds are plain values, so that Parquet row groups are skipped."""
    if not sources:
        return []
    topics, partitions = [source.topic for source in sources], [source.partition for source in sources]
    values |= {"topic": min(topics), "last_topic": max(topics)}
    values |= {"partition": min(partitions), "last_partition": max(partitions)}
    return maps.ask(text, flow=flow, tables=tables, **values)


_UNBOUNDED = 2**62
_RUN = """r.source_topic, r.generation, r.source_partition, r.target_topic, r.target_partition,
        r.first_upstream, r.last_upstream, r.first_downstream, r.record_count, r.holes"""
_SOURCE = {"topic": pa.string(), "generation": pa.int32(), "partition": pa.int32()}
_TARGET = {"target_topic": pa.string(), "target_partition": pa.int32()}
_RANGES = pa.schema({"number": pa.int32(), **_SOURCE, "low": pa.int64(), "high": pa.int64()})
_WANTED = pa.schema({**_SOURCE, **_TARGET, "first_upstream": pa.int64()})
_BOUNDED = """r.flow = :flow AND r.source_topic >= :topic AND r.source_topic <= :last_topic
        AND r.source_partition >= :partition AND r.source_partition <= :last_partition"""
# One pass over narrow columns: the contents of a range are read only for the nearest ones.
_SPANS = f"""
    SELECT p.number, r.target_topic, r.target_partition, min(r.first_upstream) AS first, max(r.first_upstream) AS last
    FROM {{runs}} AS r JOIN {{ranges}} AS p
        ON p.topic = r.source_topic AND p.generation = r.generation AND p.partition = r.source_partition
        AND r.first_upstream >= p.low AND r.first_upstream < p.high
    WHERE {_BOUNDED}
    GROUP BY p.number, p.low, r.target_topic, r.target_partition
"""  # noqa: S608  names of columns
_RUNS = f"""
    SELECT DISTINCT {_RUN}
    FROM {{runs}} AS r JOIN {{wanted}} AS p
        ON p.topic = r.source_topic AND p.generation = r.generation AND p.partition = r.source_partition
        AND p.target_topic = r.target_topic AND p.target_partition = r.target_partition
        AND p.first_upstream = r.first_upstream
    WHERE {_BOUNDED} AND r.first_upstream >= :least AND r.first_upstream <= :most
"""  # noqa: S608  names of columns


class ReadPast(NamedTuple):
    """A position whose reader has read records at or after `place`, the downstream offset at which it resumes."""

    topic: str
    generation: int
    partition: int
    offset: int
    target_topic: str
    target_partition: int
    place: int


def count_read_again(maps: OffsetMaps, flow: str, positions: Iterable[ReadPast]) -> dict[ReadPast, int]:
    """Count the records before each position at or past its downstream offset; positions without any are omitted."""
    positions = sorted(positions)
    table = pa.Table.from_pylist([one._asdict() | {"number": n} for n, one in enumerate(positions)], _READ_PAST)
    found: dict[ReadPast, int] = {}
    for row in maps.ask(_READ_AGAIN, flow=flow, tables={"points": table}):
        one, run = positions[row.number], to_mapped_range(row)
        again = run.records_before(one.offset) - max(0, one.place - run.first_downstream)
        if again > 0:
            found[one] = found.get(one, 0) + again
    return found


_READ_PAST = pa.schema({"number": pa.int32(), **_SOURCE, "offset": pa.int64(), **_TARGET, "place": pa.int64()})
_READ_AGAIN = f"""
    SELECT DISTINCT p.number, {_RUN}
    FROM {{runs}} AS r JOIN {{points}} AS p
        ON p.topic = r.source_topic AND p.generation = r.generation AND p.partition = r.source_partition
        AND p.target_topic = r.target_topic AND p.target_partition = r.target_partition
    WHERE r.flow = :flow AND r.first_upstream < p.`offset` AND r.first_downstream + r.record_count > p.place
"""  # noqa: S608  names of columns
