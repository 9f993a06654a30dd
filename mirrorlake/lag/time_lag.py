"""Define the samples of a hop, its time lag, and how lags add up.

The time lag of a hop is the age of the oldest record that has not passed it, looked up by its offset and never interpolated.
Records that a rule withheld, aborted records and markers do not wait. What is not known is None, and makes a sum None: a lag
that leaves a part out looks better than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

import pyarrow as pa

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import RecordReader
from mirrorlake.lake import Lake, RelayPart
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.late_times import relay_us

TIME_LAG = """CASE WHEN position >= known_end THEN 0
    WHEN waiting_since IS NOT NULL THEN greatest(unix_millis(observed_at) - unix_millis(waiting_since), 0)
    WHEN landed >= known_end THEN 0 END"""
"""The law in SQL: `waiting_since` is the timestamp of the oldest landed record between `position` and `known_end` that waits."""

Readers = Callable[[str], AbstractContextManager[RecordReader]]
"""Open a reader of a source's records."""

# Partitions whose next record is read from the source; the time lag of further ones stays unknown.
_MAX_READ = 200
# The oldest waiting record is searched first within this many offsets.
_NEAR = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """Position and lag of one hop of one source partition at one time.

    `position` is the next offset to pass the hop, `waiting_since` the timestamp of the oldest record that has not passed and
    `time_lag_ms` its age, 0 when none waits. None where it is not known.
    """

    observed_at: datetime
    position: int
    end_position: int | None = None
    offset_lag: int | None = None
    waiting_since: datetime | None = None
    time_lag_ms: int | None = None

    @property
    def waiting(self) -> int | None:
        """Records that wait, at most: 0 where the offsets up to the end hold none, None where the end is not known."""
        return 0 if self.time_lag_ms == 0 and self.waiting_since is None else self.offset_lag


class HasLag(Protocol):
    @property
    def offset_lag(self) -> int | None: ...

    @property
    def time_lag_ms(self) -> int | None: ...


class Total(NamedTuple):
    """The lag of several partitions: the sum of offset lags, the largest time lag."""

    offset_lag: int | None
    time_lag_ms: int | None


def sum_lags(parts: Iterable[HasLag]) -> Total:
    """Return the summed offset lag and the largest time lag; totals may be summed again."""
    found = list(parts)
    return Total(
        combine_known(sum, (one.offset_lag for one in found)), combine_known(max, (one.time_lag_ms for one in found))
    )


def combine_known(add: Callable[[Collection[int]], int], values: Iterable[int | None]) -> int | None:
    """Combine values with `add`; None if one is not known, 0 of no values."""
    found = list(values)
    known = [value for value in found if value is not None]
    return None if len(known) < len(found) else add(known) if known else 0


class FlowPosition(NamedTuple):
    """The next offsets of a flow in a source partition, and the partition's end."""

    source: SourcePartition
    republished: int
    landed: int
    end: int


def read_time_lags(
    lake: Lake,
    alias: str,
    flow: str,
    rows: Collection[FlowPosition],
    *,
    landed: Mapping[SourcePartition, int],
    now: datetime,
) -> dict[SourcePartition, int | None]:
    """Return the time lags of a flow's positions in milliseconds, None where the oldest waiting record is not landed.

    `landed` is the next offset to land of every partition in the relay; files before it are not read.
    """
    found: dict[SourcePartition, int | None] = dict.fromkeys((row.source for row in rows), 0)
    asked = {row.source: row for row in rows if row.republished < row.end}
    found |= dict.fromkeys(asked)
    if not asked or not lake.exists(lake.relay_location(alias)):
        return found
    # The oldest waiting record is nearly always among the first ones, so a backlog of millions is not read for it. This query
    # counts nothing as landed: a range without a record then proves nothing.
    near = [row._replace(landed=-1, end=min(row.end, row.republished + _NEAR)) for row in asked.values()]
    ends = {row.source: row.end for row in near}
    part = RelayPart({row.source: row.republished for row in near}, ends=ends, others=False)
    found |= _query_time_lags(lake, alias, flow, near, part, now)
    far = [row for row in asked.values() if found[row.source] is None and row.republished < row.landed]
    if far:
        part = RelayPart({**landed, **{row.source: row.republished for row in far}})
        found |= _query_time_lags(lake, alias, flow, far, part, now)
    return found


