"""The neighbours of a reader's position on each target partition: the last read record, the first unread one.

The tables find the one or two mapped ranges around it, and the model (`mirrorlake.model.offset_map`) reads them.

Law A (never ahead): unread records are at or past `first_unread`, on that target partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.ranges import UNBOUNDED
from mirrorlake.offsets.maps import OffsetMaps, to_mapped_range

ReadPosition = tuple[SourcePartition, int]
"""A source partition and the next offset that a reader reads from it."""


class NeighbourOffsets(NamedTuple):
    """Downstream offsets of the last read record and of the first unread one; None without such a record."""

    last_read: int | None = None
    first_unread: int | None = None


@dataclass(slots=True)
class PositionNeighbours:
    """The neighbours of one position, by target partition; `republished_from` is the first upstream offset of any range."""

    republished_from: int | None = None
    by_target: dict[TopicPartition, NeighbourOffsets] = field(default_factory=dict)


def find_neighbours(
    maps: OffsetMaps, flow: str, asked: Iterable[ReadPosition]
) -> dict[ReadPosition, PositionNeighbours]:
    """Return the records around positions of a flow's source partitions; a position of an unknown partition has none."""
    neighbours = {one: PositionNeighbours() for one in sorted(set(asked))}
    if not neighbours:
        return {}
    positions: dict[SourcePartition, list[int]] = {}
    for source, at in neighbours:
        positions.setdefault(source, []).append(at)
    sources = list(positions)
    intervals = [
        {"number": number, **asdict(source), "low": low, "high": high}
        for number, (source, offsets) in enumerate(positions.items())
        for low, high in pairwise((-UNBOUNDED, *offsets, UNBOUNDED))
    ]
    # The bounds are plain values, so that Parquet row groups are skipped.
    topics, partitions = [source.topic for source in sources], [source.partition for source in sources]
    bounds: dict[str, Any] = {"flow": flow, "topic": min(topics), "last_topic": max(topics)}
    bounds |= {"partition": min(partitions), "last_partition": max(partitions)}
    begins, wanted = dict[SourcePartition, int](), list[dict[str, Any]]()
    for row in maps.ask(_SPANS, tables={"intervals": pa.Table.from_pylist(intervals, _INTERVALS)}, **bounds):
        source = sources[row.number]
        begins[source] = min(row.first, begins.get(source, row.first))
        # Between two positions only the first and the last range count.
        for first, bound in ((row.first, row.low), (row.last, row.high)):
            if abs(bound) < UNBOUNDED:
                target = TopicPartition(row.target_topic, row.target_partition)
                wanted.append({**asdict(source), **_columns(target), "first_upstream": first})
    firsts = [one["first_upstream"] for one in wanted]
    bounds |= {"least": min(firsts, default=0), "most": max(firsts, default=0)}
    ranges: dict[SourcePartition, dict[TopicPartition, list[MappedRange]]] = {}
    tables = {"wanted": pa.Table.from_pylist(wanted, _WANTED)}
    rows = maps.ask(_RUNS, tables=tables, **bounds) if wanted else []
    for run in sorted(map(to_mapped_range, rows), key=lambda run: run.first_upstream):
        ranges.setdefault(run.source, {}).setdefault(run.target, []).append(run)
    for (source, at), found in neighbours.items():
        found.republished_from = begins.get(source)
        for target, runs in ranges.get(source, {}).items():
            found.by_target[target] = _between(runs, at)
    return neighbours


def _between(runs: list[MappedRange], at: int) -> NeighbourOffsets:
    """Return the records around an upstream offset by the last range that begins before it and the first after it."""
    following = bisect_left(runs, at, key=lambda run: run.first_upstream)
    unread = runs[following].first_downstream if following < len(runs) else None
    if following == 0:
        return NeighbourOffsets(None, unread)
    before = runs[following - 1]
    position = before.first_downstream + before.records_before(at)
    return NeighbourOffsets(position - 1, position if position <= before.last_downstream else unread)


_RUN = """r.source_topic, r.generation, r.source_partition, r.target_topic, r.target_partition,
        r.first_upstream, r.last_upstream, r.first_downstream, r.record_count, r.holes"""
