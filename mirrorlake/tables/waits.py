"""The records that wait for typed tables: how many offsets, since when, and when the first of them was landed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from mirrorlake.lake import Lake, RelayPart, from_micros
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.definition import TypedTable

# The oldest waiting record is nearly always among the first ones.
_NEAR = 1_000
_WAITING = """
    SELECT w.table_name, min(unix_micros(r.timestamp)) AS since, min(unix_micros(r.landed_at)) AS landed_at
    FROM {relay} AS r JOIN {waiting} AS w
        ON r.topic = w.topic AND r.generation = w.generation AND r.partition = w.partition
    WHERE r.`offset` >= w.position AND r.`offset` < w.next_offset
    GROUP BY w.table_name
"""

Positions = Mapping[str, Mapping[SourcePartition, int]]


@dataclass(frozen=True, slots=True)
class Wait:
    """What waits for a table; no time where no record is among the offsets, which are then markers of transactions."""

    offsets: int = 0
    since: datetime | None = None
    landed_at: datetime | None = None


class _Stretch(NamedTuple):
    table: str
    source: SourcePartition
    position: int
    end: int


def read_waits(
    lake: Lake, tables: Iterable[TypedTable], landed: Positions, positions: Mapping[str, Positions]
) -> dict[str, Wait]:
    """Return what waits for each table, between its positions and the landed ones; reads no relay where nothing does."""
    offsets, stretches = dict[str, int](), defaultdict[str, list[_Stretch]](list)
    for table in tables:
        offsets[table.name] = 0
        for source, topics in table.topics.items():
            for at, end in landed[source].items():
                position = positions[table.name].get(source, {}).get(at, 0)
                if at.topic in topics and position < end:
                    offsets[table.name] += end - position
                    stretches[source].append(_Stretch(table.name, at, position, end))
    found: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for source, several in stretches.items():
        near = _times(lake, source, [one._replace(end=min(one.end, one.position + _NEAR)) for one in several])
        far = _times(lake, source, [one for one in several if one.table not in near])
        for name, times in {**near, **far}.items():
            found[name].append(times)
    return {
        name: Wait(count, *(min(column) for column in zip(*found[name], strict=True))) if found[name] else Wait()
        for name, count in offsets.items()
    }


def _times(lake: Lake, source: str, stretches: list[_Stretch]) -> dict[str, tuple[datetime, datetime]]:
    """Return the timestamp and the landing time of each table's oldest record."""
    if not stretches:
        return {}
    starts, ends = dict[SourcePartition, int](), dict[SourcePartition, int]()
    for one in stretches:
        starts[one.source] = min(one.position, starts.get(one.source, one.position))
        ends[one.source] = max(one.end, ends.get(one.source, 0))
    rows = [
        {
            "table_name": one.table,
            "topic": one.source.topic,
            "generation": one.source.generation,
            "partition": one.source.partition,
            "position": one.position,
            "next_offset": one.end,
        }
        for one in stretches
    ]
    part = RelayPart(starts, ends=ends, others=False)
    answer = lake.query_rows(_WAITING, relay=source, part=part, tables={"waiting": pa.Table.from_pylist(rows)})
    return {row.table_name: (from_micros(row.since), from_micros(row.landed_at)) for row in answer}
