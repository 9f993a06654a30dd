"""How the typed tables stand: columns, lag to the relays, bad records, pauses and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mirrorlake.context import Context
from mirrorlake.lake import landed_positions
from mirrorlake.model.control import Pause
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.parked import Parked
from mirrorlake.render import Badge, JsonDisplayable, Sheet, badge, format_count, table
from mirrorlake.tables.definition import TypedTable, find_tables
from mirrorlake.tables.progress import read_progress

_BAD = "SELECT table_name, count(*) AS bad FROM {bad_records} GROUP BY table_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A typed table.

    Attributes:
        location: its path, or its name in the catalog.
        mode: append or upsert.
        topics: its landed topics by source.
        offset_lag: the offsets that are landed and not in the table yet.
        bad_records: its records in the table `bad_records`.
        exists: whether it was created; its first record does that.
    """

    json_include: ClassVar[tuple[str, ...]] = ("state",)

    name: str
    location: str
    mode: str
    topics: Mapping[str, tuple[str, ...]]
    offset_lag: int
    bad_records: int
    exists: bool
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

    def why(self) -> str:
        """Return the reason of a table that stands still."""
        if self.fault:
            return self.fault
        if self.parked is not None:
            return f"{self.parked.cause}; next: {self.parked.next_step}"
        if self.pause is not None:
            return f"by {self.pause.who}; {self.pause.resume_command}"
        return ""


@dataclass(frozen=True, slots=True, repr=False)
class Tables(JsonDisplayable):
    """The typed tables of a mirror, by name."""

    tables: tuple[TableStatus, ...]

    def sheet(self) -> Sheet:
        """Show a line a table."""
        rows = [
            (
                one.name,
                _badge(one),
                one.mode,
                ", ".join(f"{source} {topic}" for source, topics in one.topics.items() for topic in topics),
                format_count(one.offset_lag),
                format_count(one.bad_records),
                one.why() or None,
            )
            for one in self.tables
        ]
        columns = ("table", "state", "mode", "topics", "lag", "bad records", "why")
        parts = (table("", columns, rows, least=("mode", "topics")),) if rows else ()
        return Sheet(title="tables", facts=(format_count(len(self.tables)),), parts=parts)


def _badge(one: TableStatus) -> Badge | str:
    return badge(one.state) if one.state in ("paused", "parked") else one.state


def read_tables(context: Context) -> Tables:
    """Read how the typed tables of the settings stand, without a cluster."""
    lake, found = context.lake, find_tables(context)
    if not found:
        return Tables(())
    bad = {row.table_name: int(row.bad) for row in lake.query_rows(_BAD, missing_ok=True)}
    sources = sorted({source for one in found for source in one.topics})
    landed = {source: landed_positions(lake, source).reached for source in sources}
    control = context.control().state()
    return Tables(
        tuple(
            TableStatus(
                name=one.name,
                location=lake.typed_location(one.name),
                mode=one.config.mode,
                topics=one.topics,
                offset_lag=_lag(one, landed, positions),
                bad_records=bad.get(one.name, 0),
                exists=exists,
                pause=control.of_table(one.name),
                parked=control.parked.get(one.stream),
                fault="" if one.fault is None else one.fault.cause,
            )
            for one in found
            for exists in [lake.exists(lake.typed_location(one.name))]
            for positions in [read_progress(lake, lake.typed_location(one.name)).positions if exists else {}]
        )
    )


def _lag(
    table: TypedTable,
    landed: Mapping[str, Mapping[SourcePartition, int]],
    positions: Mapping[str, Mapping[SourcePartition, int]],
) -> int:
    return sum(
        max(0, position - positions.get(source, {}).get(at, 0))
        for source, topics in table.topics.items()
        for at, position in landed[source].items()
        if at.topic in topics
    )
