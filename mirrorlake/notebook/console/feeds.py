"""Feeds: questions that are asked again and again, each in a task of its own; views only show what the store holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mirrorlake.notebook.console.desk import Desk, told
from mirrorlake.notebook.console.store import Readings


class Feed:
    """Ask one question in a thread, put the answer into the store, wait, ask again.

    Args:
        name: the reading's name in the store.
        ask: the question; runs beside the kernel's thread.
        store: where answers and failures go.
        desk: shows what ends the feed itself.
        every_s: seconds between the end of one answer and the next question.
        then: called with each answer, before the views are.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[], Any],
        *,
        store: Readings,
        desk: Desk,
        every_s: float,
        then: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.every_s = every_s
        self._ask = ask
        self._store = store
        self._desk = desk
        self._then = then
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it asks again and again."""
        return self._task is not None and not self._task.done()

    async def once(self) -> None:
        """Ask once."""
        try:
            answer = await asyncio.to_thread(self._ask)
        except Exception as error:  # kept and shown as stale data with its reason; the next question may be answered
            self._store.fail(self.name, told(error))
            return
        self._then(answer)
        self._store.put(self.name, answer)

    async def _loop(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(self.every_s)

    def start(self) -> None:
        """Start asking; does nothing where it runs already, or where there is no event loop."""
        if self.is_running:
            return
        try:
            self._task = asyncio.get_running_loop().create_task(self._loop())
        except RuntimeError:
            return
        self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._desk.strip.show(f"the feed '{self.name}' ended: {told(error)}")
