"""How the typed tables stand: lag to the relays, bad records, pauses and faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import Lake, LandedPositions, RelayPart, from_micros, landed_positions
from mirrorlake.model.control import ControlState, Pause
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.parked import Parked
from mirrorlake.render import JsonDisplayable, Sheet, Table, badge, format_count, format_duration, table
from mirrorlake.tables.definition import TypedTable, find_tables
from mirrorlake.tables.progress import TableProgress, read_progress

# Records wait for some batches of a table that is in pace.
_PATIENCE_MS, _BATCHES = 60_000, 12
# The oldest waiting record is nearly always among the first ones.
_NEAR = 1_000
_WAITING = """
    SELECT min(unix_micros(r.timestamp)) AS since, min(unix_micros(r.landed_at)) AS landed_at
    FROM {relay} AS r JOIN {waiting} AS w ON r.topic = w.topic AND r.generation = w.generation AND r.partition = w.partition
    WHERE r.`offset` >= w.position AND r.`offset` < w.next_offset
"""
_BAD = "SELECT table_name, count(*) AS bad FROM {bad_records} GROUP BY table_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A typed table; `location` is its path, or its name in the catalog.

    `offset_lag` are the offsets that are landed and not in the table yet, 0 where no record is among them; `time_lag_ms` is the age
    of the oldest record among these, 0 without one, and `waited_ms` the time since the first of these was landed. `rested_ms` is the
    time since its newest batch, None before the first. `exists` is whether it was created; its first record does that.
    """

    json_include: ClassVar[tuple[str, ...]] = ("state", "verdict")

    name: str
    location: str
    mode: str
    topics: Mapping[str, tuple[str, ...]]
    offset_lag: int
    bad_records: int
    exists: bool
    time_lag_ms: int = 0
    waited_ms: int = 0
    rested_ms: int | None = None
    patience_ms: int = _PATIENCE_MS
    pause: Pause | None = None
    parked: Parked | None = None
    fault: str = ""
    broken: str = ""

    @property
    def state(self) -> str:
        """The table's state: `ok`, `behind`, `paused`, `parked`, `fault`, `broken` (its log), or `new` before its first record."""
        if self.fault or self.broken:
            return "fault" if self.fault else "broken"
        if self.parked is not None:
            return "parked"
        if self.pause is not None:
            return "paused"
        if not self.exists:
            return "new"
        return "behind" if self.offset_lag else "ok"

    @property
    def verdict(self) -> str:
        """The verdict, in the words of flows.

        STOP and PAUSED of its stream; STALL where nothing moves though records wait, WARNING where they wait long.
        """
        if self.state in ("fault", "broken", "parked"):
            return "STOP"
        if self.state == "paused":
            return "PAUSED"
        if not self.offset_lag or self.waited_ms <= self.patience_ms:
            return "OK"
        return "WARNING" if self.rested_ms is not None and self.rested_ms <= self.patience_ms else "STALL"

    def why(self) -> str:
        if self.fault or self.broken:
            return self.fault or self.broken
        if self.parked is not None:
            return f"{self.parked.cause}; next: {self.parked.next_step}"
        if self.pause is not None:
            return f"by {self.pause.who}; {self.pause.resume_command}"
        if self.verdict == "STALL":
            since = "it has no row yet" if self.rested_ms is None else f"no batch for {format_duration(self.rested_ms)}"
            return f"{since}; next: mirrorlake run, or mirrorlake tables --run, keeps it"
        if self.verdict == "WARNING":
            return f"records wait for {format_duration(self.waited_ms)}, and batches come"
        return ""


@dataclass(frozen=True, slots=True, repr=False)
class Tables(JsonDisplayable):
    """The typed tables of a mirror, by name."""

    tables: tuple[TableStatus, ...]

    def sheet(self) -> Sheet:
        """Show a line a table."""
        parts = (tables_table("", self.tables),) if self.tables else ()
        return Sheet(title="tables", facts=(format_count(len(self.tables)),), parts=parts)


