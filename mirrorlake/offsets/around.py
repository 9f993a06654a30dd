"""What stands around a reader's position on each target partition: the last record read, the first unread one.

The tables find the one or two runs that say so, and the model (`mirrorlake.model.offset_map`) reads them.

Law A (never ahead): what is unread stands at or past `first_unread`, on that target partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Run
from mirrorlake.offsets.known_map import KnownMaps

Asked = tuple[SourcePartition, int]
"""A source partition and the next offset that a reader reads there."""

_KEY = "source_topic, generation, source_partition, target_topic, target_partition"
_POINTS = pa.schema({"topic": pa.string(), "generation": pa.int32(), "partition": pa.int32(), "at": pa.int64()})


class Around(NamedTuple):
    """Downstream offsets of the last record read and of the first unread one; None where there is none."""

    last_read: int | None
    first_unread: int | None


@dataclass(slots=True)
class Standing:
    """What stands around one position, by target partition; `republished_from` is the first upstream offset of any of them."""

    republished_from: int | None = None
    places: dict[TopicPartition, Around] = field(default_factory=dict)


def around(maps: KnownMaps, flow: str, asked: Iterable[Asked]) -> Mapping[Asked, Standing]:
    """Find the records around positions of a flow's source partitions; a position of an unknown partition stands nowhere."""
    asked = sorted(set(asked))
    found = {one: Standing() for one in asked}
    for row in maps.ask(_AROUND, flow=flow, tables={"points": _points(asked)}):
        run, at, since = to_run(row), int(row.at), int(row.since)
        standing = found[run.source, at]
        known = standing.republished_from
        standing.republished_from = since if known is None else min(known, since)
        read = run.records_before(at)
        before = standing.places.get(run.target, Around(None, None))
        last = run.first_downstream + read - 1 if read else None
        unread = run.first_downstream + read if read < run.count else None
        # Of two runs the earlier one holds the last record read, and either the first unread one.
        standing.places[run.target] = Around(
            max((one for one in (before.last_read, last) if one is not None), default=None),
            min((one for one in (before.first_unread, unread) if one is not None), default=None),
        )
    return found


_AROUND = f"""
    WITH mine AS (
        SELECT * FROM {{runs}} AS r WHERE r.flow = :flow AND EXISTS (
            SELECT 1 FROM {{points}} AS p
            WHERE p.topic = r.source_topic AND p.generation = r.generation AND p.partition = r.source_partition)
    ),
    ways AS (SELECT {_KEY}, min(first_upstream) AS since FROM mine GROUP BY {_KEY}),
    line AS (
        SELECT {_KEY}, first_upstream AS at, 1 AS is_run, CAST(NULL AS BIGINT) AS since FROM mine
        UNION ALL
        SELECT w.source_topic, w.generation, w.source_partition, w.target_topic, w.target_partition, p.at, 0, w.since
        FROM {{points}} AS p JOIN ways AS w
            ON p.topic = w.source_topic AND p.generation = w.generation AND p.partition = w.source_partition
    ),
    laid AS (
        SELECT *,
            max(CASE WHEN is_run = 1 THEN at END) OVER (
                PARTITION BY {_KEY} ORDER BY at, is_run ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS before,
            lead(CASE WHEN is_run = 1 THEN at END) IGNORE NULLS OVER (PARTITION BY {_KEY} ORDER BY at, is_run) AS after
        FROM line
    ),
    marks AS (
        SELECT {_KEY}, at, since, before AS first_upstream FROM laid WHERE is_run = 0
        UNION ALL
        SELECT {_KEY}, at, since, after FROM laid WHERE is_run = 0
    )
    SELECT DISTINCT {_KEY}, k.at, k.since, first_upstream, m.last_upstream, m.first_downstream, m.record_count, m.holes
    FROM marks AS k JOIN mine AS m USING ({_KEY}, first_upstream)
"""  # noqa: S608  names of columns


class ReadPast(NamedTuple):
    """A position whose reader has read records at or after the `place` on the target where it goes on."""

    topic: str
    generation: int
    partition: int
    offset: int
    target_topic: str
    target_partition: int
    place: int


def read_again(maps: KnownMaps, flow: str, positions: Iterable[ReadPast]) -> dict[ReadPast, int]:
    """Count the records before each position that stand at or past its place on the target; positions without any are left out."""
    positions = sorted(positions)
    table = pa.Table.from_pylist([one._asdict() | {"number": n} for n, one in enumerate(positions)], _READ_PAST)
    found: dict[ReadPast, int] = {}
    for row in maps.ask(_READ_AGAIN, flow=flow, tables={"points": table}):
        one, run = positions[row.number], to_run(row)
        again = run.records_before(one.offset) - max(0, one.place - run.first_downstream)
        if again > 0:
            found[one] = found.get(one, 0) + again
    return found


_READ_PAST = pa.schema(
    {
        "number": pa.int64(),
        "topic": pa.string(),
        "generation": pa.int32(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "target_topic": pa.string(),
        "target_partition": pa.int32(),
        "place": pa.int64(),
    }
)
_READ_AGAIN = f"""
    SELECT DISTINCT p.number, {", ".join(f"r.{name.strip()}" for name in _KEY.split(","))},
        r.first_upstream, r.last_upstream, r.first_downstream, r.record_count, r.holes
    FROM {{runs}} AS r JOIN {{points}} AS p
        ON p.topic = r.source_topic AND p.generation = r.generation AND p.partition = r.source_partition
        AND p.target_topic = r.target_topic AND p.target_partition = r.target_partition
    WHERE r.flow = :flow AND r.first_upstream < p.`offset` AND r.first_downstream + r.record_count > p.place
"""  # noqa: S608  names of columns


def _points(asked: Iterable[Asked]) -> pa.Table:
    rows = [{"topic": s.topic, "generation": s.generation, "partition": s.partition, "at": at} for s, at in asked]
    return pa.Table.from_pylist(rows, _POINTS)


def to_run(row: Any) -> Run:
    """Read a row of `offset_map` as the model's run."""
    return Run(
        source=SourcePartition(row.source_topic, row.generation, row.source_partition),
        target=TopicPartition(row.target_topic, row.target_partition),
        first_upstream=row.first_upstream,
        last_upstream=row.last_upstream,
        first_downstream=row.first_downstream,
        count=row.record_count,
        holes=tuple((hole["first"], hole["length"]) for hole in row.holes),
    )
