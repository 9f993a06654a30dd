"""How typed tables stand: lag to the relays, bad records, pauses and faults; and the page of one, with its newest rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, ClassVar

from mirrorlake.config.schema import NameMatcher
from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import Lake, LandedPositions, RelayPart, TableColumn, landed_positions, micros
from mirrorlake.model.control import ControlState, Pause
from mirrorlake.model.parked import Parked
from mirrorlake.render import (
    MAX_NAME,
    JsonDisplayable,
    LinkedText,
    Sheet,
    Table,
    badge,
    brief,
    format_count,
    format_duration,
    format_size,
    format_time,
    link,
    middle,
    payload,
    plural,
    table,
)
from mirrorlake.tables.definition import TypedTable, find_table, find_tables, view_name
from mirrorlake.tables.progress import Positions, TableProgress, read_progress

MAX_SHOWN = 40
"""The columns of the newest rows that are read: a table may have a thousand."""
_MAX_CHARACTERS = 200
# Records wait for some batches of a table that is in pace.
_PATIENCE_MS, _BATCHES = 60_000, 12
# The oldest waiting record is nearly always among the first ones.
_NEAR = 1_000
_WAITING = """
    SELECT max(:now - unix_micros(r.timestamp)) AS age_us, max(:now - unix_micros(r.landed_at)) AS waited_us
    FROM {relay} AS r JOIN {waiting} AS w ON r.topic = w.topic AND r.generation = w.generation AND r.partition = w.partition
    WHERE r.`offset` >= w.position
