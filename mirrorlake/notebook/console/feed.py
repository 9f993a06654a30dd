"""Feeds: questions that are asked again and again, and how fresh the newest answer is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.session import Session
from mirrorlake.render import badge, duration, escape, moment


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest answer: `value` as it was `at`, and the `problem` that kept a newer one away, None without one."""

    value: Any = None
    at: datetime | None = None
    problem: str | None = None

    def is_stale(self, now: datetime, limit: timedelta) -> bool:
        """Tell whether the value is too old to act on, or a newer one failed."""
        return self.at is None or now - self.at > limit or self.problem is not None

    def freshness(self, now: datetime, limit: timedelta) -> str:
        """Return how fresh the value is as HTML: stale data is marked in words, with the reason."""
        if self.at is None and self.problem is None:
            return badge("waiting for the first answer", "off").html()
        why = "" if self.problem is None else f" <span>{escape(self.problem.splitlines()[0])}</span>"
        mark = badge("stale", "bad").html() + why if self.is_stale(now, limit) else badge("live", "good").html()
        if self.at is None:
            return mark
        return f"{mark} as of {escape(moment(self.at, date=False))}, {escape(duration(now - self.at))} ago"


class Feed:
    """Ask one question in a thread, keep the answer as `reading`, wait, ask again.

    Args:
        ask: the question; runs beside the kernel's thread.
        session: runs the feed.
        every_s: seconds between the end of one answer and the next question.
        changed: called after each answer and each failure.
    """

    def __init__(
        self, ask: Callable[[], Any], *, session: Session, every_s: float, changed: Callable[[], None]
    ) -> None:
        self.reading = Reading()
        self._ask = ask
        self._session = session
        self._every_s = every_s
        self._changed = session.runner.guarded(changed)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it asks again and again."""
        return self._task is not None and not self._task.done()

    @property
    def freshness(self) -> str:
        """How fresh the answer is, as HTML; after three questions without an answer it is stale."""
        return self.reading.freshness(self._session.now(), timedelta(seconds=3 * self._every_s))

    def put(self, value: Any) -> None:
        """Keep an answer."""
        self.reading = Reading(value, self._session.now())
        self._changed()

    def fail(self, problem: str) -> None:
        """Keep a failure; the last value stays, and is stale from now on."""
        self.reading = replace(self.reading, problem=problem)
        self._changed()

    async def once(self) -> None:
        """Ask once."""
        try:
            answer = await asyncio.to_thread(self._ask)
        except Exception as error:  # kept and shown as stale data with its reason; the next question may be answered
            self.fail(error_text(error))
        else:
            self.put(answer)

    async def _loop(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(self._every_s)

    def start(self) -> None:
        """Start asking; does nothing where it runs already, or where no event loop runs."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if not self.is_running:
            self._task = self._session.runner.start(self._loop())

    def stop(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
