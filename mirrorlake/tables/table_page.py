"""The page of a typed table: its status, columns, size, bad records by reason, and newest rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar

from mirrorlake.config.schema import MirrorConfig, NameMatcher
from mirrorlake.context import Context
from mirrorlake.lake import TableColumn
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
from mirrorlake.tables.definition import unknown_table_error, view_name
from mirrorlake.tables.status import TableStatus, read_tables

MAX_SHOWN = 40
"""The columns of the newest rows that are read: a table may have a thousand."""
_MAX_CHARACTERS = 200
_NEWEST = ("_timestamp", "_offset")
_REASONS = (
    "SELECT reason, count(*) AS records FROM {bad_records} WHERE table_name = :name"
    " GROUP BY reason ORDER BY records DESC, reason"
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TablePage(JsonDisplayable):
    """A typed table.

    Attributes:
        rows: its rows; None if the table's log does not tell.
        bad_reasons: its records in the table `bad_records` by reason, the most frequent first.
        newest: its newest rows by timestamp, the newest first, of its first columns.
        notes: what is not shown, and why.
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
        head = self.head()
        columns = [(one.name, one.type, one.comment or None) for one in self.columns]
        parts = (
            *([table(plural(len(columns), "column"), ["column", "type", "comment"], columns)] if columns else []),
            *([self._newest_table()] if self.newest else []),
        )
        return Sheet(title=head.title, badge=head.badge, facts=head.facts, parts=(*head.parts, *parts))

    def head(self) -> Sheet:
        """Show the table without its columns and rows."""
        one = self.status
        reasons = [(reason, records) for reason, records in self.bad_reasons.items()]
        topics = [
            (source, LinkedText(topic, link("topic", source, topic)))
            for source, names in one.topics.items()
            for topic in names
        ]
        return Sheet(
            title=one.name,
            badge=badge(one.verdict),
            facts=(
                one.state,
                one.mode,
                None if self.rows is None else plural(self.rows, "row"),
                None if self.size_bytes is None else format_size(self.size_bytes),
                f"offset lag {format_count(one.offset_lag)}",
                f"time lag {format_duration(one.time_lag_ms)}",
                self.observed_at,
            ),
            parts=(
                *([one.why()] if one.why() else []),
                f"at {one.location}",
                table("", ["source", "topic"], topics),
                *([table(plural(one.bad_records, "bad record"), ["reason", "records"], reasons)] if reasons else []),
                *self.notes,
            ),
        )

    def _newest_table(self) -> Table:
        names = list(self.newest[0])
        rows = [[middle(value_text(row[name]), MAX_NAME) for name in names] for row in self.newest]
        return table("newest rows", names, rows, least=("_generation", "_partition", "_source", "_topic"))


def read_page(context: Context, name: str, *, newest: int) -> TablePage:
    """Read one typed table of the settings and its newest rows, without Spark and without a cluster.

    Raises:
        UsageError: no entry of the settings makes it.
    """
    lake = context.lake
    found = {one.name: one for one in read_tables(context).tables}
    if name not in found:
        raise unknown_table_error(name, found)
    status = found[name]
    reasons = lake.query_rows(_REASONS, name=name, missing_ok=True) if status.bad_records else []
    page: dict[str, Any] = {
        "status": status,
        "bad_reasons": {row.reason: int(row.records) for row in reasons},
        "observed_at": context.now(),
    }
    if not status.exists:
        return TablePage(**page, notes=("its first record makes it; until then it has no column",))
    content = lake.content(status.location)
    query = f"SELECT * FROM {view_name(name)} ORDER BY _timestamp DESC LIMIT {newest}"  # noqa: S608 - a name
    by_spark = f'are not shown, as only Spark reads them; next: mirror.sql("{query}").show()'
    if content is None:
        return TablePage(**page, notes=(f"columns and rows {by_spark}",))
    columns = content.columns()
    page["columns"], (page["rows"], page["size_bytes"]) = columns, content.size()
    if not content.is_readable:
        return TablePage(**page, notes=(f"rows {by_spark}",))
    names = [one.name for one in columns[:MAX_SHOWN]]
    read = content.newest_rows(names, by=_NEWEST, count=newest).to_pylist() if newest else []
    shown, notes = _visible(context.config, read)
    if len(names) < len(columns):
        notes.append(f"rows show the first {len(names)} of {format_count(len(columns))} columns")
    return TablePage(**page, newest=tuple(shown), notes=tuple(notes))


def _visible(config: MirrorConfig, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[str]]:
    topics = {(row["_source"], row["_topic"]) for row in rows}
    denied = {(source, topic) for source, topic in topics if NameMatcher(config.never_leave(source)).matches(topic)}
    shown = [row for row in rows if (row["_source"], row["_topic"]) not in denied]
    said = [
        f"rows of {topic} are not shown: the settings say that it never leaves {source}"
        for source, topic in sorted(denied)
    ]
    return shown, said


def value_text(value: Any) -> str:
    r"""Return a value of a row as a short text: objects and lists as JSON, times in UTC."""
    if isinstance(value, bytes) or value is None:
        return payload(value, _MAX_CHARACTERS)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return format_time(value, zone=timezone.utc, precision="ms")
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
    return brief(text, _MAX_CHARACTERS)
