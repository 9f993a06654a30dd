"""What the console knows: the newest answer to each question, how old it is, and series for charts. Plain Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# An hour at one sample in 5 s.
_KEPT = 720


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest answer: `value` as it was `at`, and the `problem` that kept a newer one away, None without one."""

    value: Any = None
    at: datetime | None = None
    problem: str | None = None

    def age(self, now: datetime) -> timedelta | None:
        """Return how old the value is; None where there never was one."""
        return None if self.at is None else now - self.at

    def is_stale(self, now: datetime, limit: timedelta) -> bool:
        """Tell whether the value is no longer what a person should act on."""
        age = self.age(now)
        return age is None or age > limit or self.problem is not None


class Readings:
    """Keep readings and series; views are called when something changed.

    Args:
        now: the clock.
    """

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self.now = now
        self._readings: dict[str, Reading] = {}
        self._series: dict[str, deque[tuple[datetime, float]]] = {}
        self._views: list[Callable[[], None]] = []

    def reading(self, name: str) -> Reading:
        """Return the newest reading; an empty one where there is none."""
        return self._readings.get(name, Reading())

    def put(self, name: str, value: Any) -> None:
        """Store an answer."""
        self._readings[name] = Reading(value, self.now())
        self._tell()

    def fail(self, name: str, problem: str) -> None:
        """Store a failure; the last value stays, and is stale from now on."""
        before = self.reading(name)
        self._readings[name] = Reading(before.value, before.at, problem)
        self._tell()

    def sample(self, name: str, value: float) -> None:
        """Add a point to a series; the oldest of 720 is dropped."""
        self._series.setdefault(name, deque(maxlen=_KEPT)).append((self.now(), value))

    def series(self, name: str) -> list[tuple[datetime, float]]:
        """Return a series, oldest point first."""
        return list(self._series.get(name, ()))

    def names(self) -> list[str]:
        """Return the names of the series, sorted."""
        return sorted(self._series)

    def watch(self, view: Callable[[], None]) -> None:
        """Call a view after each change."""
        self._views.append(view)

    def _tell(self) -> None:
        for view in self._views:
            view()