"""
_BAD = "SELECT table_name, count(*) AS bad FROM {bad_records} GROUP BY table_name"
_REASONS = (
    "SELECT reason, count(*) AS records FROM {bad_records} WHERE table_name = :name"
    " GROUP BY reason ORDER BY records DESC, reason"
)


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
        return self._judged[0]

    @property
    def verdict(self) -> str:
        """The verdict, in the words of flows: STALL where nothing moves though records wait, WARNING where they wait long."""
        return self._judged[1]

    def why(self) -> str:
        return self._judged[2]

    @property
    def _judged(self) -> tuple[str, str, str]:
        if self.fault:
            return "fault", "STOP", self.fault
        if self.broken:
            return "broken", "STOP", self.broken
        if self.parked is not None:
            return "parked", "STOP", f"{self.parked.cause}; next: {self.parked.next_step}"
        if self.pause is not None:
            return "paused", "PAUSED", f"by {self.pause.who}; {self.pause.resume_command}"
        state = "new" if not self.exists else "behind" if self.offset_lag else "ok"
        if not self.offset_lag or self.waited_ms <= self.patience_ms:
            return state, "OK", ""
        if self.rested_ms is not None and self.rested_ms <= self.patience_ms:
            return state, "WARNING", f"records wait for {format_duration(self.waited_ms)}, and batches come"
        since = "it has no row yet" if self.rested_ms is None else f"no batch for {format_duration(self.rested_ms)}"
        return state, "STALL", f"{since}; next: mirrorlake run, or mirrorlake tables --run, keeps it"


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TablePage(JsonDisplayable):
    """A typed table: its newest rows by timestamp have its first columns, and `notes` say what is not shown.

    `rows` is None if the table's log does not tell; `bad_reasons` has the most frequent reason first.
    """

    status: TableStatus
    columns: tuple[TableColumn, ...] = ()
    rows: int | None = None
    size_bytes: int | None = None
    bad_reasons: Mapping[str, int] = field(default_factory=dict)
    newest: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    observed_at: datetime | None = None
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at",)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.status.name

    def sheet(self) -> Sheet:
        """Show the table with its columns and newest rows."""
        head, columns = self.head(), [(one.name, one.type, one.comment or None) for one in self.columns]
        parts = [table(plural(len(columns), "column"), ["column", "type", "comment"], columns)] if columns else []
        if self.newest:
            names = list(self.newest[0])
            rows = [[middle(value_text(row[name]), MAX_NAME) for name in names] for row in self.newest]
            parts.append(table("newest rows", names, rows, least=("_generation", "_partition", "_source", "_topic")))
        return replace(head, parts=(*head.parts, *parts))

    def head(self) -> Sheet:
        """Show the table without its columns and rows."""
        one = self.status
        places = [(source, topic) for source, topics in one.topics.items() for topic in topics]
        topics = [(source, LinkedText(topic, link("topic", source, topic))) for source, topic in places]
        facts = (
            one.state,
            one.mode,
            None if self.rows is None else plural(self.rows, "row"),
            None if self.size_bytes is None else format_size(self.size_bytes),
            f"offset lag {format_count(one.offset_lag)}",
            f"time lag {format_duration(one.time_lag_ms)}",
            self.observed_at,
        )
        parts: list[Any] = [one.why()] if one.why() else []
        parts += [f"at {one.location}", table("", ["source", "topic"], topics)]
        if self.bad_reasons:
            reasons = [*self.bad_reasons.items()]
            parts.append(table(plural(one.bad_records, "bad record"), ["reason", "records"], reasons))
        return Sheet(title=one.name, badge=badge(one.verdict), facts=facts, parts=(*parts, *self.notes))


def value_text(value: Any) -> str:
    r"""Return a value of a row as a short text: objects and lists as JSON, times in UTC."""
    if isinstance(value, bytes) or value is None:
        return payload(value, _MAX_CHARACTERS)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return format_time(value, zone=timezone.utc, precision="ms")
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
    return brief(text, _MAX_CHARACTERS)


def read_tables(
    context: Context,
    name: str | None = None,
    *,
    landed: Mapping[str, LandedPositions] = MappingProxyType({}),
    state: ControlState | None = None,
) -> Tables:
    """Read how the typed tables of the settings stand, or one of them, without a cluster.

    `landed` are the positions that were read already, by source, and `state` that of the table `control`.
    """
    lake, now = context.lake, context.now()
    found = find_tables(context) if name is None else [find_table(context, name, faulty_ok=True)]
    if not found:
        return Tables(())
    bad = {row.table_name: int(row.bad) for row in lake.query(_BAD, missing_ok=True)}
    sources = sorted({source for one in found for source in one.topics})
    reached = {source: (landed.get(source) or landed_positions(lake, source)).reached for source in sources}
    control = context.control().state() if state is None else state

    def status(one: TypedTable) -> TableStatus:
        location, progress, broken = lake.typed_location(one.name), TableProgress(), ""
        try:
            progress = read_progress(lake, one.name)
        except MirrorlakeError as error:
            broken = f"{error.cause}; next: {error.remedy}"
        offset_lag, time_lag_ms, waited_ms = _wait(lake, one, progress, reached, now)
        return TableStatus(
            name=one.name,
            location=location,
            mode=one.config.mode,
            topics=one.topics,
            offset_lag=offset_lag,
            bad_records=bad.get(one.name, 0),
            exists=lake.exists(location),
            time_lag_ms=time_lag_ms,
            waited_ms=waited_ms,
            rested_ms=None if progress.at is None else max(0, round((now - progress.at) / timedelta(milliseconds=1))),
            patience_ms=max(_PATIENCE_MS, _BATCHES * round(one.config.every.total_seconds() * 1000)),
            pause=control.of_table(one.name),
            parked=control.parked.get(one.stream),
            fault="" if one.fault is None else one.fault.cause,
            broken=broken,
        )

    return Tables(tuple(map(status, found)))


def _wait(
    lake: Lake, table: TypedTable, progress: TableProgress, reached: Positions, now: datetime
) -> tuple[int, int, int]:
    """Return how many offsets wait, the age of the oldest record among them, and the time since the first was landed, in ms.

    Without a record the offsets are markers of transactions: then none waits. Reads no relay where nothing waits.
    """
    offsets, ages, waits = 0, [0], [0]
    for source, topics in table.topics.items():
        known = progress.positions.get(source, {})
        ends = {at: end for at, end in reached[source].items() if at.topic in topics and known.get(at, 0) < end}
        starts = {at: known.get(at, 0) for at in ends}
        near = {at: min(end, starts[at] + _NEAR) for at, end in ends.items()}
        for bounds in (near, ends) if ends else ():
            part = RelayPart(starts, ends=bounds, others=False)
            waiting = {"waiting": part.known()}
            [found] = lake.query(_WAITING, relay=source, part=part, tables=waiting, now=micros(now))
            if found.age_us is not None:
                offsets += sum(end - starts[at] for at, end in ends.items())
                ages.append(found.age_us // 1000)
                waits.append(found.waited_us // 1000)
                break
    return offsets, max(ages), max(waits)


def read_page(context: Context, name: str, *, newest: int) -> TablePage:
    """Read one typed table of the settings and its newest rows, without Spark and without a cluster.

    Raises:
        UsageError: no entry of the settings makes it.
    """
    lake, [status] = context.lake, read_tables(context, name).tables
    reasons = lake.query(_REASONS, name=name, missing_ok=True) if status.bad_records else []
    page = TablePage(
        status=status, bad_reasons={row.reason: int(row.records) for row in reasons}, observed_at=context.now()
    )
    if status.broken or not status.exists:
        return page
    content = lake.content(status.location)
    if content is not None:
        rows, size = content.size()
        page = replace(page, columns=content.columns(), rows=rows, size_bytes=size)
    if content is None or not content.is_readable:
        query = f"SELECT * FROM {view_name(name)} ORDER BY _timestamp DESC LIMIT {newest}"  # noqa: S608 - a name
        return replace(page, notes=(f'only Spark reads its rows; next: mirror.sql("{query}").show()',))
    names = [one.name for one in page.columns[:MAX_SHOWN]]
    read = content.newest_rows(names, by=("_timestamp", "_offset"), count=newest).to_pylist() if newest else []
    leaves = {source: NameMatcher(context.config.never_leave(source)) for source in {row["_source"] for row in read}}
    shown = tuple(row for row in read if not leaves[row["_source"]].matches(row["_topic"]))
    notes = ["rows of topics that never leave their cluster are not shown"] if len(shown) < len(read) else []
    if len(names) < len(page.columns):
        notes.append(f"rows show the first {len(names)} of {format_count(len(page.columns))} columns")
    return replace(page, newest=shown, notes=tuple(notes))
