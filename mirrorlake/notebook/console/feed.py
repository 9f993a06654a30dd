"""Feeds: questions that are asked again and again, and the newest answer of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.pulse import Pulse, Reading
from mirrorlake.notebook.console.session import Session


class Feed:
    """Ask one question in a thread, keep the answer as `reading`, wait, ask again.

    Args:
        ask: the question; runs beside the kernel's thread.
        session: runs the feed.
        every_s: seconds between the end of one answer and the next question.
        changed: called after each answer and each failure.
        name: of the class of `pulse`, which shows how fresh the answer is; after three questions without one it is stale.
    """

    def __init__(
        self,
        ask: Callable[[], Any],
        *,
        session: Session,
        every_s: float,
        changed: Callable[[], None],
        name: str = "fresh",
    ) -> None:
        self.reading = Reading()
        self.pulse = Pulse(name, now=session.now, limit=timedelta(seconds=3 * every_s))
        self._ask = ask
        self._session = session
        self._every_s = every_s
        self._changed = session.runner.guarded(changed)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it asks again and again."""
        return self._task is not None and not self._task.done()

    def put(self, value: Any) -> None:
        """Keep an answer."""
        self._keep(Reading(value, self._session.now()))
        self._changed()

    def fail(self, problem: str) -> None:
        """Keep a failure; the last value stays, and is stale from now on."""
        self._keep(replace(self.reading, problem=problem, asking_since=None))
        self._changed()

    def forget(self) -> None:
        """Forget the answer: another question is asked from now on."""
        self._keep(Reading())

    async def once(self) -> None:
        """Ask once."""
        self._keep(replace(self.reading, asking_since=self._session.now()))
        try:
            answer = await asyncio.to_thread(self._ask)
        except Exception as error:  # kept and shown as stale data with its reason; the next question may be answered
            self.fail(error_text(error))
        else:
            self.put(answer)

    def _keep(self, reading: Reading) -> None:
        self.reading = reading
        self.pulse.show(reading)

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
            self._keep(replace(self.reading, asking_since=None))
