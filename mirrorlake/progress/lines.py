"""Progress as log lines: for scheduled jobs, pipes and files, where a bar would only disturb."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mirrorlake.progress.board import Phase
from mirrorlake.progress.run_message import RunMessage

# The command line shows lines of this logger even if it hides those of others.
LOGGER = "mirrorlake.progress"
LINE_INTERVAL_S = 10.0
# A rate over less than this is noise.
_MIN_S = 0.5

log = logging.getLogger(LOGGER)


class LogLines:
    """Log one line a phase every ten seconds, at level INFO; work that is done sooner logs nothing."""

    def __init__(self) -> None:
        self._next: float | None = None
        # Whether the end of a phase was logged, by its name.
        self._logged: dict[str, bool] = {}

    def show(self, phases: Sequence[Phase], at: float, /) -> None:
        if self._next is None:
            self._next = at + LINE_INTERVAL_S
        if at >= self._next:
            self._next = at + LINE_INTERVAL_S
            self._log(phases, at)

    def close(self, phases: Sequence[Phase], at: float, /) -> None:
        self._log([phase for phase in phases if phase.name in self._logged], at)

    def say(self, said: RunMessage, /) -> None:
        log.info("%s", said)

    def _log(self, phases: Sequence[Phase], at: float) -> None:
        for phase in phases:
            if self._logged.get(phase.name):
                continue
            self._logged[phase.name] = phase.finished
            elapsed_s = phase.elapsed_s(at)
            per_s = (phase.done - phase.first) / elapsed_s if elapsed_s >= _MIN_S else None
            left = None if phase.total is None else max(0, phase.total - phase.done)
            left_s = 0 if left == 0 else left / per_s if left and per_s else None
            log.info(
                "progress phase=%r done=%d total=%s unit=%s per_s=%s left_s=%s",
                phase.name,
                phase.done,
                "?" if phase.total is None else phase.total,
                phase.unit,
                "?" if per_s is None else f"{per_s:.1f}",
                "?" if left_s is None else f"{left_s:.0f}",
            )
