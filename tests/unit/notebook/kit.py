"""What the tests of the console and the set-up form share: a clock, odd text, and what widgets show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import ipywidgets as widgets

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>"


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> datetime:
        return self.time


def everything(widget: Any) -> Iterator[Any]:
    """Yield a widget and all below it, layouts and styles included."""
    yield widget
    for name in widget.keys:
        value = getattr(widget, name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, widgets.Widget):
                yield from everything(one)


def control(view: Any, name: str) -> Any:
    """Return the control with the class `ml-<name>`."""
    [found] = [one for one in everything(view.widget) if f"ml-{name}" in getattr(one, "_dom_classes", ())]
    return found


def click(view: Any, name: str) -> None:
    """Press a button, and wait for what it starts."""
    control(view, name).click()
    view.work.wait()


def state(view: Any) -> str:
    """Return all state that a notebook would save."""
    return json.dumps([one.get_state() for one in everything(view.widget)], default=str)
