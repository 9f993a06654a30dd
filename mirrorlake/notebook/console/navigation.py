"""The address of a console's page, as `links` names it. Only a page of its own has addresses; a notebook has none."""

from __future__ import annotations

from pathlib import Path

import traitlets

from mirrorlake.notebook.console.browser_widget import script
from mirrorlake.notebook.console.links import slug
from mirrorlake.notebook.console.opener import Opener
from mirrorlake.notebook.console.window import TABS, Console
from mirrorlake.render import link


class Address(Opener):
    _esm = script("address.js")
    _css = Path(__file__).with_name("address.css")

    path = traitlets.Unicode().tag(sync=True, resent=True)
    note = traitlets.Unicode().tag(sync=True)


class Navigation:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_opening = True
        self.widget = Address(self._start, name="address", note=console.session.read_only)
        console.session.opened = self._start
        changed = console.session.runner.guarded(self._update)
        for field, trait in (
            (console.tabs, "selected_index"),
            (console.status.flow, "value"),
            (console.topics.rows, "selected"),
            (console.groups.grid, "selected"),
            (console.records.passport, "value"),
            (console.tables.shown, "value"),
        ):
            field.observe(changed, trait)

    @property
    def path(self) -> str:
        console = self._console
        tab = TABS[console.tabs.selected_index or 0]
        if tab == "Status" and console.status.chosen_flow is not None:
            return link("flow", console.status.chosen_flow)
        if tab == "Topics" and len(console.topics.rows.selected) == 1:
            return link("topic", console.topics.cluster.value, *console.topics.rows.selected)
        if tab == "Groups" and len(console.groups.grid.selected) == 1:
            return link("group", console.groups.flow.value, *console.groups.grid.selected)
        if tab == "Records" and console.records.chosen is not None:
            return link("passport", *console.records.chosen)
        if tab == "Tables" and (table := console.tables.page) is not None:
            return link("table", table.name)
        return slug(tab)

    def _start(self, path: str) -> None:
        self._console.session.runner.start(self._open(path))

    async def _open(self, path: str) -> None:
        self._is_opening = True
        try:
            await self._console.open(path)
        finally:
            self._is_opening = False
            self._update()

    def _update(self) -> None:
        # Steps on the way to an address are no addresses to go back to.
        if not self._is_opening:
            self.widget.path = self.path
