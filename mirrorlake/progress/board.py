"""The progress reports of some work, and when they are drawn."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from mirrorlake.progress.pace import Pace, ShownPace

log = logging.getLogger(__name__)

# Fast enough for the eye; a notebook's browser gets a message for each.
DRAW_EVERY_S = 0.25


class Tell(Protocol):
    """Take a report from whoever works: any thread, any number of times, cheaply."""

    def __call__(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:
        """Take how many units of a phase are done, and of how many; None while that is not known.

        A phase is finished when all of its total is done.
        """


def silent(phase: str, done: int, total: int | None, unit: str = "records") -> None:
    """Take a report and show it to nobody."""


class Display(Protocol):
    """Draw phases somewhere; called by one thread only."""

    def show(self, phases: Sequence[ShownPace], at: float, /) -> None:
        """Draw the phases as they stand at a time, in seconds of the board's clock."""

    def close(self, phases: Sequence[ShownPace], /) -> None:
        """Draw the final state of the phases, and release the display."""


class Board:
    """Keep the progress reports of one call's work, and draw them from the thread that made this board.

    Work never depends on it: a display that fails is dropped with one line in the log.

    Args:
        display: draws; None draws nothing.
        clock: seconds that only grow.
        every_s: the time between two drawings.

    Example:
        >>> from mirrorlake.progress.lines import LogLines
        >>> with Board(LogLines(), clock=time.monotonic) as board:  # doctest: +SKIP
        ...     board.tell("land east", 0, 5000)
    """

    def __init__(self, display: Display | None, *, clock: Callable[[], float], every_s: float = DRAW_EVERY_S) -> None:
        self._display = display
        self._clock = clock
        self._every_s = every_s
        self._drawer = threading.get_ident()
        self._lock = threading.Lock()
        self._paces: dict[str, Pace] = {}
        self._next = clock()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw(last=True)

    def tell(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:
        """Take a report (see `Tell`); drawn at once where this thread draws, at its next `tick` otherwise."""
        at = self._clock()
        with self._lock:
            if phase not in self._paces:
                self._paces[phase] = Pace(phase, unit=unit, at=at)
            self._paces[phase].note(done, total, at=at)
        self.tick()

    def tick(self) -> None:
        """Draw where it is time; for the loops in which the thread that draws waits for others."""
        if threading.get_ident() == self._drawer and self._clock() >= self._next:
            self._next = self._clock() + self._every_s
            self._draw()

    def phases(self) -> list[ShownPace]:
        """Return the phases as they stand, in the order in which they began."""
        with self._lock:
            return [pace.shown(at=self._clock()) for pace in self._paces.values()]

    def _draw(self, *, last: bool = False) -> None:
        if self._display is None:
            return
        try:
            if last:
                self._display.close(self.phases())
            else:
                self._display.show(self.phases(), self._clock())
        except Exception as error:
            self._display = None
            log.warning("progress.not_shown why=%s: %s", type(error).__name__, str(error)[:200])
