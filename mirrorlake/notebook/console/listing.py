"""A list of named entries, each with its own buttons."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as widgets

from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.task_runner import TaskRunner

Act = Callable[[str], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    html: str
    actions: tuple[str, ...]


class Listing:
    """Show entries below each other; each button calls its action (by label) with the entry's name."""

    def __init__(self, runner: TaskRunner, name: str, actions: Mapping[str, Act], *, empty: str) -> None:
        self._runner = runner
        self._name = name
        self._actions = actions
        self._empty = empty
        self.entries: tuple[Entry, ...] = ()
        self._rows: dict[tuple[str, tuple[str, ...]], widgets.HBox] = {}
        self.buttons: dict[tuple[str, str], widgets.Button] = {}
        self.widget = controls.column()
        self.widget.add_class(f"ml-{name}-list")
        self._draw()

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these entries; do nothing if they are shown already."""
        if tuple(entries) != self.entries:
            self.entries = tuple(entries)
            self._draw()

    def _draw(self) -> None:
        """Reuse a row with the same buttons, so that a button pressed meanwhile still exists."""
        before = self.widget.children
        rows = {(one.key, one.actions): self._row(one) for one in self.entries}
        self._rows = rows
        self.widget.children = list(rows.values()) or [controls.paragraph(self._empty)]
        for row in set(before) - set(self.widget.children):
            for child in getattr(row, "children", ()):
                child.close()
            row.close()
        shown = {(entry.key, label) for entry in self.entries for label in entry.actions}
        self.buttons = {place: button for place, button in self.buttons.items() if place in shown}

    def _row(self, entry: Entry) -> widgets.HBox:
        if (row := self._rows.get((entry.key, entry.actions))) is not None:
            row.children[0].value = entry.html
            return row
        said = widgets.HTML(entry.html, layout=widgets.Layout(flex="1 1 20em", min_width="0"))
        buttons = []
        for label in entry.actions:
            word = label.lower().replace(" ", "-")
            button = controls.button(f"{self._name}-{word}", label, tip=f"{label} {entry.key}")
            button.layout.min_width = "4em"
            self._runner.on_click(button, partial(self._actions[label], entry.key))
            self.buttons[entry.key, label] = button
            buttons.append(button)
        row = controls.row(said, *buttons)
        row.layout.align_items = "center"
        row.add_class(f"ml-{self._name}-row")
        return row
