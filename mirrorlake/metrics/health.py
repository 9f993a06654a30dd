"""Whether a running mirror makes turns, for a probe that starts it again where it does not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable

# A batch of Spark's for a slow target may take minutes; a restart in the middle of it helps nobody.
_PATIENCE_S = 900.0
# The supervisor looks every few seconds; a lake that is slow to answer takes longer.
_LOOK_S = 120.0


class Health:
    """Hear of turns, and judge by them.

    A stream that is parked, paused or not wanted is not judged: a new start helps none of these. A mirror whose target is away
    is healthy, too; whether records arrive is the business of the verdicts (docs/alerts.md).

    Args:
        patience_s: how long a stream may go without a turn.
        clock: seconds that only grow.

    Example:
        >>> health = Health()
        >>> health.problems()
        ['the streams are being started']
        >>> health.runs(["land east"])
        >>> health.problems()
        ['land east makes its first turn']
        >>> health.turned("land east")
        >>> health.problems()
        []
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
        """Note a turn of a stream: a batch that ended well, or a look that found nothing new."""
        with self._lock:
            self._turns[stream] = self._clock()
            self._has_turned = True

    def runs(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Note a look of the supervisor, which streams run and should make turns, and the longest pause between two turns."""
        now = self._clock()
        with self._lock:
            self._looked, self._pause_s = now, pause_s
            self._running = {name: self._running.get(name, now) for name in streams}

    def problems(self) -> list[str]:
        """Say why the mirror should be started again, or is not up yet; nothing where it is well."""
        now = self._clock()
        with self._lock:
            if self._looked is None:
                return ["the streams are being started"]
            if now - self._looked > _LOOK_S:
                return [f"nobody has looked after the streams for {now - self._looked:.0f} s"]
            ages = {name: now - max(since, self._turns.get(name, since)) for name, since in self._running.items()}
            patience_s = self._patience_s + self._pause_s
            if self._running and not self._has_turned:
                return [f"{next(iter(self._running))} makes its first turn"]
        return [f"{name} has made no turn for {age:.0f} s" for name, age in ages.items() if age > patience_s]

    def document(self) -> tuple[bool, bytes]:
        """Return whether the mirror is well, and what `/healthz` answers."""
        problems = self.problems()
        with self._lock:
            running = sorted(self._running)
        return not problems, json.dumps({"live": not problems, "streams": running, "problems": problems}).encode()
