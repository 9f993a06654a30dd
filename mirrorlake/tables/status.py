"""How the typed tables stand: columns, lag to the relays, bad records, pauses and faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import ClassVar

from mirrorlake.context import Context
from mirrorlake.lake import LandedPositions, landed_positions
from mirrorlake.model.control import ControlState, Pause
from mirrorlake.model.parked import Parked
from mirrorlake.render import JsonDisplayable, Sheet, Table, badge, format_count, format_duration, table
from mirrorlake.tables.definition import find_tables
from mirrorlake.tables.progress import TableProgress, read_progress
from mirrorlake.tables.waits import read_waits

# Records wait for some batches of a table that is in pace.
_PATIENCE_MS, _BATCHES = 60_000, 12
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

    @property
    def state(self) -> str:
        """The table's state: `ok`, `behind`, `paused`, `parked`, `fault`, or `new` before its first record."""
        if self.fault:
            return "fault"
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
        if self.state in ("fault", "parked"):
            return "STOP"
        if self.state == "paused":
            return "PAUSED"
        if not self.offset_lag or self.waited_ms <= self.patience_ms:
            return "OK"
        return "WARNING" if self.rested_ms is not None and self.rested_ms <= self.patience_ms else "STALL"

    def why(self) -> str:
        if self.fault:
            return self.fault
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
    existing = {one.name for one in found if lake.exists(lake.typed_location(one.name))}
    progress = {
        one.name: read_progress(lake, lake.typed_location(one.name)) if one.name in existing else TableProgress()
        for one in found
    }
    waits = read_waits(lake, found, reached, {name: done.positions for name, done in progress.items()})
    now, control = context.now(), context.control().state() if state is None else state
    return Tables(
        tuple(
            TableStatus(
                name=one.name,
                location=lake.typed_location(one.name),
                mode=one.config.mode,
                topics=one.topics,
                offset_lag=waits[one.name].offsets,
                bad_records=bad.get(one.name, 0),
                exists=one.name in existing,
                time_lag_ms=_age_ms(waits[one.name].since, now) or 0,
                waited_ms=_age_ms(waits[one.name].landed_at, now) or 0,
                rested_ms=_age_ms(progress[one.name].at, now),
                patience_ms=max(_PATIENCE_MS, _BATCHES * round(one.config.every.total_seconds() * 1000)),
                pause=control.of_table(one.name),
                parked=control.parked.get(one.stream),
                fault="" if one.fault is None else one.fault.cause,
            )
            for one in found
        )
    )


def _age_ms(time: datetime | None, now: datetime) -> int | None:
    return None if time is None else max(0, round((now - time).total_seconds() * 1000))
