"""Render tables and sheets as text and as HTML.

The HTML has inline styles (a style sheet would affect the whole page, and untrusted notebooks drop it), JupyterLab's theme
colours if there are any, no script and no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, ClassVar

from mirrorlake.render.badge import Badge
from mirrorlake.render.content import breakable, brief, clean, escape, middle, payload, payload_html
from mirrorlake.render.encoder import by_fields
from mirrorlake.render.linked_text import LinkedText
from mirrorlake.render.numbers import NOTHING, format_count, format_duration, format_time, plural

# So that a notebook is readable; rows=None shows all.
MAX_ROWS = 50
MAX_CHARACTERS = 300
MAX_NAME = 60
# These columns are on screen at any width, and whole.
REASONS = ("why", "reason", "finding", "next", "where or why")
# Not quantities: people copy them into commands.
_COPIED = ("offset", "partition", "position", "generation", "pid")

_LINE = "var(--jp-border-color2,rgba(128,128,128,.4))"
_FRAME = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);line-height:1.5;"
    "color:var(--jp-ui-font-color1,inherit);overflow-x:auto"
)


# The page makes a link of an element with this attribute; anywhere else it is plain text.
OPENS = "data-opens"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Name(str):
    """A foreign name of up to 249 characters: HTML shortens a long one in its middle, with the whole name as title."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of a step with milliseconds, and how long after the step before it: `12:00:00.310 UTC (+310 ms)`."""

    at: datetime | None
    before: datetime | None = None


class _LaidOut:
    __slots__ = ()

    def text(
        self,
        *,
        zone: tzinfo | None = None,
        rows: int | None = MAX_ROWS,
        width: int | None = None,
        whole: bool | None = None,
    ) -> str:
        """Return it as text; None for `zone` is the machine's, for `rows` all, for `width` lines of any width.

        `whole` truncates no cell's content; None truncates it unless all rows are shown.
        """
        # Rich is imported for the first text only.
        from mirrorlake.render.text import text_of

        layout: Any = self
        return text_of(layout, zone=zone, rows=rows, width=width, whole=rows is None if whole is None else whole)


