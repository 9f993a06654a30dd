"""Poll a function, and store its newest result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.pulse import Pulse, Reading
from mirrorlake.notebook.console.session import Session

# Leaves a quarter of the 0.05 cores of an idle console to its heartbeat and server.
MAX_CORES = 0.035


class Poller:
    """Call `ask` beside the kernel's thread, store its result as `reading`, wait `every_s`, and repeat.

    `changed` is called after each result and each failure. `pulse` shows the age of the result, which is stale after three intervals.
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
        return self._task is not None and not self._task.done()

    def put(self, value: Any) -> None:
        self._keep(Reading(value, self._session.now()))
        self._changed()

    def fail(self, problem: str) -> None:
        self._keep(replace(self.reading, problem=problem, asking_since=None))
        self._changed()

    def forget(self) -> None:
        self._keep(Reading())

    async def once(self) -> None:
        self._keep(replace(self.reading, asking_since=self._session.now()))
        try:
            answer = await asyncio.to_thread(self._ask)
        except Exception as error:  # shown with the stale value; the next call may succeed
            self.fail(error_text(error))
        else:
            self.put(answer)

    def _keep(self, reading: Reading) -> None:
        self.reading = reading
        self.pulse.show(reading)

    async def _loop(self) -> None:
        while True:
            began = time.process_time()
            await self.once()
            # While nobody touches the console, its questions take their share of a core and no more.
            at_rest = max(self._every_s, (time.process_time() - began) / MAX_CORES)
            interval_s = self._every_s if self._session.pulse.is_touched else at_rest
            self.pulse.expect(interval_s)
            await self._session.pulse.rest(interval_s)

    def start(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if not self.is_running:
            self._task = self._session.runner.start(self._loop())

    def stop(self) -> None:
        if self._task is not None:
            if not self._task.done():
                # It may be another thread's (see `Pulse`).
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            self._task = None
            self._keep(replace(self.reading, asking_since=None))
