"""A console that is filled in as a person does it, and what its widgets show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import ipywidgets as widgets

from mirrorlake.notebook.console.window import Console

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>"


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> datetime:
        return self.time


def add_clusters(console: Console, *aliases: str) -> None:
    view = console.wizard.clusters
    for alias in aliases:
        view.new.click()
        view.alias.value, view.servers.value = alias, f"{alias}:9092"
        view.add.click()


def fill_flow(console: Console, source: str, target: str, topics: str) -> None:
    flow = console.wizard.flow
    flow.source.value, flow.target.value, flow.topics.value = source, target, topics


def fill(console: Console, topics: str = "orders, clicks.*") -> None:
    """Fill the wizard: two clusters, a flow."""
    add_clusters(console, "east", "west")
    fill_flow(console, "east", "west", topics)


def everything(widget: Any) -> Iterator[Any]:
    """Yield a widget and all below it, layouts and styles included."""
    yield widget
    for name in widget.keys:
        value = getattr(widget, name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, widgets.Widget):
                yield from everything(one)


def page_html(widget: Any) -> str:
    return "".join(one.value for one in everything(widget) if isinstance(one, widgets.HTML))


def texts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the text of each cell of a grid's rows."""
    return [
        {key: cell.get("text") if isinstance(cell, dict) else cell for key, cell in row["cells"].items()}
        for row in rows
    ]
