"""Rate and time left of one phase, from reports that come as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mirrorlake.render import count, duration

# Long enough to smooth batches of a few seconds, short enough to follow a source that slows down.
WINDOW_S = 30.0
# A rate over less than this is noise.
LEAST_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPace:
    """One phase as it stands.

    `per_s` is units a second over the last half a minute, over all of it once it is finished; `left_s` are seconds. Both are
    None while nobody can know them.
    """

    phase: str
    done: int
    total: int | None
    unit: str
    elapsed_s: float
    per_s: float | None
    left_s: float | None

    @property
    def finished(self) -> bool:
        """Tell whether all is done."""
        return self.total is not None and self.done >= self.total

    def __str__(self) -> str:
        """Return the phase in words; a question mark stands for what is not known.

        >>> str(Shown(phase="land east", done=1200, total=5000, unit="records", elapsed_s=4, per_s=300.0, left_s=12.7))
        '1 200 of 5 000 records · 300 records/s · 12.7 s left'
        """
        of = "" if self.finished else f" of {_known(self.total, count)}"
        rate = f"{_known(self.per_s, count)} {self.unit}/s"
        end = f"in {_time(self.elapsed_s)}" if self.finished else f"{_known(self.left_s, _time)} left"
        return f"{count(self.done)}{of} {self.unit} · {rate} · {end}"


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return "?" if value is None else text(value)


def _time(seconds: float) -> str:
    return duration(seconds * 1000)


class Pace:
    """Follow one phase.

    The rate is what was done within a window, by the time until now: it falls while nothing happens, and steps that are
    far apart are looked at two at a time.

    Args:
        phase: its name.
        unit: of what is counted.
        at: when it began, in seconds of the clock that is used throughout.

    Example:
        >>> pace = Pace("land east", unit="records", at=0.0)
        >>> pace.note(500, 2000, at=5.0)
        >>> pace.shown(at=5.0).left_s
        15.0
    """

    def __init__(self, phase: str, *, unit: str, at: float) -> None:
        self._phase = phase
        self._unit = unit
        self._began = at
        self._ended: float | None = None
        self._first: int | None = None
        self._done = 0
        self._total: int | None = None
        self._steps: deque[tuple[float, int]] = deque([(at, 0)])

    def note(self, done: int, total: int | None, *, at: float) -> None:
        """Take a report; when a count goes back, as after a repair, counting starts over."""
        if (self._first is None and at == self._began) or done < self._done:
            # What was done before the first report was done at an unknown rate.
            self._steps = deque([(at, done)])
            self._first = done if self._first is None else min(self._first, done)
        elif done != self._steps[-1][1]:
            self._steps.append((at, done))
            while len(self._steps) > 2 and self._steps[1][0] <= at - WINDOW_S:
                self._steps.popleft()
        self._done, self._total = done, total
        finished = total is not None and done >= total
        self._ended = (self._ended if self._ended is not None else at) if finished else None

    def shown(self, *, at: float) -> ShownPace:
        """Return the phase as it stands at a time."""
        elapsed_s = (at if self._ended is None else self._ended) - self._began
        rate = self._rate(elapsed_s, at)
        left_s = None
        if self._total is not None and self._done >= self._total:
            left_s = 0.0
        elif self._total is not None and rate:
            left_s = (self._total - self._done) / rate
        return ShownPace(
            phase=self._phase,
            done=self._done,
            total=self._total,
            unit=self._unit,
            elapsed_s=elapsed_s,
            per_s=rate,
            left_s=left_s,
        )

    def _rate(self, elapsed_s: float, at: float) -> float | None:
        if self._ended is not None:
            return (self._done - (self._first or 0)) / elapsed_s if elapsed_s >= LEAST_S else None
        since, before = self._steps[0]
        if len(self._steps) < 2 or at - since < LEAST_S:
            return None
        return (self._done - before) / (at - since)