def tables_table(title: str, tables: Sequence[TableStatus]) -> Table:
    rows = [
        (
            one.name,
            one.state,
            badge(one.verdict),
            one.mode,
            ", ".join(f"{source} {topic}" for source, topics in one.topics.items() for topic in topics),
            one.offset_lag,
            timedelta(milliseconds=one.time_lag_ms),
            one.bad_records,
            one.why() or None,
        )
        for one in tables
    ]
    columns = ("table", "state", "verdict", "mode", "topics", "offset lag", "time lag", "bad records", "why")
    return table(title, columns, rows, least=("mode", "topics", "state"))


def read_tables(
    context: Context, *, landed: Mapping[str, LandedPositions] = MappingProxyType({}), state: ControlState | None = None
) -> Tables:
    """Read how the typed tables of the settings stand, without a cluster.

    `landed` are the positions that were read already, by source, and `state` that of the table `control`.
    """
    lake, found = context.lake, find_tables(context)
    if not found:
        return Tables(())
    bad = {row.table_name: int(row.bad) for row in lake.query_rows(_BAD, missing_ok=True)}
    sources = sorted({source for one in found for source in one.topics})
    reached = {source: (landed.get(source) or landed_positions(lake, source)).reached for source in sources}
    now, control = context.now(), context.control().state() if state is None else state

    def status(one: TypedTable) -> TableStatus:
        location, progress, broken = lake.typed_location(one.name), TableProgress(), ""
        exists = lake.exists(location)
        try:
            progress = read_progress(lake, location) if exists else progress
        except MirrorlakeError as error:
            broken = f"{error.cause}; next: {error.remedy}"
        offsets, since, landed_at = _wait(lake, one, reached, progress.positions)
        return TableStatus(
            name=one.name,
            location=location,
            mode=one.config.mode,
            topics=one.topics,
            offset_lag=offsets,
            bad_records=bad.get(one.name, 0),
            exists=exists,
            time_lag_ms=_age_ms(since, now) or 0,
            waited_ms=_age_ms(landed_at, now) or 0,
            rested_ms=_age_ms(progress.at, now),
            patience_ms=max(_PATIENCE_MS, _BATCHES * round(one.config.every.total_seconds() * 1000)),
            pause=control.of_table(one.name),
            parked=control.parked.get(one.stream),
            fault="" if one.fault is None else one.fault.cause,
            broken=broken,
        )

    return Tables(tuple(map(status, found)))


def _age_ms(time: datetime | None, now: datetime) -> int | None:
    return None if time is None else max(0, round((now - time).total_seconds() * 1000))


def _wait(
    lake: Lake,
    table: TypedTable,
    reached: Mapping[str, Mapping[SourcePartition, int]],
    known: Mapping[str, Mapping[SourcePartition, int]],
) -> tuple[int, datetime | None, datetime | None]:
    """Return how many offsets wait, and the timestamp and the landing time of the oldest record among them.

    Without a record the offsets are markers of transactions: then none waits. Reads no relay where nothing waits.
    """
    offsets, times = 0, list[tuple[datetime, datetime]]()
    for source, topics in table.topics.items():
        ends = {at: end for at, end in reached[source].items() if at.topic in topics}
        starts = {at: min(known.get(source, {}).get(at, 0), end) for at, end in ends.items()}
        starts = {at: start for at, start in starts.items() if start < ends[at]}
        offsets += sum(ends[at] - start for at, start in starts.items())
        near = {at: min(ends[at], start + _NEAR) for at, start in starts.items()}
        for bounds in (near, ends) if starts else ():
            rows = [{**asdict(at), "position": start, "next_offset": bounds[at]} for at, start in starts.items()]
            part = RelayPart(starts, ends={at: bounds[at] for at in starts}, others=False)
            waiting: dict[str, Any] = {"waiting": pa.Table.from_pylist(rows)}
            [found] = lake.query_rows(_WAITING, relay=source, part=part, tables=waiting)
            if found.since is not None:
                times.append((from_micros(found.since), from_micros(found.landed_at)))
                break
    if not times:
        return 0, None, None
    return offsets, min(since for since, _ in times), min(at for _, at in times)
