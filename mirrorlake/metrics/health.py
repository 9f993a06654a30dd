"""Judge whether a running mirror makes progress, for a probe that restarts it otherwise."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable

from mirrorlake.render import format_duration

# A batch of Spark's for a slow target may take minutes; a restart in the middle would not help.
_PATIENCE_S = 900.0
# The supervisor polls every few seconds; a slow lake takes longer.
_LOOK_S = 120.0


class Health:
    """Record the turns of streams, and judge by them.

    Parked, paused and unwanted streams are not judged: a restart helps none of them. A mirror with an unreachable target is
    healthy, too; whether records arrive is what the verdicts say (docs/alerts.md).

    `patience_s` is how long a stream may go without a turn.
    """

    def __init__(self, *, patience_s: float = _PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._turns: dict[str, float] = {}
        self._running: dict[str, float] = {}
        self._pause_s = 0.0
        self._looked: float | None = None
        self._has_turned = False

    def turned(self, stream: str) -> None:
        """Record a turn of a stream: a batch that succeeded, or a poll with nothing new."""
        with self._lock:
            self._turns[stream] = self._clock()
            self._has_turned = True

    def runs(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Record a supervisor's poll: the streams that should make turns, and the longest pause between two turns."""
        now = self._clock()
        with self._lock:
            self._looked, self._pause_s = now, pause_s
            self._running = {name: self._running.get(name, now) for name in streams}

    def problems(self) -> list[str]:
        """Return why the mirror should be restarted, or is not up yet; [] if it is healthy."""
        now = self._clock()
        with self._lock:
            if self._looked is None:
                return ["the streams are being started"]
            if now - self._looked > _LOOK_S:
                return [f"nobody has looked after the streams for {format_duration((now - self._looked) * 1000)}"]
            ages = {name: now - max(since, self._turns.get(name, since)) for name, since in self._running.items()}
            patience_s = self._patience_s + self._pause_s
            if self._running and not self._has_turned:
                return [f"{next(iter(self._running))} makes its first turn"]
        return [
            f"{name} has made no turn for {format_duration(age * 1000)}"
            for name, age in ages.items()
            if age > patience_s
        ]

    def document(self) -> tuple[bool, bytes]:
        """Return whether the mirror is healthy, and the document of `/healthz`."""
        problems = self.problems()
        with self._lock:
            running = sorted(self._running)
        return not problems, json.dumps({"live": not problems, "streams": running, "problems": problems}).encode()
