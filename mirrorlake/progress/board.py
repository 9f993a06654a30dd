"""The progress reports of some work, and when they are drawn."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

log = logging.getLogger(__name__)

# Fast enough for the eye; a notebook's browser gets a message for each drawing.
DRAW_INTERVAL_S = 0.25


class ProgressCallback(Protocol):
    """Take a report of some work: from any thread, any number of times, cheaply."""

    def __call__(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:
        """Take how many units of a phase are done, and its total, or None if that is unknown.

        A phase is finished when all of its total is done.
        """


def ignore_progress(phase: str, done: int, total: int | None, unit: str = "records") -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Times are in seconds of the board's clock; `first` is the amount done before the first report, at an unknown rate."""

    name: str
    unit: str
    began: float
    first: int
    done: int
    total: int | None
    ended: float | None = None

    @property
    def finished(self) -> bool:
        return self.total is not None and self.done >= self.total

    def elapsed_s(self, at: float) -> float:
        return (at if self.ended is None else self.ended) - self.began

    def reported(self, done: int, total: int | None, *, at: float) -> Phase:
        """Return the phase after a report; a count may go back, as after a repair."""
        after = replace(self, done=done, total=total, first=min(self.first, done))
        return replace(after, ended=(self.ended or at) if after.finished else None)


class Display(Protocol):
    """Draw phases; called by one thread only."""

    def show(self, phases: Sequence[Phase], at: float, /) -> None: ...

    def close(self, phases: Sequence[Phase], at: float, /) -> None:
        """Draw the final state of the phases, and release the display."""


class Board:
    """Collect the progress reports of one call's work, and draw them from the thread that made this board.

    Work never depends on it: a display that fails is dropped with one line in the log.
    """

    def __init__(
        self,
        display: Display | None,
        *,
        clock: Callable[[], float],
        every_s: float = DRAW_INTERVAL_S,
        after_s: float | None = None,
    ) -> None:
        self._display = display
        self._clock = clock
        self._every_s = every_s
        self._drawer = threading.get_ident()
        self._lock = threading.Lock()
        self._phases: dict[str, Phase] = {}
        self._next = clock() + (after_s or 0.0)
        self._draws_last = after_s is None
        self._soon: queue.SimpleQueue[Callable[[Display], None]] = queue.SimpleQueue()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._call()
        if self._draws_last:
            self._draw(last=True)

    def tell(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:
        """Take a report (see `ProgressCallback`); drawn at once in the drawing thread, at its next `tick` otherwise."""
        at = self._clock()
        with self._lock:
            before = self._phases.get(phase) or Phase(
                name=phase, unit=unit, began=at, first=done, done=done, total=total
            )
            self._phases[phase] = before.reported(done, total, at=at)
        self.tick()

    def call_soon(self, draw: Callable[[Display], None]) -> None:
        """Have the drawing thread call this with the display: now, or at its next `tick`.

        A display with `any_thread` is called at once.
        """
        if self._display is not None and getattr(self._display, "any_thread", False):
            draw(self._display)
            return
        self._soon.put(draw)
        self._call()

    def _call(self) -> None:
        while threading.get_ident() == self._drawer and not self._soon.empty():
            draw = self._soon.get()
            try:
                if self._display is not None:
                    draw(self._display)
            except Exception as error:
                self._drop(error)

    def tick(self) -> None:
        """Draw if it is time; for the loops in which the drawing thread waits for others."""
        self._call()
        if threading.get_ident() == self._drawer and self._clock() >= self._next:
            self._next, self._draws_last = self._clock() + self._every_s, True
            self._draw()

    def _draw(self, *, last: bool = False) -> None:
        if self._display is None:
            return
        with self._lock:
            phases = list(self._phases.values())
        try:
            (self._display.close if last else self._display.show)(phases, self._clock())
        except Exception as error:
            self._drop(error)

    def _drop(self, error: Exception) -> None:
        self._display = None
        log.warning("progress.not_shown why=%s: %s", type(error).__name__, str(error)[:200])
