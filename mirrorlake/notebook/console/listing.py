"""A list of named things, each with its own buttons."""

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
    """One line: the name it stands for, what is said of it as HTML, and the buttons it has."""

    key: str
    html: str
    actions: tuple[str, ...]


class Listing:
    """Show entries below each other; each button calls its action with the entry's name.

    Args:
        runner: runs the actions.
        name: what the classes of the list and its buttons begin with.
        actions: by their labels, in the order of the buttons.
        empty: said where there is nothing, as HTML.
    """

    def __init__(self, runner: TaskRunner, name: str, actions: Mapping[str, Act], *, empty: str) -> None:
        self._runner = runner
        self._name = name
        self._actions = actions
        self._empty = empty
        self.entries: tuple[Entry, ...] = ()
        self.buttons: dict[tuple[str, str], widgets.Button] = {}
        self.widget = controls.column()
        self.widget.add_class(f"ml-{name}-list")
        self._draw()

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these entries; nothing happens where they are shown already."""
        if tuple(entries) != self.entries:
            self.entries = tuple(entries)
            self._draw()

    def _draw(self) -> None:
        before = self.widget.children
        self.buttons = {}
        self.widget.children = [self._row(one) for one in self.entries] or [controls.paragraph(self._empty)]
        for row in before:
            for child in getattr(row, "children", ()):
                child.close()
            row.close()

    def _row(self, entry: Entry) -> widgets.HBox:
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
