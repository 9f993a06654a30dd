"""Where the console's work is done: off the kernel's thread, with every failure on a strip that a person sees.

A button's handler runs on the kernel's thread and its exceptions go nowhere (ipywidgets 8); a task's are silent until it is
collected. Everything that asks Spark or Kafka therefore goes through `Desk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

import ipywidgets as widgets

from mirrorlake.config.secrets import redact, typed_values
from mirrorlake.errors import MirrorlakeError
from mirrorlake.render import escape, moment

T = TypeVar("T")
Action = Callable[[], Coroutine[Any, Any, None]]
_MOST = 5
_FRAME = "border-left:4px solid var(--jp-error-color1,#d64545);padding:.3em .8em;margin:.2em 0;white-space:pre-wrap"


def safe(text: str) -> str:
    """Return a text without anything that was typed into a password field of this session."""
    return redact(text, [value for value in typed_values() if value])


def told(error: BaseException) -> str:
    """Return an error as a person reads it: cause, consequence and next step, or its kind and first line."""
    if isinstance(error, MirrorlakeError):
        return safe(str(error))
    first = next((line for line in str(error).splitlines() if line.strip()), "no further details")
    return safe(f"{type(error).__name__}: {first[:400]}")


class Strip(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no annotations
    """What went wrong, newest first, until a person clears it; nothing is shown while nothing did."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.problems: list[str] = []
        self._text = widgets.HTML()
        clear = widgets.Button(description="Clear", tooltip="Dismiss these messages")
        clear.add_class("ml-strip-clear")
        clear.on_click(lambda _: self.clear())
        super().__init__([self._text, clear])
        self.add_class("ml-strip")
        self._render()

    def show(self, problem: str) -> None:
        """Show a problem; one that is shown already comes to the top."""
        self.problems = [problem, *(one for one in self.problems if one != problem)][:_MOST]
        self._render()

    def clear(self) -> None:
        """Clear all messages."""
        self.problems = []
        self._render()

    def _render(self) -> None:
        lines = "".join(
            f'<div style="{_FRAME}"><b>✗</b> ' + "<br>".join(escape(line) for line in problem.splitlines()) + "</div>"
            for problem in self.problems
        )
        at = f"<div>{escape(moment(self._now(), date=False))}</div>" if self.problems else ""
        self._text.value = lines + at
        self.layout.display = None if self.problems else "none"


class Desk:
    """Run work and show what fails.

    Args:
        strip: where failures are shown.
    """

    def __init__(self, strip: Strip) -> None:
        self.strip = strip
        # A task that nobody holds may be collected before it is done.
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run a function that asks Spark or Kafka, or takes its time, beside the kernel's thread."""
        return await asyncio.to_thread(function, *arguments, **options)

    def on_click(self, button: widgets.Button, action: Action, *, settle: Callable[[], None] = lambda: None) -> None:
        """Let a button start an action; it is disabled and says so until the action has ended, then `settle` is called."""

        def click(_: Any) -> None:
            # A browser may send the click that it made before it learned that the button is disabled.
            if not button.disabled:
                self.start(self.run(action, button, settle=settle))

        button.on_click(click)

    async def run(self, action: Action, button: widgets.Button, *, settle: Callable[[], None] = lambda: None) -> None:
        """Run an action; whatever it raises is shown."""
        name = button.description
        button.disabled, button.description = True, f"{name} …"
        try:
            await action()
        except Exception as error:  # every failure is shown: there is nobody above who could
            self.strip.show(told(error))
        finally:
            button.disabled, button.description = False, name
            settle()

    def guarded(self, render: Callable[[], None]) -> Callable[..., None]:
        """Return a view's render function as a widget's observer: whatever it raises is shown."""

        def observe(*_: Any) -> None:
            try:
                render()
            except Exception as error:  # as above
                self.strip.show(told(error))

        return observe

    def start(self, work: Awaitable[None]) -> None:
        """Start work in the kernel's loop; where none runs, as in a script or a test, do it now."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(_whole(work))
            return
        task = loop.create_task(_whole(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Cancel what still runs."""
        for task in list(self._tasks):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.strip.show(told(error))


async def _whole(work: Awaitable[None]) -> None:
    await work
