"""One side of the record browser: source, relay or target, with its own reads and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timezone
from typing import Any

import ipywidgets as widgets

from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.notebook.console.session import Session
from mirrorlake.records import BrowsedRecord, Page
from mirrorlake.render import badge, breakable, clean, format_count, format_time, payload, plural

_COLUMNS = (
    Column("mark", "Same", kind="mark", help="The record that is chosen, and its counterparts on the other sides"),
    Column("partition", "P", kind="number", help="Partition"),
    Column("offset", "Offset", kind="number"),
    Column("key", "Key"),
    Column("value", "Value"),
    # Last: three sides share a page of 1280 points, and people read content first.
    Column("time", "Time (UTC)"),
)
# The bytes of a cell that a person reads at a glance, or on hovering.
_KEY, _VALUE = 60, 200
_MAX_REASONS = 6
Place = tuple[int, int]


def key_of(record: BrowsedRecord) -> str:
    return f"{record.partition}@{record.offset}"


def row_of(record: BrowsedRecord, *, mark: str = "") -> Row:
    """Return a record as a row: text only, control characters visible, long content truncated.

    >>> row_of(BrowsedRecord(topic="t", partition=0, offset=7, timestamp_ms=0, key=None, value=b"<b>")).cells["value"]
    '<b>'
    """
    time = format_time(record.time, zone=timezone.utc, precision="ms")
    cells: dict[str, Any] = {
        "mark": Cell.of(badge(mark, "note")) if mark else "",
        "partition": record.partition,
        # Text, not a quantity: people copy it into commands.
        "offset": Cell(str(record.offset), sort=record.offset),
        "time": Cell(
            time.removesuffix(" UTC")[5:] or time,
            sort=record.timestamp_ms,
            title="no timestamp" if record.time is None else time,
        ),
        "key": payload(record.key, _KEY),
        "value": payload(record.value, _VALUE),
    }
    return Row(key_of(record), cells)


class RecordSide:
    """Show the records of one side, newest first; `chosen` is called with this side and a record."""

    def __init__(self, session: Session, name: str, chosen: Callable[[RecordSide, BrowsedRecord], None]) -> None:
        self.name = name
        self.page: Page | None = None
        self.cluster = ""
        self.problem = ""
        self._session = session
        self._chosen = chosen
        self._records: dict[str, BrowsedRecord] = {}
        self._marks: dict[str, str] = {}
        # An answer to an older question is dropped.
        self._asked = 0
        self.head = controls.html(f"records-{name}-head")
        self.notes = controls.html(f"records-{name}-notes")
        self.grid = Grid(
            f"records-{name}",
            _COLUMNS,
            label=f"Records of the {name}",
            least=("time", "key"),
            select="one",
            empty="No records are shown.",
            file=f"{name}.csv",
        )
        self.grid.observe(session.runner.guarded(self._choose), "selected")
        self.widget = controls.column(self.head, self.grid, self.notes)
        self.widget.layout = widgets.Layout(flex="1 1 24em", min_width="0", margin="0 .6em 0 0")
        self._say("nothing was read yet")

    async def read(self, ask: Callable[..., Page], *where: Any, **seek: Any) -> Page | None:
        """Read a page beside the kernel's thread and show it; return None after a failure or a newer read."""
        self._asked += 1
        mine = self._asked
        self._say("reading …")
        try:
            page = await self._session.runner.ask(ask, *where, **seek)
        except Exception as error:  # shown on this side: the others may have an answer
            if mine == self._asked:
                self.fail(error_text(error))
            return None
        if mine != self._asked:
            return None
        self.show(page)
        return page

    def show(self, page: Page) -> None:
        self.page, self.cluster, self.problem = page, page.cluster, ""
        self._fill(page.records)
        held = plural(len(page.records), "record")
        if page.wanted:
            held += f" of {format_count(page.looked)} looked through"
        self._say(f"{_where(page)}: {held}")
        lines = [page.note] if page.note else []
        missing = [f"partition {one.partition}, {m}" for one in page.stretches for m in one.missing]
        lines += missing[:_MAX_REASONS]
        lines += [f"… and {format_count(len(missing) - _MAX_REASONS)} more"] if len(missing) > _MAX_REASONS else []
        self.notes.value = "".join(f"<div>· {breakable(line)}</div>" for line in lines)

    def follow(self, cluster: str, records: Sequence[BrowsedRecord], said: str) -> None:
        self.page, self.cluster, self.notes.value = None, cluster, ""
        self._asked += 1
        self._fill(records)
        self._say(said)

    def fail(self, problem: str) -> None:
        self.page, self.problem, self.notes.value = None, problem, ""
        self._fill(())
        self._say("", badge("failed").html() + "<br>".join(f" {breakable(line)}" for line in problem.splitlines()))

    def clear(self, said: str) -> None:
        self._asked += 1
        self.page, self.problem, self.notes.value = None, "", ""
        self._fill(())
        self._say(said)

    def mark(self, places: dict[Place, str]) -> bool:
        """Mark exactly these records by partition and offset; return whether all are shown."""
        self._marks = {f"{partition}@{offset}": word for (partition, offset), word in places.items()}
        self._draw()
        return self._marks.keys() <= self._records.keys()

    def unchoose(self) -> None:
        if self.grid.selected:
            self.grid.selected = []

    def record(self, partition: int, offset: int) -> BrowsedRecord | None:
        return self._records.get(f"{partition}@{offset}")

    def _fill(self, records: Sequence[BrowsedRecord]) -> None:
        self._records = {key_of(record): record for record in reversed(records)}
        self._draw()

    def _draw(self) -> None:
        self.grid.show([row_of(one, mark=self._marks.get(key, "")) for key, one in self._records.items()])

    def _choose(self) -> None:
        for key in self.grid.selected:
            if (record := self._records.get(key)) is not None:
                self._chosen(self, record)

    def _say(self, text: str, html: str = "") -> None:
        self.head.value = f"<b>{breakable(self.name)}</b> {html or breakable(text)}"


def _where(page: Page) -> str:
    which = page.topic if page.partition is None else f"{page.topic}-{page.partition}"
    return clean(f"{which} on {page.cluster}" if page.side == "cluster" else f"{which} landed from {page.cluster}")
