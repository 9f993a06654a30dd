"""Samples in the lake: read the last ones, write the next ones, delete old ones.

A sample is two appends: rows of `positions` for changed positions, then rows of `samples` for the sampled subjects. Rows of
`positions` without a row of `samples`, of a sampler killed between the two, count as not written (law F).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.rows import Row
from mirrorlake.lake.schema import POSITIONS, SAMPLES
from mirrorlake.lake.side_files import delete_rows
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.model.flow import SourcePartition

_KINDS = ("earliest", "last_stable", "reached", "republished", "group", "consumed")
"""The kinds of positions that a sampler writes."""

Subject = tuple[str, str]
"""Kind and name of a sampled subject, as in the table `samples`."""

# Rewriting a day's small files once a day leaves few files in the table; more often would only cost.
PRUNE_INTERVAL = timedelta(days=1)

# Rows between two complete samples, as a multiple of the positions. If all positions move, a query reads ten samples more than it
# asks for instead of six hours of them, for a tenth more rows. The second number is rows that a query reads at no cost.
_MAX_CHANGED_ROUNDS, _MAX_CHANGED_ROWS = 10, 10_000


class PositionKey(NamedTuple):
    """One position that is sampled over time; `flow` and `group_id` are None if it has none."""

    source: str
    flow: str | None
    topic: str
    generation: int
    partition: int
    kind: str
    group_id: str | None

    @property
    def source_partition(self) -> SourcePartition:
        return SourcePartition(self.topic, self.generation, self.partition)


class PositionState(NamedTuple):
    """Whether a record waits at a sampled position (None: not known), since when the oldest does, and the verdict."""

    waits: bool | None = None
    waiting_since: datetime | None = None
    verdict: str | None = None


NOT_FOUND = PositionState()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSample:
    """One sample of a subject: a `cluster`, the `relay` of a source, or the ledger of a `flow`.

    `error` is the reason for no answer; `positions` is empty then. `rows` are the positions to write: those that moved or have
    another finding, all of them if the sample is `complete`; None means that the position is gone. `changed` of them moved.
    """

    subject: str
    name: str
    positions: Mapping[PositionKey, int] = field(default_factory=dict, repr=False)
    findings: Mapping[PositionKey, PositionState] = field(default_factory=dict, repr=False)
    took_ms: int = 0
    error: str | None = None
    complete: bool = False
    rows: Mapping[PositionKey, int | None] = field(default_factory=dict, repr=False)
    changed: int = 0

    @property
    def key(self) -> Subject:
        return self.subject, self.name

    def standings(self) -> dict[PositionKey, tuple[int, PositionState]]:
        """Return each position with its finding."""
        return {key: (offset, self.findings.get(key, NOT_FOUND)) for key, offset in self.positions.items()}


@dataclass(slots=True)
class LastSamples:
    """The last answered sample of each subject, the time of its last complete sample, and the rows written since."""

    standings: dict[Subject, dict[PositionKey, tuple[int, PositionState]]] = field(default_factory=dict)
    completed_at: dict[Subject, datetime] = field(default_factory=dict)
    _written: int = 0
    _round_at: datetime | None = None

    def choose_rows(
        self, looks: Iterable[SubjectSample], at: datetime, *, complete_every: timedelta
    ) -> tuple[SubjectSample, ...]:
        """Return the samples with the rows to write: the changed positions, or all of them.

        All are written once in `complete_every`, and for all subjects together after many changed rows, because a query reads from
        the last complete samples before its time.
        """
        compared = [self._compared(look) for look in looks]
        written = self._written + sum(len(look.rows) for look in compared)
        seen = sum(len(look.positions) for look in compared)
        if written > max(_MAX_CHANGED_ROWS, _MAX_CHANGED_ROUNDS * seen):
            self._written, self._round_at = 0, at
        return tuple(
            replace(look, complete=True, rows=look.positions, changed=len(look.positions))
            if self._is_due(look, at, complete_every)
            else look
            for look in compared
        )

    def record(self, look: SubjectSample, at: datetime) -> None:
        if look.error is None:
            self.standings[look.key] = look.standings()
            if look.complete:
                self.completed_at[look.key] = at
            else:
                self._written += len(look.rows)

    def _compared(self, look: SubjectSample) -> SubjectSample:
        if look.error is not None:
            return look
        before, now = self.standings.get(look.key, {}), look.standings()
        rows: dict[PositionKey, int | None] = {
            key: standing[0] for key, standing in now.items() if before.get(key) != standing
        }
        rows |= dict.fromkeys(before.keys() - now.keys())
        moved = sum(key not in before or before[key][0] != position for key, position in rows.items())
        return replace(look, rows=rows, changed=moved)

    def _is_due(self, look: SubjectSample, at: datetime, complete_every: timedelta) -> bool:
        if look.error is not None:
            return False
        completed = self.completed_at.get(look.key)
        if completed is None or look.key not in self.standings or at - completed >= complete_every:
            return True
        # A subject that did not answer in that round is due at its next answer.
        return self._round_at is not None and completed < self._round_at


def load_last_samples(lake: Lake, scope: str, subjects: Collection[Subject] | None = None) -> LastSamples:
    """Read the last positions of subjects, by default of all, from the last complete sample of each on, of one scope.

    A subject that is sampled no more would make each start read the tables from its last sample on.
    """
    newest = lake.query(
        "SELECT subject, name, max(observed_at) AS completed_at FROM {samples} "
        "WHERE error IS NULL AND complete AND scope = :scope GROUP BY subject, name",
        scope=scope,
    )
    found = ((row.subject, row.name, row.completed_at) for row in newest)
    completed = {(subject, name): at for subject, name, at in found if subjects is None or (subject, name) in subjects}
    if not completed:
        return LastSamples()
    # One second earlier, because file statistics truncate times; the samples decide which rows count.
    since = min(completed.values()) - timedelta(seconds=1)
    rows = lake.query(_REMEMBERED, kinds=list(_KINDS), since=since, scope=scope)
    last = LastSamples(standings={subject: {} for subject in completed}, completed_at=completed)
    for row in rows:
        key = PositionKey(row.source, row.flow, row.topic, row.generation, row.partition, row.kind, row.group_id)
        if (row.subject, row.name) in completed:
            state = PositionState(row.waits, row.waiting_since, row.verdict)
            last.standings[row.subject, row.name][key] = int(row.position), state
    return last


SUBJECT_SQL = "CASE kind WHEN 'reached' THEN 'relay' WHEN 'republished' THEN 'flow' WHEN 'consumed' THEN 'flow' ELSE 'cluster' END"
"""The subject of a row of `positions`, which follows from its kind; its name is `NAME_SQL`."""
NAME_SQL = "CASE WHEN kind IN ('republished', 'consumed') THEN flow ELSE source END"
_REMEMBERED = f"""
    WITH looks AS (SELECT subject, name, observed_at, complete FROM {{samples}} WHERE error IS NULL AND scope = :scope),
    completed AS (SELECT subject, name, max(observed_at) AS completed_at FROM looks WHERE complete GROUP BY subject, name),
    kept AS (
        SELECT *, {SUBJECT_SQL} AS subject, {NAME_SQL} AS name FROM {{positions}}
        WHERE array_contains(:kinds, kind) AND observed_at >= :since
    ),
    newest AS (
        SELECT k.*, row_number() OVER (
                PARTITION BY k.subject, k.name, k.source, k.flow, k.topic, k.generation, k.partition, k.kind, k.group_id
                ORDER BY k.observed_at DESC
            ) AS rank
        FROM kept AS k
        JOIN looks AS l ON k.subject = l.subject AND k.name = l.name AND k.observed_at = l.observed_at
        JOIN completed AS c ON k.subject = c.subject AND k.name = c.name AND k.observed_at >= c.completed_at
    )
    SELECT * FROM newest WHERE rank = 1 AND position IS NOT NULL
