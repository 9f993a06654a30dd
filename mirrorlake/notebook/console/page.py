"""What each kernel of `mirrorlake console` runs: one console of the settings, with links."""

from __future__ import annotations

from pathlib import Path

from mirrorlake.mirror import load
from mirrorlake.notebook.console.navigation import Navigation
from mirrorlake.notebook.console.window import Console

READ_ONLY = "read-only: to change things, start mirrorlake console --write"


def open_console(conf: str, *, write: bool) -> Console:
    """Return a console of the settings file with links; without `write`, it refuses to change anything."""
    console = Console(load(Path(conf)), read_only="" if write else READ_ONLY)
    navigation = Navigation(console)
    console.widget.children = (navigation.widget, *console.widget.children)
    return console
