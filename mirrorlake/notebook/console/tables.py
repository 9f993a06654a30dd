"""Typed tables, and the page of one.

Anyone with write access to a topic controls its records: rows are cell text, never markup, and short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from mirrorlake.lake import TableColumn
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.notebook.console.poller import Poller
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import badge, breakable, format_count, format_duration, link
from mirrorlake.tables import TablePage, Tables, TableStatus, value_text

# Reading asks no cluster; a table's batches are seconds apart.
EVERY_S = 15.0
_NONE = (
    "No typed table is set up. One has the records of topics as rows of columns, for analysts (docs/typed-tables.md): write this "
    f"into the settings, and open the console again.{controls.code('tables:' + chr(10) + '  - topics: sales')}"
)
_NO_MIRROR = "There is no mirror yet: set one up."
_NOT_READ = "The tables were not read yet."
_NOT_LANDED = "No topic of the entries of `tables:` has been landed yet."

COLUMNS = (
    Column("table", "Table"),
    Column("state", "State"),
    Column("verdict", "Verdict", kind="mark", help="The words of flows; the last column says why"),
    Column("mode", "Mode", help="A row a record, or the newest record of each key"),
    Column("topics", "Topics", kind="prose"),
    Column("offset_lag", "Offset lag", kind="number", help="Offsets that are landed and not in the table yet"),
    Column("time_lag", "Time lag", kind="number", help="Age of the oldest record that waits"),
    Column("bad", "Bad records", kind="number", help="Records in the table bad_records"),
    Column("why", "Why", kind="prose"),
)
_OF_COLUMNS = (Column("column", "Column"), Column("type", "Type", kind="prose"), Column("comment", "Comment"))
_NUMBERS = ("BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL")
_PLACE = ("_source", "_topic", "_generation", "_partition", "_offset")
# Where a row comes from is left out first.
_LEAST_OF_ROWS = ("_generation", "_partition", "_source", "_topic")


class TablesView(Panel):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.page: TablePage | None = None
        self.poller = Poller(self._ask, session=session, every_s=EVERY_S, changed=self.render, name="tables-fresh")
        self.refresh = self.button("tables-refresh", "Refresh", self.on_refresh, tip="Read the tables again")
        self.none = controls.html("tables-none")
        self.rows = Grid(
            "tables-rows",
            COLUMNS,
            label="Typed tables",
            least=("mode", "state", "topics"),
            file="tables.csv",
            follow=session.follow,
        )
        self.shown = controls.html("tables-page")
        self.columns = Grid("tables-columns", _OF_COLUMNS, label="Columns", least=("comment",), file="columns.csv")
        self.newest = Grid(
            "tables-newest", (), label="Newest rows", least=_LEAST_OF_ROWS, file="newest.csv", follow=session.follow
        )
        self.title = controls.html("tables-newest-title", "<b>Newest rows</b>, by timestamp")
        self.widget = controls.column(
            controls.row(self.refresh, self.poller.pulse),
            self.none,
            self.rows,
            self.shown,
            self.columns,
            self.title,
            self.newest,
        )
        self._show()
        self.render()

    def start(self) -> None:
        """Read every few seconds, if an event loop runs; once where that takes Spark."""
        mirror = self._session.mirror
        if mirror is None:
            return
        if not mirror.lake.is_spark_only:
            self.poller.start()
        elif self.poller.reading.at is None:
            self._runner.start(self._runner.run(self.poller.once, self.refresh))

    async def on_refresh(self) -> None:
        await self.poller.once()
        if self.page is not None:
            await self.open_table(self.page.name)

    async def open_table(self, name: str) -> None:
        mirror = self._session.mirror_of(name)
        if self.page is None or self.page.name != name:
            self._show(said=f"Reading {breakable(name)} …")
        try:
            page = await self._runner.ask(mirror.table, name)
        except BaseException:
            self._show()
            raise
        self._show(page)

    def _ask(self) -> Tables | None:
        mirror = self._session.mirror
        return None if mirror is None else mirror.tables()

    def render(self) -> None:
        mirror, found = self._session.mirror, self.poller.reading.value
        is_none = mirror is not None and not mirror.config.tables
        self.none.value = _NONE if is_none else ""
        self.rows.layout.display = "none" if is_none else None
        self.rows.empty = _NO_MIRROR if mirror is None else _NOT_READ if found is None else _NOT_LANDED
        self.rows.show([_row(one) for one in found.tables] if found is not None else [])

    def _show(self, page: TablePage | None = None, *, said: str = "") -> None:
        self.page = page
        if page is not None:
            self.columns.show(
                [Row(one.name, {"column": one.name, "type": one.type, "comment": one.comment}) for one in page.columns]
            )
            self.newest.show(*_newest(page))
        self.columns.layout.display = None if page is not None and page.columns else "none"
        for part in (self.title, self.newest):
            part.layout.display = None if page is not None and page.newest else "none"
        # Last: the address follows it.
        self.shown.value = said if page is None else page.head().html(rows=None)


def _row(table: TableStatus) -> Row:
    topics = [(source, topic) for source, names in table.topics.items() for topic in names]
    links = [link("topic", *one) for one in topics]
    cells: dict[str, Any] = {
        "table": Cell(table.name, link=link("table", table.name)),
        "state": table.state,
        "verdict": Cell.of(badge(table.verdict), title=table.why()),
        "mode": table.mode,
        "topics": Cell(", ".join(map(" ".join, topics)), link=links[0] if len(links) == 1 else ""),
        "offset_lag": Cell(format_count(table.offset_lag), table.offset_lag),
        "time_lag": Cell(format_duration(table.time_lag_ms), table.time_lag_ms),
        "bad": Cell(format_count(table.bad_records), table.bad_records),
        "why": table.why(),
    }
    parts = [Row(path, {"table": Cell(" ".join(one), link=path)}) for one, path in zip(topics, links, strict=True)]
    return Row(table.name, cells, parts if len(parts) > 1 else ())


def _newest(page: TablePage) -> tuple[list[Row], list[Column]]:
    shown = [one for one in page.columns if page.newest and one.name in page.newest[0]]
    columns = [Column(one.name, one.name, "number" if _is_number(one) else "text", one.comment) for one in shown]
    return [Row("/".join(str(row[name]) for name in _PLACE), _cells(row)) for row in page.newest], columns


def _is_number(column: TableColumn) -> bool:
    return column.type.partition("(")[0] in _NUMBERS


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {name: Cell(value_text(value), sort=_order(value)) for name, value in row.items()}
    return cells | {"_topic": Cell(str(row["_topic"]), link=link("topic", row["_source"], row["_topic"]))}


def _order(value: Any) -> float | None:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None
