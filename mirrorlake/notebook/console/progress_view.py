"""Draw, on the kernel's thread, the progress of work in another thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mirrorlake.notebook.console import controls
from mirrorlake.progress import Phase, RunMessage
from mirrorlake.render import badge, breakable, escape, format_count

T = TypeVar("T")
_DRAW_INTERVAL_S = 0.5
_MAX_LINES = 8


class ProgressView:
    # It only stores values, so any thread may call it.
    any_thread = True

    def __init__(self, name: str, doing: str) -> None:
        self._doing = doing
        self._phases: Sequence[Phase] = ()
        self._lines: deque[RunMessage] = deque(maxlen=_MAX_LINES)
        self.widget = controls.html(name)

    async def during(self, work: Awaitable[T], *, also: Callable[[], str] = lambda: "") -> T:
        """Show the progress until the work ends, and return its result; `also` adds HTML."""
        task = asyncio.ensure_future(work)
        self._lines.clear()
        try:
            while not task.done():
                lines = [*map(_line, self._phases), *(breakable(str(one)) for one in tuple(self._lines))]
                said = "".join(f"<div>{line}</div>" for line in lines)
                self.widget.value = badge(self._doing, "note").html() + also() + said
                await asyncio.wait([task], timeout=_DRAW_INTERVAL_S)
            return await task
        finally:
            self._phases, self.widget.value = (), ""

    def show(self, phases: Sequence[Phase], _at: float, /) -> None:
        self._phases = tuple(phases)

    def say(self, said: RunMessage, /) -> None:
        self._lines.append(said)

    close = show


def _line(phase: Phase) -> str:
    said = f"{escape(phase.name)}: {format_count(phase.done)}"
    if phase.total is None:
        return f"{said} {escape(phase.unit)}"
    bar = f'<progress value="{phase.done}" max="{max(1, phase.total)}" aria-label="{escape(phase.name)}"></progress>'
    return f"{bar} {said} of {format_count(phase.total)} {escape(phase.unit)}"
