"""The record browser: source, relay and target side by side; choosing a record shows its passport.

Anyone who may write to a topic decides what a record holds: lists show it as text of an option, never as markup, and the
passport through `mirrorlake.render`, which escapes it.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

import ipywidgets as widgets

from mirrorlake.config import EXAMPLES, when
from mirrorlake.errors import UsageError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.session import Session
from mirrorlake.records import BrowsedRecord, Page, Passport, SideBySide
from mirrorlake.render import escape, payload

SIDES = ("source", "relay", "target")
_SEEKS = (("the newest", "newest"), ("from an offset", "offset"), ("from a time", "time"))


def line_of(record: BrowsedRecord) -> str:
    """Return a record as one line of a list: offset, time in UTC, key, value; control characters are made visible.

    >>> line_of(BrowsedRecord(topic="t", partition=0, offset=7, timestamp_ms=0, key=None, value=b"<b>"))
    '7  00:00:00.000  ‹null›  <b>'
    """
    time = "–" if record.time is None else record.time.strftime("%H:%M:%S.") + f"{record.timestamp_ms % 1000:03}"
    return f"{record.offset}  {time}  {payload(record.key, 24)}  {payload(record.value, 60)}"


class RecordsView:
    """Browse the records of a flow and follow one of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        runner = session.runner
        self.beside: SideBySide | None = None
        self.found: Passport | None = None
        self.flow = controls.dropdown("records-flow", "Flow")
        self.topic = controls.text("records-topic", "Source topic", wide=False)
        self.partition = controls.integer("records-partition", "Partition")
        self.anchor = controls.dropdown("records-side", "Seek on", SIDES, SIDES[0])
        self.seek = controls.dropdown("records-seek", "Show", _SEEKS, "newest")
        self.offset = controls.integer("records-offset", "Offset")
        self.time = controls.text("records-time", "Time", hint="2026-01-01T00:00:00Z", wide=False)
        self.count = controls.integer("records-count", "Records", value=20, least=1, most=1000)
        self.look = controls.button("records-look", "Read records", main=True)
        self.older = controls.button("records-older", "◀ Older")
        self.newer = controls.button("records-newer", "Newer ▶")
        self.lists = {side: _list(side) for side in SIDES}
        self.heads = {side: controls.html(f"records-{side}-head") for side in SIDES}
        self.notes = controls.html("records-notes")
        self.passport = controls.html("passport")
        columns = [controls.column(self.heads[side], self.lists[side]) for side in SIDES]
        for one in columns:
            one.layout.width = "33%"
        self.widget = controls.column(
            controls.row(self.flow, self.topic, self.partition),
            controls.row(self.anchor, self.seek, self.offset, self.time, self.count),
            controls.row(self.look, self.older, self.newer),
            widgets.HBox(columns),
            self.notes,
            self.passport,
        )
        runner.on_click(self.look, self.on_look)
        runner.on_click(self.older, partial(self.on_turn, -1))
        runner.on_click(self.newer, partial(self.on_turn, 1))
        self.seek.observe(runner.guarded(self._show_seek), "value")
        for side, rows in self.lists.items():
            rows.observe(runner.guarded(partial(self._choose, side)), "index")
        self._show_seek()
        self.offer()

    def offer(self) -> None:
        """Offer the flows of the mirror."""
        controls.refill(self.flow, self._session.flow_names)

    async def on_look(self) -> None:
        """Read the three sides from where the form says."""
        kind = self.seek.value
        offset = self.offset.value if kind == "offset" else None
        at = self._time() if kind == "time" else None
        await self._read(offset, at)

    async def on_turn(self, direction: int) -> None:
        """Read the stretch before or after the one that is shown."""
        page = None if self.beside is None else self.beside.pages[self.anchor.value]
        if page is None:
            raise UsageError("nothing is shown yet", remedy="press Read records first")
        self.seek.value = "offset"
        self.offset.value = page.next if direction > 0 else max(0, page.start - self.count.value)
        await self._read(self.offset.value, None)

    async def on_passport(self, cluster: str, record: BrowsedRecord) -> None:
        """Show the passport of a record from one of the lists."""
        mirror = self._session.mirror_of(self.flow.value)
        self.passport.value = f"Following {escape(f'{record.topic}-{record.partition}@{record.offset}')} …"
        try:
            self.found = await self._session.runner.ask(
                mirror.passport,
                cluster,
                record.topic,
                record.partition,
                record.offset,
                generation=record.generation,
            )
        except BaseException:
            self.passport.value = ""
            raise
        self.passport.value = self.found.to_html(rows=None)

    async def _read(self, offset: int | None, at: datetime | None) -> None:
        mirror = self._session.mirror_of(self.flow.value)
        if not self.topic.value.strip():
            raise UsageError("no topic is named", remedy="name a source topic of the flow")
        self.passport.value = ""
        self.beside = await self._session.runner.ask(
            mirror.side_by_side,
            self.flow.value,
            self.topic.value.strip(),
            self.partition.value,
            anchor=self.anchor.value,
            offset=offset,
            at=at,
            count=self.count.value,
        )
        self.render()

    def render(self) -> None:
        """Show what was read."""
        if self.beside is None:
            return
        for side, page in self.beside.pages.items():
            rows = self.lists[side]
            rows.options = [] if page is None else [line_of(record) for record in page.records]
            rows.index = None
            self.heads[side].value = f"<b>{side}</b> {escape(_head(page))}"
        why = [str(one) for page in self.beside.pages.values() if page is not None for one in page.missing]
        lines = dict.fromkeys([*self.beside.notes, *why])
        self.notes.value = "".join(f"<div>· {escape(line)}</div>" for line in lines)

    def _choose(self, side: str) -> None:
        index = self.lists[side].index
        page = None if self.beside is None else self.beside.pages[side]
        if index is None or page is None:
            return
        for other, rows in self.lists.items():
            if other != side:
                rows.index = None
        record = page.records[index]
        runner = self._session.runner
        runner.start(runner.run(partial(self.on_passport, page.cluster, record), self.look))

    def _time(self) -> datetime:
        if not self.time.value.strip():
            raise UsageError("no time is given", remedy=f"write {EXAMPLES}")
        return when(self.time.value, now=self._session.now())

    def _show_seek(self) -> None:
        self.offset.layout.display = None if self.seek.value == "offset" else "none"
        self.time.layout.display = None if self.seek.value == "time" else "none"


def _list(side: str) -> widgets.Select:
    layout = widgets.Layout(width="98%")
    field = widgets.Select(options=[], rows=16, layout=layout)
    for name in (f"ml-records-{side}", "ml-records-list"):
        field.add_class(name)
    return field


def _head(page: Page | None) -> str:
    if page is None:
        return "cannot be shown"
    return f"{page.topic}-{page.partition} on {page.cluster}, next to come {page.end}"
