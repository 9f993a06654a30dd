"""Show errors to a person on a panel, in words and without secrets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import ipywidgets as widgets

from mirrorlake.config import redact, typed_values
from mirrorlake.errors import MirrorlakeError
from mirrorlake.render import breakable, format_time

_MOST = 5
_FRAME = "border-left:4px solid var(--jp-error-color1,#d64545);padding:.3em .8em;margin:.2em 0;white-space:pre-wrap"


def error_text(error: BaseException) -> str:
    """Return an error as text, without the passwords typed in this session."""
    if isinstance(error, MirrorlakeError):
        text = str(error)
    else:
        first = next((line for line in str(error).splitlines() if line.strip()), "no further details")
        text = f"{type(error).__name__}: {first[:400]}"
    return redact(text, typed_values())


class ErrorPanel(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no annotations
    """Show the newest errors first until a person clears them; hidden without errors."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.errors: list[str] = []
        self._text = widgets.HTML()
        clear = widgets.Button(description="Clear", tooltip="Dismiss these messages")
        clear.add_class("ml-errors-clear")
        clear.on_click(lambda _: self.clear())
        super().__init__([self._text, clear])
        self.add_class("ml-errors")
        self._render()

    def show(self, error: BaseException) -> None:
        text = error_text(error)
        self.errors = [text, *(one for one in self.errors if one != text)][:_MOST]
        self._render()

    def clear(self) -> None:
        self.errors = []
        self._render()

    def _render(self) -> None:
        lines = "".join(
            f'<div style="{_FRAME}"><b>✗</b> ' + "<br>".join(map(breakable, text.splitlines())) + "</div>"
            for text in self.errors
        )
        at = f"<div>{breakable(format_time(self._now(), date=False))}</div>" if self.errors else ""
        self._text.value = lines + at
        self.layout.display = None if self.errors else "none"
