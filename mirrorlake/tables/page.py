"""The page of a typed table: its status, columns, size, bad records by reason, and newest rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, ClassVar

from mirrorlake.config.schema import NameMatcher
from mirrorlake.context import Context
from mirrorlake.lake import TableColumn
from mirrorlake.render import (
    MAX_NAME,
    JsonDisplayable,
    LinkedText,
    Sheet,
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
        topics = [
            (source, LinkedText(topic, link("topic", source, topic)))
            for source, names in one.topics.items()
            for topic in names
        ]
        reasons = [table(plural(one.bad_records, "bad record"), ["reason", "records"], [*self.bad_reasons.items()])]
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
        parts += [*(reasons if self.bad_reasons else []), *self.notes]
        return Sheet(title=one.name, badge=badge(one.verdict), facts=facts, parts=tuple(parts))


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
    page = TablePage(
        status=status, bad_reasons={row.reason: int(row.records) for row in reasons}, observed_at=context.now()
    )
    if not status.exists:
        return replace(page, notes=("its first record makes it; until then it has no column",))
    if status.broken:
        return page
    content = lake.content(status.location)
    query = f"SELECT * FROM {view_name(name)} ORDER BY _timestamp DESC LIMIT {newest}"  # noqa: S608 - a name
    by_spark = f'are not shown, as only Spark reads them; next: mirror.sql("{query}").show()'
    if content is None:
        return replace(page, notes=(f"columns and rows {by_spark}",))
    columns, (rows, size) = content.columns(), content.size()
    page = replace(page, columns=columns, rows=rows, size_bytes=size)
    if not content.is_readable:
        return replace(page, notes=(f"rows {by_spark}",))
    names = [one.name for one in columns[:MAX_SHOWN]]
    read = content.newest_rows(names, by=_NEWEST, count=newest).to_pylist() if newest else []
    denied = {
        (row["_source"], row["_topic"])
        for row in read
        if NameMatcher(context.config.never_leave(row["_source"])).matches(row["_topic"])
    }
    notes = [
        f"rows of {topic} are not shown: the settings say that it never leaves {source}"
        for source, topic in sorted(denied)
    ]
    if len(names) < len(columns):
        notes.append(f"rows show the first {len(names)} of {format_count(len(columns))} columns")
    shown = tuple(row for row in read if (row["_source"], row["_topic"]) not in denied)
    return replace(page, newest=shown, notes=tuple(notes))


def value_text(value: Any) -> str:
    r"""Return a value of a row as a short text: objects and lists as JSON, times in UTC."""
    if isinstance(value, bytes) or value is None:
        return payload(value, _MAX_CHARACTERS)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return format_time(value, zone=timezone.utc, precision="ms")
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
    return brief(text, _MAX_CHARACTERS)
