"""A table to search, sort and select from while its rows change.

Sorting, filtering, copying and saving run in the browser (`grid.js`): they work at once beside a busy kernel, and sorting,
opened rows, selection and focus survive every update.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import traitlets

from mirrorlake.notebook.console.browser_widget import BrowserWidget, script
from mirrorlake.render import BREAK, MAX_NAME, SHORT_NAME, UNBROKEN, Badge, clean, middle

_RULES = {"BREAK": BREAK, "UNBROKEN": UNBROKEN}
Choice = Literal["none", "one", "many"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; sentences (`prose`) are always on screen, and whole."""

    key: str
    title: str
    kind: Literal["text", "number", "mark", "prose"] = "text"
    help: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a text and another sort key; `badge` marks it, `title` appears on hovering, `link` is what its text opens."""

    text: str
    sort: str | int | float | None = None
    badge: Badge | None = None
    title: str = ""
    link: str = ""

    @classmethod
    def of(cls, badge: Badge, *, sort: str | int | float | None = None, title: str = "", link: str = "") -> Cell:
        return cls(badge.word, sort, badge, title, link)


@dataclass(frozen=True, slots=True)
class Row:
    """A row by its `key`, unique in the grid; opening it shows `parts`."""

    key: str
    cells: Mapping[str, Cell | str | int | float | None]
    parts: Sequence[Row] = field(default=())


class Grid(BrowserWidget):
    """Rows to search, sort, open, choose, copy and save.

    `label` names the kind of rows for a screen reader, `least` the columns that a narrow page omits, least important first. `selected`
    has the chosen keys, and can be observed. `follow` is called with the link of a cell that a person opens.

    Example:
        >>> grid = Grid("topics", [Column("topic", "Topic")], label="Topics", select="one")  # doctest: +SKIP
        >>> grid.show([Row("orders", {"topic": "orders"})])  # doctest: +SKIP
    """

    _esm = (
        "".join(f"const {name} = new RegExp({json.dumps(rule)});\n" for name, rule in _RULES.items())
        + f"const SHORT_NAME = {SHORT_NAME};\n"
        + script("grid.js")
    )
    _css = Path(__file__).with_name("grid.css")

    label = traitlets.Unicode().tag(sync=True)
    columns: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True, resent=True)
    rows: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True, resent=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    least = traitlets.List(traitlets.Unicode()).tag(sync=True)
    select = traitlets.Unicode().tag(sync=True)
    empty = traitlets.Unicode().tag(sync=True, resent=True)
    file = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        name: str,
        columns: Sequence[Column],
        *,
        label: str,
        least: Sequence[str] = (),
        select: Choice = "none",
        empty: str = "There is nothing to show.",
        file: str = "rows.csv",
        follow: Callable[[str], None] | None = None,
    ) -> None:
        traits = {"label": label, "least": list(least), "select": select, "empty": empty, "file": file}
        super().__init__(name, columns=_columns(columns), **traits)
        self._follow = follow

    def answer(self, content: dict[str, Any]) -> None:
        if self._follow is not None and isinstance(link := content.get("open"), str):
            self._follow(link)

    def show(self, rows: Sequence[Row], columns: Sequence[Column] | None = None) -> None:
        """Show these rows (and columns); keys without a row are no longer chosen."""
        shown = [_row(row) for row in rows]
        with self.hold_sync():
            if columns is not None:
                self.columns = _columns(columns)
            self.rows = shown
            keys = {row["key"] for row in shown}
            self.selected = [key for key in self.selected if key in keys]


def _columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [asdict(column) for column in columns]


def _row(row: Row) -> dict[str, Any]:
    cells = {key: _cell(cell) for key, cell in row.cells.items()}
    return {"key": row.key, "cells": cells, "parts": [_row(part) for part in row.parts]}


def _cell(cell: Cell | str | int | float | None) -> Any:
    if isinstance(cell, str):
        text, short = clean(cell), _short(clean(cell))
        return {"text": text, **short} if short else text
    if not isinstance(cell, Cell):
        return cell
    text = clean(cell.text)
    marked = {"mark": cell.badge.mood, "sign": cell.badge.sign} if cell.badge is not None else {}
    return {"text": text, "sort": cell.sort, "title": clean(cell.title), "link": cell.link, **marked, **_short(text)}


def _short(text: str) -> dict[str, str]:
    """Shorten a long name; a sentence stays whole."""
    return {"short": middle(text, MAX_NAME)} if len(text) > MAX_NAME else {}
