"""Progress as log lines: for scheduled jobs, pipes and files, where a bar would only be in the way."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mirrorlake.progress.pace import ShownPace

# The command line lets lines of this logger pass where it holds others back.
LOGGER = "mirrorlake.progress"
LINE_EVERY_S = 10.0


class LogLines:
    """Log one line a phase every few seconds, at level INFO; what is done sooner says nothing.

    Args:
        every_s: seconds between two lines.
        log: the logger.
    """

    def __init__(self, *, every_s: float = LINE_EVERY_S, log: logging.Logger | None = None) -> None:
        self._every_s = every_s
        self._log = log or logging.getLogger(LOGGER)
        self._next: float | None = None
        self._said: dict[str, bool] = {}

    def show(self, phases: Sequence[ShownPace], at: float, /) -> None:
        """Log where it is time."""
        if self._next is None:
            self._next = at + self._every_s
        if at >= self._next:
            self._next = at + self._every_s
            self._say(phases)

    def close(self, phases: Sequence[ShownPace], /) -> None:
        """Log how the phases ended that were logged before."""
        self._say([one for one in phases if one.phase in self._said])

    def _say(self, phases: Sequence[ShownPace]) -> None:
        for one in phases:
            # How a phase ended is said once.
            if not (one.finished and self._said.get(one.phase)):
                self._said[one.phase] = one.finished
                self._log.info(
                    "progress phase=%r done=%d total=%s unit=%s per_s=%s left_s=%s",
                    one.phase,
                    one.done,
                    "?" if one.total is None else one.total,
                    one.unit,
                    "?" if one.per_s is None else f"{one.per_s:.1f}",
                    "?" if one.left_s is None else f"{one.left_s:.0f}",
                )
