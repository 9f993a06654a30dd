"""Show in the browser how old a figure is, and whether its kernel still answers.

A busy or dead kernel cannot report itself, so nothing waits for it. It sends an answer's age; the browser adds the time since,
by its own clock, so differing clocks do no harm. After a reload or in a second view, the browser asks for the age first.

One `Pulse` of a console also sends the kernel a heartbeat every few seconds, one at a time. Without an answer for 5 s the
kernel is busy. If it restarted or ended, the rest of the console is inert until it answers. The pulse also preserves clicks:
a button that moves while pressed still acts, and an action waits for the text typed before its click (`arrived`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import traitlets

from mirrorlake.notebook.console.browser_widget import BrowserWidget, script
from mirrorlake.render import format_time


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest result of a repeated question.

    `value` was true `at` that time; `problem` is why no newer value came; a question is open since `asking_since`.
    """

    value: Any = None
    at: datetime | None = None
    problem: str | None = None
    asking_since: datetime | None = None

    def as_message(self, now: datetime, limit: timedelta) -> dict[str, Any]:
        """Return ages in milliseconds, as of now, for the browser's clock."""
        return {
            "as_of": None if self.at is None else format_time(self.at, date=False),
            "age_ms": _ms(self.at, now),
            "asking_ms": _ms(self.asking_since, now),
            "problem": None if self.problem is None else self.problem.splitlines()[0],
            "limit_ms": limit / timedelta(milliseconds=1),
        }


# A visible page sends a heartbeat every 5 s, a hidden one less often; a person who reads touches it at times.
_WATCHED_S, _TOUCHED_S = 15.0, 60.0
# An open page answers in one round trip; a closed one never does.
_ARRIVES = timedelta(seconds=5)


def _ms(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since) / timedelta(milliseconds=1))


class Pulse(BrowserWidget):
    """Show the age of a reading, stale after `limit`.

    With `beats`, send heartbeats, and make the rest of the console inert without answers.
    """

    _esm = script("pulse.js")
    _css = Path(__file__).with_name("pulse.css")

    reading = traitlets.Dict().tag(sync=True, resent=True)
    beats = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self, name: str, *, now: Callable[[], datetime], limit: timedelta = timedelta(seconds=15), beats: bool = False
    ) -> None:
        super().__init__(name, "pulse", beats=beats)
        self._now = now
        self._limit = limit
        self._shown = Reading()
        self._is_seen = False
        self._watched_at = self._touched_at = -inf
        # JupyterLab handles what a page sends in a thread with an event loop of its own, beside that of the cells.
        self._resting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._settling: dict[int, asyncio.Future[None]] = {}
        self._settles = 0

    def show(self, reading: Reading) -> None:
        self._shown = reading
        self.reading = reading.as_message(self._now(), self._limit)

    def expect(self, interval_s: float) -> None:
        """Call an answer stale after three of these intervals."""
        limit = timedelta(seconds=3 * interval_s)
        if limit != self._limit:
            self._limit = limit
            self.show(self._shown)

    @property
    def is_watched(self) -> bool:
        """Whether a page is visible; always true in a front end without our widget code."""
        return not self._is_seen or time.monotonic() - self._watched_at < _WATCHED_S

    @property
    def is_touched(self) -> bool:
        """Whether a person used a page within the last minute; always true as above."""
        return not self._is_seen or time.monotonic() - self._touched_at < _TOUCHED_S

    async def rest(self, seconds: float) -> None:
        """Wait this long, or until a person comes back; then until a page is visible."""
        was_touched, woken = self.is_touched, asyncio.Event()
        deadline, mine = time.monotonic() + seconds, (asyncio.get_running_loop(), woken)
        self._resting.add(mine)
        try:
            while (left := deadline - time.monotonic()) > 0 or not self.is_watched:
                woken.clear()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(woken.wait(), left if left > 0 else None)
                if self.is_touched and not was_touched:
                    return
        finally:
            self._resting.discard(mine)

    async def arrived(self) -> None:
        """Wait until the kernel has all input that precedes a click.

        ipywidgets 8.1.9 delays a field's change until the kernel has taken the previous one, but never a click: "long" typed into a
        slow kernel is still "l" when its button acts. A page sends its messages in order, so the answer to a question sent now follows
        the delayed changes. Returns at once if no page ever sent a heartbeat, such as in a front end without our widget code, and
        after 5 s if the page was closed.
        """
        if not self._is_seen:
            return
        self._settles += 1
        number, answer = self._settles, asyncio.get_running_loop().create_future()
        self._settling[number] = answer
        self.send({"settle": number})
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(answer, _ARRIVES.total_seconds())
        self._settling.pop(number, None)

    def _note_presence(self, content: dict[str, Any]) -> None:
        now = time.monotonic()
        if not content.get("hidden"):
            self._watched_at = now
        self._touched_at = max(self._touched_at, now - content.get("untouched_ms", 0) / 1000)
        for loop, woken in tuple(self._resting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

    def answer(self, content: dict[str, Any]) -> None:
        self._is_seen = True
        if (waits := self._settling.pop(content.get("settled", 0), None)) is not None and not waits.done():
            waits.set_result(None)
        if "ask" in content:
            self._note_presence(content)
            self.send({"answer": content["ask"], "reading": self._shown.as_message(self._now(), self._limit)})
