"""Prepare charts over time: colours, limits and durations at round values; lines break where nothing was observed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from mirrorlake.render.numbers import format_duration

# Okabe and Ito's, which the colour-blind can distinguish: https://jfly.uni-koeln.de/color/ without black (the axes) and yellow (not
# readable on white).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MAX_POINTS = 240
# A limit is drawn up to so many times the highest value.
_LIMIT_IN_SIGHT = 3.0
# The least distance of two labels, as a part of the height.
_LABEL_APART = 0.07
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
_MAX_STEPS = 5
# An observation may come late; two in a row are missing.
_GAP = 3.0


def split_limits(limits: Mapping[str, float], peak: float) -> tuple[dict[str, float], list[str]]:
    """Return the limits that are in sight of the highest value, and words for those far above; all in milliseconds."""
    near = {name: value for name, value in limits.items() if value <= _LIMIT_IN_SIGHT * peak}
    return near, [
        f"{name}: {format_duration(value)}, above this picture" for name, value in limits.items() if name not in near
    ]


def limit_labels(limits: Mapping[str, float], top: float) -> dict[float, str]:
    """Return the label of each line by its value, where `top` is the upper edge: names of lines too close for two labels are at one.

    >>> limit_labels({"east": 60, "west": 60, "north": 61, "south": 30}, 100)
    {30: 'south', 60: '', 61: 'east; west; north'}
    """
    labels: dict[float, str] = {}
    above: float | None = None
    for name, value in sorted(limits.items(), key=lambda limit: limit[1]):
        names = labels.get(above, "") if above is not None and value - above < _LABEL_APART * top else ""
        if names and above is not None:
            labels[above] = ""
        labels[value] = "; ".join(filter(None, [names, name]))
        above = value
    return labels


def broken_at_gaps(points: Sequence[tuple[datetime, float | None]]) -> list[tuple[datetime, float | None]]:
    """Return points in the order of time with an unknown value in each gap, so that a line does not cross it.

    A gap is three times as long as the median distance of two points.

    >>> from datetime import timezone
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    >>> [value for _, value in broken_at_gaps([(noon + timedelta(minutes=minute), 1.0) for minute in (0, 1, 2, 9, 10)])]
    [1.0, 1.0, 1.0, None, 1.0, 1.0]
    """
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    most = _GAP * sorted(steps)[len(steps) // 2] if steps else timedelta()
    broken = list(points[:1])
    for step, point in zip(steps, points[1:], strict=True):
        if step > most:
            broken.append((point[0] - step / 2, None))
        broken.append(point)
    return broken


def duration_ticks(top_ms: float) -> dict[float, str]:
    """Return round durations in milliseconds from 0 to at least `top_ms`, which is a second or more, each with its text.

    >>> list(duration_ticks(250_000).values())
    ['0', '1 min', '2 min', '3 min', '4 min', '5 min']
    """
    least_s = top_ms / 1000 / _MAX_STEPS
    step_s = next((step for step in _STEPS_S if step >= least_s), math.ceil(least_s / _STEPS_S[-1]) * _STEPS_S[-1])
    ticks = (1000.0 * step_s * place for place in range(math.ceil(top_ms / 1000 / step_s) + 1))
    return {tick: _tick_text(tick) for tick in ticks}


def _tick_text(ms: float) -> str:
    number, unit, *rest = format_duration(ms).split(" ")
    number = number.removesuffix(".0")
    return "0" if number == "0" else " ".join([number, unit, *(rest if rest[:1] != ["0"] else ())])
