"""Draw lines over time as SVG, for reports; no script, no network, no library.

Lines differ by dash, marker and colour, and each has its name beside the picture, at the height of its end where there is
room. The colours are Okabe and Ito's, which the colour-blind can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from mirrorlake.render.content import breakable, escape, middle
from mirrorlake.render.time_axis import COUNTS, Unit, broken_at_gaps, time_format, time_ticks

# https://jfly.uni-koeln.de/color/ without black (the axes) and yellow (not readable on white).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "12 4")
MARKERS = ("●", "■", "▲", "◆", "×")
_MARK = "#E69F00"
MAX_LINES = 12
MAX_POINTS = 240
# A limit is drawn up to so many times the highest value.
_LIMIT_IN_SIGHT = 3.0

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 220, 84, 216, 10, 26
# The least distance of two labels, as a part of the height.
_LABEL_APART = 0.07
# The height of a 10 px label, and the letters of a name that fit beside the picture; the legend has the whole name.
_LABEL_PX, _LABEL_LETTERS = 13, 32


@dataclass(frozen=True, slots=True)
class Line:
    """A line: its name, and its points in time; a None value is unknown and breaks the line."""

    name: str
    points: tuple[tuple[datetime, float | None], ...]

    @property
    def peak(self) -> float:
        """The largest known value; -inf if none is known."""
        return max((value for _, value in self.points if value is not None), default=-math.inf)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: its name, and from when to when; a mark without an end is drawn as a line."""

    name: str
    start: datetime
    end: datetime | None = None

    def within(self, first: datetime, last: datetime) -> Mark | None:
        """Return the part of the mark between two times, or None if none is."""
        start, end = max(self.start, first), min(self.end or self.start, last)
        return None if start > end else Mark(self.name, start, None if self.end is None else end)