"""  # noqa: S608  names of columns


def write_samples(lake: Lake, at: datetime, looks: Sequence[SubjectSample], *, scope: str) -> None:
    rows: list[Row] = []
    for look in looks:
        for key, position in look.rows.items():
            finding = look.findings.get(key, NOT_FOUND)._asdict()
            rows.append({**key._asdict(), **finding, "position": position, "observed_at": at})
    lake.append(POSITIONS, rows)
    names = ("subject", "name", "complete", "changed", "took_ms", "error")
    lake.append(
        SAMPLES,
        [
            {"observed_at": at, "scope": scope, "positions": len(look.positions)}
            | {name: getattr(look, name) for name in names}
            for look in looks
        ],
    )


def prune_samples(lake: Lake, *, before: datetime, now: datetime) -> bool:
    """Delete older rows, except the newest one of each position, at most once a day."""
    positions, samples = lake.meta_location(POSITIONS), lake.meta_location(SAMPLES)
    last = lake.properties(samples).get(_TIDIED)
    if last is None or now - datetime.fromisoformat(last) >= PRUNE_INTERVAL:
        lake.set_properties(samples, {_TIDIED: now.isoformat()})
    # A new lake has no old rows, and its first sample takes long enough.
    if last is None or now - datetime.fromisoformat(last) < PRUNE_INTERVAL:
        return False
    # A failover or the next start needs the newest position of a group or of landing, however old.
    columns, tables = ", ".join(PositionKey._fields), (lake.open_maintenance(positions), lake.open_maintenance(samples))
    if tables[0] is not None and tables[1] is not None:
        rows = lake.query(
            f"SELECT {columns}, max(observed_at) AS newest FROM {{positions}} "  # noqa: S608  names of columns
            f"WHERE observed_at < :before GROUP BY {columns}",
            before=before,
        )
        newest = {PositionKey(*(getattr(row, name) for name in PositionKey._fields)): row.newest for row in rows}

        def is_newest(row: Row) -> bool:
            at = row["observed_at"]
            return bool(newest.get(PositionKey(*(row[name] for name in PositionKey._fields)), at) == at)

        _delete_older(tables[0], before, is_newest)
        _delete_older(tables[1], before, lambda _: False)
    else:
        _prune_by_spark(lake, (positions, samples), before)
    return True


def _delete_older(table: TableMaintenance, before: datetime, keeps: Callable[[Row], bool]) -> None:
    def leaves(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.array([not (row["observed_at"] >= before or keeps(row)) for row in rows.to_pylist()], bool)

    def may_hold(file: Mapping[str, Any]) -> bool:
        # Statistics truncate times to milliseconds, so that a minimum is never later than the oldest row.
        oldest = file.get("min.observed_at")
        return oldest is None or bool(oldest < before)

    delete_rows(table, leaves, why="tidy", may_hold=may_hold)


def _prune_by_spark(lake: Lake, locations: Sequence[str], before: datetime) -> None:
    spark, limit = lake.spark, before.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    names = [lake.sql_name(location) for location in locations]
    same = " AND ".join(f"kept.{column} <=> old.{column}" for column in PositionKey._fields)
    spark.sql(
        f"MERGE INTO {names[0]} AS old USING ("  # noqa: S608  names of tables and columns, and a time
        f"SELECT {', '.join(PositionKey._fields)}, max(observed_at) AS newest FROM {names[0]} "
        f"WHERE observed_at < timestamp'{limit}' GROUP BY {', '.join(PositionKey._fields)}) AS kept "
        f"ON {same} AND old.observed_at < kept.newest WHEN MATCHED THEN DELETE"
    )
    spark.sql(f"DELETE FROM {names[1]} WHERE observed_at < timestamp'{limit}'")  # noqa: S608
    for name in names:
        spark.sql(f"OPTIMIZE {name}")


_TIDIED = "mirrorlake.tidied_at"