def _query_time_lags(
    lake: Lake, alias: str, flow: str, rows: Collection[FlowPosition], part: RelayPart, now: datetime
) -> dict[SourcePartition, int | None]:
    columns = {
        "topic": pa.array([row.source.topic for row in rows], pa.string()),
        "generation": pa.array([row.source.generation for row in rows], pa.int32()),
        "partition": pa.array([row.source.partition for row in rows], pa.int32()),
        "position": pa.array([row.republished for row in rows], pa.int64()),
        "landed": pa.array([row.landed for row in rows], pa.int64()),
        "known_end": pa.array([row.end for row in rows], pa.int64()),
        "observed_at": pa.array([now] * len(rows), pa.timestamp("us", "UTC")),
    }
    tables = {"flow_positions": pa.table(columns)}
    # The bounds over all positions are what file statistics can answer.
    lowest, highest = min(row.republished for row in rows), max(row.end for row in rows)
    answer = lake.query_rows(_WAITING, relay=alias, part=part, tables=tables, flow=flow, lowest=lowest, highest=highest)
    return {SourcePartition(row.topic, row.generation, row.partition): row.time_lag_ms for row in answer}


_WAITING = f"""
    WITH withheld_stretches AS (
        SELECT topic, generation, partition, stretch.first AS first_offset, stretch.first + stretch.length AS next_offset
        FROM (
            SELECT w.topic, w.generation, w.partition, explode(w.ranges) AS stretch
            FROM {{withheld}} AS w JOIN {{flow_positions}} AS s
                ON w.topic = s.topic AND w.generation = s.generation AND w.partition = s.partition
            WHERE w.flow = :flow AND w.last_offset >= s.position
        )
    ),
    waiting AS (
        SELECT s.topic, s.generation, s.partition, min_by(r.timestamp, r.`offset`) AS waiting_since
        FROM {{relay}} AS r JOIN {{flow_positions}} AS s
            ON r.topic = s.topic AND r.generation = s.generation AND r.partition = s.partition
        WHERE r.`offset` >= :lowest AND r.`offset` < :highest
            AND r.`offset` >= s.position AND r.`offset` < s.known_end AND NOT EXISTS (
            SELECT 1 FROM withheld_stretches AS w
            WHERE w.topic = r.topic AND w.generation = r.generation AND w.partition = r.partition
                AND w.first_offset <= r.`offset` AND r.`offset` < w.next_offset)
        GROUP BY s.topic, s.generation, s.partition
    )
    SELECT topic, generation, partition, {TIME_LAG} AS time_lag_ms
    FROM (
        SELECT s.*, w.waiting_since FROM {{flow_positions}} AS s LEFT JOIN waiting AS w
            ON s.topic = w.topic AND s.generation = w.generation AND s.partition = w.partition
    )
"""  # noqa: S608  no value enters the text


def read_next_timestamps(
    readers: Readers, ends: Mapping[tuple[str, SourcePartition], int]
) -> dict[tuple[str, SourcePartition], int | None]:
    """Read the timestamps in milliseconds of the next records to land from the sources, by alias and partition.

    None where nothing but markers follows; a partition that was not read is left out.
    """
    found: dict[tuple[str, SourcePartition], int | None] = {}
    for alias in sorted({alias for alias, _ in ends}):
        try:
            with readers(alias) as reader:
                for source in sorted(source for owner, source in ends if owner == alias)[:_MAX_READ]:
                    record = next(reader.read(source.topic, source.partition, ends[alias, source]), None)
                    found[alias, source] = None if record is None else relay_us(record.timestamp_ms) // 1000
        except ClusterError:
            continue
    return found


def age_ms(since_ms: int | None, now: datetime) -> int:
    """Return the age of a record, 0 of none."""
    return 0 if since_ms is None else max(0, int(now.timestamp() * 1000) - since_ms)
