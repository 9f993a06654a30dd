"""Draw lines over time as SVG, for reports; no script, no network, no library.

Lines differ by dash, marker and colour, and each has its name at its end. The colours are Okabe and Ito's, which the
colour-blind can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from mirrorlake.render.content import escape, middle
from mirrorlake.render.numbers import format_count

# https://jfly.uni-koeln.de/color/ without black (the axes) and yellow (not readable on white).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "12 4")
MARKERS = ("●", "■", "▲", "◆", "×")
MAX_LINES = 12
MAX_POINTS = 240

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 220, 84, 216, 10, 26
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
class Frame:
    """The scale of the picture: times from `start` to `end`, values from 0 to `top`."""

    start: datetime
    end: datetime
    top: float

    def x(self, at: datetime) -> float:
        """Return the x of a time, in pixels from the left."""
        span = (self.end - self.start) / timedelta(microseconds=1) or 1.0
        part = (at - self.start) / timedelta(microseconds=1) / span
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the y of a value, in pixels from the top."""
        return _HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM)


def chart(title: str, lines: Iterable[Line], *, unit: Callable[[float], str] = format_count) -> str:
    """Draw lines over time as SVG with a legend, times in UTC; only the twelve highest, since more are not distinguishable.

    `unit` formats a value. Of too many points, the highest of neighbours remain.

    Example:
        >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
        >>> "<svg" in chart("lag", [Line("east->central", ((noon, 1.0), (noon + timedelta(minutes=1), 3.0)))])
        True
    """
    known = [line for line in lines if any(value is not None for _, value in line.points)]
    ranked = sorted(known, key=lambda line: -line.peak)[:MAX_LINES]
    chosen = [line for line in known if line in ranked]
    if not chosen:
        return f"<figure><figcaption>{escape(title)}: nothing is known of this time</figcaption></figure>"
    frame = frame_of(chosen)
    drawn = "".join(_line(frame, line, index, unit) for index, line in enumerate(chosen))
    drawn += _labels(frame, chosen)
    legend = "".join(_legend(line, index) for index, line in enumerate(chosen))
    left_out = f" (the highest {len(chosen)} of {len(known)} lines)" if len(known) > len(chosen) else ""
    return (
        f"<figure><figcaption>{escape(title)}{left_out}</figcaption>"
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'style="max-width:100%;font:11px system-ui,sans-serif" fill="currentColor">{_axes(frame, unit)}{drawn}</svg>'
        f"<div>{legend}</div></figure>"
    )


def frame_of(lines: Sequence[Line]) -> Frame:
    """Return the frame that encloses all points of the lines."""
    times = [at for line in lines for at, _ in line.points]
    return Frame(min(times), max(times), _round_up(max(line.peak for line in lines)))


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 2.5, 5, 10 times a power of ten, which ticks divide well."""
    if value < 1e-9:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10, 20) if step * power >= value)


def _axes(frame: Frame, unit: Callable[[float], str]) -> str:
    parts = []
    for quarter in range(5):
        value = frame.top * quarter / 4
        y = frame.y(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity=".2"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(unit(value))}</text>'
        )
    span = frame.end - frame.start
    form = "%m-%d %H:%M" if span > timedelta(hours=20) else "%H:%M:%S"
    for quarter in range(5 if span else 1):
        at = frame.start + span * quarter / 4
        anchor = ("start", "middle", "middle", "middle", "end")[quarter]
        text = at.astimezone(timezone.utc).strftime(form) + (" UTC" if quarter == 0 else "")
        parts.append(f'<text x="{frame.x(at):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{text}</text>')
    return "".join(parts)


def _line(frame: Frame, line: Line, index: int, unit: Callable[[float], str]) -> str:
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
            f"<title>{escape(f'{line.name} {when} {unit(value)}')}</title></text>"
        )
    drawn = "".join(
        f'<polyline points="{" ".join(stretch)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"/>'
        for stretch in stretches
        if len(stretch) > 1
    )
    return f'<g fill="{colour}">{drawn}{"".join(marks)}</g>'


def _labels(frame: Frame, lines: Sequence[Line]) -> str:
    """Write the name of each line at its end, without overlaps."""
    ends = []
    for index, line in enumerate(lines):
        at, value = max((point for point in line.points if point[1] is not None), key=lambda point: point[0])
        ends.append((frame.y(value or 0.0), index, line.name, frame.x(at)))
    parts, free = [], float(_TOP)
    left = len(ends)
    for y, index, name, x in sorted(ends):
        # Labels below need space, too.
        place = max(free, min(y, _HEIGHT - _BOTTOM - _LABEL_PX * (left - 1)))
        free, left = place + _LABEL_PX, left - 1
        colour, _, marker = _face(index)
        short, edge = escape(middle(name, _LABEL_LETTERS)), _WIDTH - _RIGHT + 12
        parts.append(
            f'<line x1="{x + 4:.1f}" y1="{y:.1f}" x2="{edge - 2}" y2="{place:.1f}" stroke="{colour}" opacity=".5"/>'
            f'<text x="{edge}" y="{place + 4:.1f}" font-size="10"><tspan fill="{colour}">{marker}</tspan> {short}</text>'
        )
    return "".join(parts)


def _legend(line: Line, index: int) -> str:
    colour, dash, marker = _face(index)
    return (
        f'<span style="white-space:nowrap;margin-right:1.2em"><svg width="34" height="10">'
        f'<line x1="0" x2="34" y1="5" y2="5" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"/></svg> '
        f'<span style="color:{colour}">{marker}</span> {escape(line.name)}</span>'
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