@dataclass(frozen=True, slots=True)
class Frame:
    """The scale of the picture: times from `start` to `end`, values at round `ticks` from 0 upwards."""

    start: datetime
    end: datetime
    ticks: tuple[float, ...]

    @property
    def top(self) -> float:
        """The value at the upper edge."""
        return self.ticks[-1]

    def x(self, at: datetime) -> float:
        """Return the x of a time, in pixels from the left."""
        span = (self.end - self.start) / timedelta(microseconds=1) or 1.0
        part = (at - self.start) / timedelta(microseconds=1) / span
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the y of a value, in pixels from the top."""
        return _HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM)


def chart(
    title: str,
    lines: Iterable[Line],
    *,
    unit: Unit = COUNTS,
    limits: Mapping[str, float] | None = None,
    marks: Iterable[Mark] = (),
) -> str:
    """Draw lines over time as SVG with a legend, times in UTC; only the twelve highest, since more are not distinguishable.

    A line is broken where nothing was observed. `limits` are agreed values by name, such as objectives: each is a dotted line, or a
    word in the title where it is so high that it would press the lines to the ground. Of too many points, the highest of
    neighbours remain. `marks` are shaded behind the lines, each with its name on hovering.

    Example:
        >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
        >>> "<svg" in chart("lag", [Line("east->central", ((noon, 1.0), (noon + timedelta(minutes=1), 3.0)))])
        True
    """
    broken = (Line(line.name, tuple(broken_at_gaps(line.points))) for line in lines)
    known = [line for line in broken if any(value is not None for _, value in line.points)]
    ranked = sorted(known, key=lambda line: -line.peak)[:MAX_LINES]
    chosen = [line for line in known if line in ranked]
    if not chosen:
        return f"<figure><figcaption>{breakable(title)}: nothing is known of this time</figcaption></figure>"
    peak = max(line.peak for line in chosen)
    near, far = split_limits(limits or {}, peak, unit)
    caption = breakable("; ".join([title, *far]))
    frame = frame_of(chosen, unit, top=max(near.values(), default=0.0))
    drawn = "".join(_mark(frame, mark) for mark in marks)
    drawn += "".join(_line(frame, line, index, unit) for index, line in enumerate(chosen))
    drawn += _labels(frame, chosen) + "".join(
        _limit(frame, name, value) for value, name in limit_labels(near, frame.top).items()
    )
    legend = "".join(_legend(line, index) for index, line in enumerate(chosen))
    left_out = f" (the highest {len(chosen)} of {len(known)} lines)" if len(known) > len(chosen) else ""
    return (
        f"<figure><figcaption>{caption}{left_out}</figcaption>"
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'style="max-width:100%;font:11px system-ui,sans-serif" fill="currentColor">{_axes(frame, unit)}{drawn}</svg>'
        f"<div>{legend}</div></figure>"
    )


def split_limits(limits: Mapping[str, float], peak: float, unit: Unit) -> tuple[dict[str, float], list[str]]:
    """Return the limits that are in sight of the highest value, and words for those far above."""
    near = {name: value for name, value in limits.items() if value <= _LIMIT_IN_SIGHT * peak}
    return near, [
        f"{name}: {unit.text(value)}, above this picture" for name, value in limits.items() if name not in near
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


def frame_of(lines: Sequence[Line], unit: Unit = COUNTS, *, top: float = 0.0) -> Frame:
    """Return the frame that encloses all points of the lines, and the value `top`."""
    times = [at for line in lines for at, _ in line.points]
    return Frame(min(times), max(times), tuple(unit.ticks(max(top, *(line.peak for line in lines)))))


def _axes(frame: Frame, unit: Unit) -> str:
    parts = []
    for value in frame.ticks:
        y = frame.y(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity=".2"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(unit.tick_text(value))}</text>'
        )
    form = time_format(frame.start, frame.end)
    for at in time_ticks(frame.start, frame.end):
        x = frame.x(at)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_HEIGHT - _BOTTOM}" y2="{_HEIGHT - _BOTTOM + 4}" stroke="currentColor"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{at.astimezone(timezone.utc):{form}}</text>'
        )
    # The first tick has half of its text at the left of the axis.
    parts.append(f'<text x="{_LEFT - 34}" y="{_HEIGHT - 8}" text-anchor="end">UTC</text>')
    return "".join(parts)


def _line(frame: Frame, line: Line, index: int, unit: Unit) -> str:
    colour, dash, marker = _face(index)
    points = _thinned(line.points)
    stretches: list[list[str]] = [[]]
    marks = []
    for at, value in points:
        if value is None:
            stretches.append([])
            continue
        x, y = frame.x(at), frame.y(value)
        stretches[-1].append(f"{x:.1f},{y:.1f}")
        when = at.astimezone(timezone.utc).isoformat(timespec="seconds")
        marks.append(
            f'<text x="{x:.1f}" y="{y + 3:.1f}" font-size="8" text-anchor="middle">{marker}'
            f"<title>{escape(f'{line.name} {when} {unit.text(value)}')}</title></text>"
        )
    drawn = "".join(
        f'<polyline points="{" ".join(stretch)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"/>'
        for stretch in stretches
        if len(stretch) > 1
    )
    return f'<g fill="{colour}">{drawn}{"".join(marks)}</g>'


def _limit(frame: Frame, name: str, value: float) -> str:
    y, right = frame.y(value), _WIDTH - _RIGHT
    return (
        f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" stroke-dasharray="1 4"/>'
        f'<text x="{right - 4}" y="{y - 3:.1f}" text-anchor="end" font-size="10">{escape(name)}</text>'
    )


def _mark(frame: Frame, mark: Mark) -> str:
    """Draw a mark as far as it is in the frame."""
    shown = mark.within(frame.start, frame.end)
    if shown is None:
        return ""
    x = frame.x(shown.start)
    width = max(1.5, frame.x(shown.end or shown.start) - x)
    return (
        f'<rect x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{_HEIGHT - _TOP - _BOTTOM}" fill="{_MARK}" opacity=".25">'
        f"<title>{escape(mark.name)}</title></rect>"
    )


def _labels(frame: Frame, lines: Sequence[Line]) -> str:
    """Write the name of each line beside the picture, without overlaps; nothing joins them, since it would look like growth."""
    ends = []
    for index, line in enumerate(lines):
        _, value = max((point for point in line.points if point[1] is not None), key=lambda point: point[0])
        ends.append((frame.y(value or 0.0), index, line.name))
    parts, free = [], float(_TOP)
    left = len(ends)
    for y, index, name in sorted(ends):
        # Labels below need space, too.
        place = max(free, min(y, _HEIGHT - _BOTTOM - _LABEL_PX * (left - 1)))
        free, left = place + _LABEL_PX, left - 1
        colour, _, marker = _face(index)
        short, edge = escape(middle(name, _LABEL_LETTERS)), _WIDTH - _RIGHT + 12
        parts.append(
            f'<text x="{edge}" y="{place + 4:.1f}" font-size="10"><tspan fill="{colour}">{marker}</tspan> {short}</text>'
        )
    return "".join(parts)


def _legend(line: Line, index: int) -> str:
    colour, dash, marker = _face(index)
    return (
        f'<span style="white-space:nowrap;margin-right:1.2em"><svg width="34" height="10">'
        f'<line x1="0" x2="34" y1="5" y2="5" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"/></svg> '
        f'<span style="color:{colour}">{marker}</span> {breakable(line.name)}</span>'
    )


def _face(index: int) -> tuple[str, str, str]:
    # When the dashes repeat, the markers are shifted by one: no two lines are alike without colours.
    return COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[(index + index // 5) % len(MARKERS)]


def _thinned(points: Sequence[tuple[datetime, float | None]]) -> list[tuple[datetime, float | None]]:
    """Return at most `MAX_POINTS` points: the highest of neighbours, so no peak is lost; unknown values stay unknown."""
    if len(points) <= MAX_POINTS:
        return list(points)
    size = math.ceil(len(points) / MAX_POINTS)
    groups = (points[first : first + size] for first in range(0, len(points), size))
    return [max(group, key=lambda point: -math.inf if point[1] is None else point[1]) for group in groups]
