"""Divide the axes of charts over time at round times and values, and break lines where nothing was observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from statistics import median

from mirrorlake.render.numbers import format_count, format_duration

# Seconds between two ticks: what clocks divide well.
_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
)
# An observation may come late; two in a row are missing.
_GAP = 3.0


def broken_at_gaps(points: Sequence[tuple[datetime, float | None]]) -> list[tuple[datetime, float | None]]:
    """Return points in the order of time with an unknown value in each gap, so that a line does not cross it.

    A gap is three times as long as the median distance of two points.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    >>> [value for _, value in broken_at_gaps([(noon + timedelta(minutes=minute), 1.0) for minute in (0, 1, 2, 9, 10)])]
    [1.0, 1.0, 1.0, None, 1.0, 1.0]
    """
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    most = timedelta(seconds=_GAP * median(step.total_seconds() for step in steps)) if steps else timedelta()
    broken = list(points[:1])
    for step, point in zip(steps, points[1:], strict=True):
        if step > most:
            broken.append((point[0] - step / 2, None))
        broken.append(point)
    return broken


def time_ticks(start: datetime, end: datetime, *, most: int = 6) -> list[datetime]:
    """Return round times in UTC from start to end, in at most `most` steps, or both where none is between them.

    >>> [f"{at:%H:%M}" for at in time_ticks(datetime(2026, 1, 1, 12, 3, 7), datetime(2026, 1, 1, 12, 58))]
    ['12:10', '12:20', '12:30', '12:40', '12:50']
    """
    first = start if start.tzinfo is None else start.astimezone(timezone.utc)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    step = timedelta(seconds=step_s((end - start).total_seconds(), most))
    number = -((midnight - first) // step)
    ticks = []
    while (at := midnight + number * step) <= end:
        ticks.append(at)
        number += 1
    return ticks or sorted({start, end})


def time_format(start: datetime, end: datetime) -> str:
    """Return the format of ticks between two times: seconds in short spans, the date in long ones.

    >>> time_format(datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, 2)), time_format(datetime(2026, 1, 1), datetime(2026, 1, 3))
    ('%H:%M:%S', '%m-%d %H:%M')
    """
    span = end - start
    if span > timedelta(hours=20):
        return "%m-%d %H:%M"
    return "%H:%M:%S" if span < timedelta(minutes=6) else "%H:%M"


def _duration_ticks(top_ms: float, most: int) -> list[float]:
    step = step_s(top_ms / 1000, most) * 1000
    return _multiples(step, top_ms)


def _count_ticks(top: float, most: int) -> list[float]:
    return _multiples(_round_up(top / most), top)


def _multiples(step: float, top: float) -> list[float]:
    # Six tenths divide into three fifths, whatever their floating point says.
    return [round(place * step, 9) for place in range(math.ceil(top / step - 1e-9) + 1)]


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(value, 1e-9)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def _tick_duration(ms: float) -> str:
    number, unit, *rest = format_duration(ms).split(" ")
    number = number.removesuffix(".0")
    return "0" if number == "0" else " ".join([number, unit, *(rest if rest[:1] != ["0"] else ())])


@dataclass(frozen=True, slots=True)
class Unit:
    """What the values of a chart are: how one is written, on an axis and alone, and where an axis is divided."""

    text: Callable[[float], str]
    tick_text: Callable[[float], str]
    _ticks: Callable[[float, int], list[float]]

    def ticks(self, top: float, *, most: int = 5) -> list[float]:
        """Return round values from 0 to at least `top`, in at most `most` steps.

        >>> [DURATIONS.tick_text(tick) for tick in DURATIONS.ticks(250_000)], COUNTS.ticks(70, most=4)
        (['0', '1 min', '2 min', '3 min', '4 min', '5 min'], [0.0, 20.0, 40.0, 60.0, 80.0])
        """
        return self._ticks(max(top, 1e-9), most)


def step_s(span_s: float, most: int) -> float:
    """Return the least round number of seconds that divides a span into at most `most` parts."""
    least = max(span_s / most, 1e-6)
    if least > _STEPS_S[-1]:
        return float(math.ceil(least / _STEPS_S[-1]) * _STEPS_S[-1])
    if least > 0.5:
        return next(step for step in _STEPS_S if step >= least)
    return _round_up(least)


COUNTS = Unit(format_count, format_count, _count_ticks)
DURATIONS = Unit(format_duration, _tick_duration, _duration_ticks)
"""Durations in milliseconds."""
