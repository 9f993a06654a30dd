"""Run the console's work off the kernel's thread, with every failure on a visible panel.

A button's handler runs on the kernel's thread, and its exceptions are lost (ipywidgets 8); a task's are silent until it is
collected. So every call to Spark or Kafka goes through `TaskRunner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import ipywidgets as widgets

from mirrorlake.notebook.console.error_panel import ErrorPanel

T = TypeVar("T")
Work = Coroutine[Any, Any, None]
Action = Callable[[], Work]


class TaskRunner:
    """Run work and show failures; `arrived` returns once the kernel has all input that precedes a click."""

    def __init__(self, errors: ErrorPanel, *, arrived: Callable[[], Awaitable[None]] | None = None) -> None:
        self._errors = errors
        self._arrived = arrived
        # A task without a reference may be collected before it is done.
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run a slow function, or one that calls Spark or Kafka, beside the kernel's thread."""
        return await asyncio.to_thread(function, *arguments, **options)

    def on_click(self, button: widgets.Button, action: Action, *, then: Callable[[], None] = lambda: None) -> None:
        """Let a button start an action; it is disabled until the action ends, then `then` is called."""

        def click(_: Any) -> None:
            # A browser may send a click before it learns that the button is disabled.
            if not button.disabled:
                self.start(self.run(action, button, then=then))

        button.on_click(click)

    async def run(self, action: Action, button: widgets.Button, *, then: Callable[[], None] = lambda: None) -> None:
        name = button.description
        button.disabled, button.description = True, f"{name} …"
        try:
            if self._arrived is not None:
                await self._arrived()
            await action()
        except Exception as error:  # every failure is shown: there is nobody above who could
            self._errors.show(error)
        finally:
            button.disabled, button.description = False, name
            then()

    def guarded(self, render: Callable[[], None]) -> Callable[..., None]:
        """Return a view's render function as a widget's observer that shows any exception."""

        def observe(*_: Any) -> None:
            try:
                render()
            except Exception as error:  # as above
                self._errors.show(error)

        return observe

    def debounced(self, render: Callable[[], None], *, after_s: float = 0.2) -> Callable[[], None]:
        """Return a function that calls `render` after `after_s` without further calls, so that typing is quick.

        Without an event loop, as in a script, it calls at once.
        """
        shown, waiting = self.guarded(render), list[asyncio.TimerHandle]()

        def later() -> None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                shown()
                return
            while waiting:
                waiting.pop().cancel()
            waiting.append(loop.call_later(after_s, shown))

        return later

    def start(self, work: Work) -> asyncio.Task[None] | None:
        """Start work in the kernel's loop; without a loop, as in a script or a test, run it now."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(work)
            return None
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.show(error)