@dataclass(frozen=True, slots=True)
class Table(_LaidOut):
    """A titled table; see `table`.

    `folded` closes it in HTML until a person opens it. `least` are the columns that a narrow terminal omits, least important
    first.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    folded: bool = False
    least: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, *, zone: tzinfo | None = None, rows: int | None = MAX_ROWS) -> str:
        """Return the table as HTML; the arguments are those of `text`."""
        shown = self.rows[:rows]
        right = self.at_right(shown)
        head = "".join(
            f'<th style="{_head_style(at_right)};border-bottom:1px solid {_LINE}">{breakable(column)}</th>'
            for column, at_right in zip(self.columns, right, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="{_cell_style(at_right, column)}">{cell_html(value, zone=zone, whole=rows is None)}</td>'
                for column, value, at_right in zip(self.columns, row, right, strict=True)
            )
            + "</tr>"
            for row in shown
        )
        more = f"<div>… {escape(self.more(len(shown)))}</div>" if len(self.rows) > len(shown) else ""
        style = "border-collapse:collapse;margin:.2em 0;font-size:inherit;color:inherit"
        found = f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        found = (found if shown else "") + more
        title = breakable(self.title)
        if self.folded:
            return f'<details style="{_FRAME}"><summary>{title}</summary>{found}</details>'
        return f'<div style="{_FRAME}">{f"<div>{title}</div>" if title else ""}{found}</div>'

    def more(self, shown: int) -> str:
        """Return the note about the rows that are not shown."""
        left = len(self.rows) - shown
        return f"and {plural(left, 'more row')} of {format_count(len(self.rows))}"

    def at_right(self, rows: Sequence[Sequence[Any]]) -> list[bool]:
        """Return for each column whether it has only numbers in these rows, for alignment to the right."""
        return [
            any(found) and all(found)
            for found in ([_is_number(row[i]) for row in rows if row[i] is not None] for i in range(len(self.columns)))
        ]


def table(
    title: str, columns: Sequence[str], rows: Iterable[Any], *, folded: bool = False, least: Sequence[str] = ()
) -> Table:
    """Return a table of rows, or of objects with an attribute per column; cells are escaped when rendered.

    An int or float is a quantity (`1 234`), a timedelta a duration (`3.2 s`), a datetime a local and UTC time, bytes a payload, a
    mapping `key=value` pairs, a `Badge` itself, None a dash. Pass offsets, partitions and ids as text, so that they can be copied:
    digits align right all the same. Those of objects become text.

    >>> print(table("orders", ["partition", "offset lag"], [("0", 1234), ("10", 7)]))
    orders
    partition  offset lag
            0       1 234
           10           7
    """
    cells = (row if isinstance(row, tuple | list) else _cells_of(row, columns) for row in rows)
    return Table(title, tuple(columns), tuple(map(tuple, cells)), folded, tuple(least))


def condensed(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, keep: str, folded: bool = False
) -> Table:
    """Return a table without the columns that are equal in every row; their values, except None, go into the title.

    The column `keep` always remains; HTML may shorten its names. A single row remains whole.

    >>> print(condensed("2 topics", ["where", "name", "before"], [("east", "a", None), ("east", "b", None)], keep="name"))
    2 topics · east
    name
    a
    b
    """
    same = [
        place
        for place, column in enumerate(columns)
        if column != keep and len({cell(row[place], whole=True) for row in rows}) == 1
    ]
    said = [cell(rows[0][place], whole=True) for place in same if rows[0][place] is not None and len(rows) > 1]
    dropped = {place for place in same if len(rows) > 1 or rows[0][place] is None}
    kept = [place for place in range(len(columns)) if place not in dropped]
    return table(
        " · ".join([title, *filter(None, said)]),
        [columns[place] for place in kept],
        [[_named(row[place]) if columns[place] == keep else row[place] for place in kept] for row in rows],
        folded=folded,
    )


def _named(value: Any) -> Any:
    return value if isinstance(value, LinkedText) else Name(value)


def _cells_of(value: Any, columns: Sequence[str]) -> Iterator[Any]:
    for column in columns:
        found = getattr(value, column.replace(" ", "_"))
        is_copied = isinstance(found, int) and column.endswith(_COPIED)
        yield str(found) if is_copied else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(_LaidOut):
    """A line of title, badge and facts; then lines, tables and other sheets. Facts are texts or cells of a table; None is omitted."""

    title: str
    badge: Badge | None = None
    facts: tuple[Any, ...] = ()
    parts: tuple[str | Table | Sheet, ...] = ()

    def html(self, *, zone: tzinfo | None = None, rows: int | None = MAX_ROWS) -> str:
        """Return the sheet as HTML; the arguments are those of `text`."""
        facts = (self.badge, *self.facts)
        said = " · ".join(cell_html(fact, zone=zone, whole=True) for fact in facts if fact is not None)
        parts = "".join(
            f"<div>{breakable(part)}</div>" if isinstance(part, str) else part.html(zone=zone, rows=rows)
            for part in self.parts
        )
        inner = f'<div style="padding-left:1em">{parts}</div>' if parts else ""
        return f'<div style="{_FRAME}"><div><b>{breakable(self.title)}</b> {said}</div>{inner}</div>'

    def summary(self, *, zone: tzinfo | None = None) -> str:
        """Return the badge and the facts in one line of text."""
        facts = (self.badge, *self.facts)
        return " · ".join(cell(fact, zone=zone, whole=True) for fact in facts if fact is not None)


class Displayable:
    """Show a value by its sheet: HTML in notebooks, else text. Rendering runs no query and calls no cluster."""

    __slots__ = ()

    def sheet(self) -> Sheet:
        raise NotImplementedError

    def to_html(self, *, zone: tzinfo | None = None, rows: int | None = MAX_ROWS) -> str:
        """Return the value as HTML, in a zone (None for the machine's), with at most `rows` rows of each table (None for all)."""
        return self.sheet().html(zone=zone, rows=rows)

    def to_text(self, *, zone: tzinfo | None = None, rows: int | None = MAX_ROWS) -> str:
        """Return the value as text; the arguments are those of `to_html`."""
        return self.sheet().text(zone=zone, rows=rows)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


class JsonDisplayable(Displayable):
    """A dataclass that renders itself, and is a JSON document by its fields, `json_include` and not `json_exclude`."""

    __slots__ = ()
    json_include: ClassVar[tuple[str, ...]] = ()
    json_exclude: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the value as `--json` prints it."""
        return by_fields(self)


def html_page(title: str, value: Displayable) -> str:
    """Return a page of its own that shows a value."""
    name = escape(title)
    head = f'<meta charset="utf-8"><title>{name}</title>'
    return f"<!doctype html>\n<html><head>{head}</head><body>\n<h1>{name}</h1>\n{value.to_html()}\n</body></html>\n"


def cell(value: Any, *, zone: tzinfo | None = None, whole: bool = False) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_count(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return format_time(value, zone=zone) if value.tzinfo else f"{value.isoformat(sep=' ')} (zone not known)"
    if isinstance(value, StepTime):
        return _step_time(value, zone)
    if isinstance(value, bytes | bytearray):
        return payload(bytes(value), None if whole else 120)
    if isinstance(value, Badge):
        return str(value)
    return clean(brief(_words(value), None if whole else MAX_CHARACTERS))


def cell_html(value: Any, *, zone: tzinfo | None = None, whole: bool = False) -> str:
    if isinstance(value, Badge):
        return value.html()
    if isinstance(value, bytes | bytearray):
        return payload_html(bytes(value), None if whole else 120)
    if isinstance(value, LinkedText):
        return f'<a {OPENS}="{escape(value.path)}">{cell_html(value.text, zone=zone, whole=whole)}</a>'
    shown = cell(value, zone=zone, whole=whole)
    if len(shown) > MAX_NAME and (isinstance(value, Name) or (not whole and _NAME.fullmatch(shown))):
        return f'<span title="{escape(shown)}">{breakable(middle(shown, MAX_NAME))}</span>'
    return breakable(shown)


def _step_time(step: StepTime, zone: tzinfo | None) -> str:
    text = format_time(step.at, zone=zone, precision="ms")
    if step.at is None or step.before is None:
        return text
    # Clocks of two machines differ: a step may seem to be before the one before it.
    after = step.at - step.before
    return f"{text} ({'' if after < timedelta() else '+'}{format_duration(after)})"


def _words(value: Any) -> str:
    """Return a plan's `before` or `after` without Python's quotes and braces."""
    if value is None:
        return NOTHING
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}: {_words(inner)}" if isinstance(inner, Mapping) else f"{key}={_words(inner)}"
            for key, inner in value.items()
            if not (isinstance(inner, Mapping) and not inner)
        )
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        return ", ".join(map(_words, value))
    return str(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, LinkedText):
        value = value.text
    if isinstance(value, str):
        return value.isascii() and value.isdigit()
    return isinstance(value, int | float | timedelta) and not isinstance(value, bool)


def _head_style(at_right: bool) -> str:
    # JupyterLab aligns every cell to the right; only an inline style overrides that.
    return f"padding:.15em .6em;vertical-align:top;text-align:{'right' if at_right else 'left'}"


def _cell_style(at_right: bool, column: str) -> str:
    number = ";font-variant-numeric:tabular-nums;white-space:nowrap" if at_right else ""
    # Narrower, a reason becomes a tower.
    return _head_style(at_right) + number + (";min-width:12em" if column in REASONS else "")