SOURCE_COLUMNS = {"topic": pa.string(), "generation": pa.int32(), "partition": pa.int32()}
_TARGET = {"target_topic": pa.string(), "target_partition": pa.int32()}
_INTERVALS = pa.schema({"number": pa.int32(), **SOURCE_COLUMNS, "low": pa.int64(), "high": pa.int64()})
_WANTED = pa.schema({**SOURCE_COLUMNS, **_TARGET, "first_upstream": pa.int64()})
_OF_SOURCE = "p.topic = r.source_topic AND p.generation = r.generation AND p.partition = r.source_partition"
_TO_TARGET = "p.target_topic = r.target_topic AND p.target_partition = r.target_partition"
_BOUNDED = """r.flow = :flow AND r.source_topic >= :topic AND r.source_topic <= :last_topic
        AND r.source_partition >= :partition AND r.source_partition <= :last_partition"""
# One pass over narrow columns: the contents of a range are read only for the nearest ones.
_SPANS = f"""
    SELECT p.number, p.low, p.high, r.target_topic, r.target_partition,
        min(r.first_upstream) AS first, max(r.first_upstream) AS last
    FROM {{runs}} AS r JOIN {{intervals}} AS p
        ON {_OF_SOURCE} AND r.first_upstream >= p.low AND r.first_upstream < p.high
    WHERE {_BOUNDED}
    GROUP BY p.number, p.low, p.high, r.target_topic, r.target_partition
"""  # noqa: S608  names of columns
_RUNS = f"""
    SELECT DISTINCT {_RUN}
    FROM {{runs}} AS r JOIN {{wanted}} AS p ON {_OF_SOURCE} AND {_TO_TARGET} AND p.first_upstream = r.first_upstream
    WHERE {_BOUNDED} AND r.first_upstream >= :least AND r.first_upstream <= :most
"""  # noqa: S608  names of columns


Redriven = dict[ReadPosition, dict[TopicPartition, int]]
"""The first unread record that a redrive sent, by target partition: it may stand before any that the flow sent."""


def find_redriven(maps: OffsetMaps, flow: str, asked: Iterable[ReadPosition]) -> Redriven:
    positions, found = sorted(asked), Redriven()
    if flow not in maps.sources:
        return {}
    rows = [{"number": number, **asdict(source), "offset": at} for number, (source, at) in enumerate(positions)]
    for row in maps.ask(_REDRIVEN, flow=flow, tables={"points": pa.Table.from_pylist(rows, _READ_TO)}):
        one, run = positions[row.number], to_mapped_range(row)
        found.setdefault(one, {})[run.target] = run.first_downstream + run.records_before(one[1])
    return found


class ReadPast(NamedTuple):
    """A reader that has read up to `offset`, with records at or past `position`, where it resumes on a target partition."""

    source: SourcePartition
    offset: int
    target: TopicPartition
    position: int


def count_read_again(maps: OffsetMaps, flow: str, positions: Iterable[ReadPast]) -> dict[ReadPast, int]:
    """Count the records before each position at or past its downstream offset; positions without any are omitted."""
    positions = sorted(positions)
    rows = [
        {"number": number, **asdict(source), "offset": offset, **_columns(target), "position": position}
        for number, (source, offset, target, position) in enumerate(positions)
    ]
    counts: dict[ReadPast, int] = {}
    for row in maps.ask(_READ_AGAIN, flow=flow, tables={"points": pa.Table.from_pylist(rows, _READ_PAST)}):
        one, run = positions[row.number], to_mapped_range(row)
        again = run.records_before(one.offset) - max(0, one.position - run.first_downstream)
        if again > 0:
            counts[one] = counts.get(one, 0) + again
    return counts


def _columns(target: TopicPartition) -> dict[str, Any]:
    return {"target_topic": target.topic, "target_partition": target.partition}


_READ_TO = pa.schema({"number": pa.int32(), **SOURCE_COLUMNS, "offset": pa.int64()})
_READ_PAST = pa.schema([*_READ_TO, *pa.schema({**_TARGET, "position": pa.int64()})])
# Records of a quarantine are sent again in any order of their offsets.
_REDRIVEN = f"""
    SELECT * FROM (
        SELECT p.number, {_RUN}, row_number() OVER (
            PARTITION BY p.number, r.target_topic, r.target_partition ORDER BY r.first_downstream) AS nth
        FROM {{runs}} AS r JOIN {{points}} AS p ON {_OF_SOURCE} AND r.last_upstream >= p.`offset`
        WHERE r.flow = :flow)
    WHERE nth = 1
"""  # noqa: S608  names of columns
_READ_AGAIN = f"""
    SELECT DISTINCT p.number, {_RUN}
    FROM {{runs}} AS r JOIN {{points}} AS p ON {_OF_SOURCE} AND {_TO_TARGET}
    WHERE r.flow = :flow AND r.first_upstream < p.`offset` AND r.first_downstream + r.record_count > p.position
"""  # noqa: S608  names of columns
