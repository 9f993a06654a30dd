"""Draw interactive charts of lag from the frames of `mirror.lag`, as pandas (`.toPandas()`).

A figure shows the rows of its frame, aggregated over partitions as its docstring says; no query is run. Lines differ by dash,
marker and colour. Times are in UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from mirrorlake.errors import UsageError
from mirrorlake.render import COLOURS, broken_at_gaps, duration_ticks, limit_labels, middle, split_limits

if TYPE_CHECKING:
    import pandas as pd

    from mirrorlake.status import Event, Events

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_MARKERS = ("circle", "square", "triangle-up", "diamond", "x")
# A longer legend is not readable; the highest lines matter.
MAX_LINES = 30
# More marks of events would hide the lines.
_MAX_MARKS = 60
_MAX_NAME = 30

# Readable on white and on black; the console's own styles use the theme's colours.
_GREY, _LINES = "#808080", "rgba(128,128,128,.3)"

_SHADE = "rgba(230,159,0,.2)"

Measure = Literal["time", "offsets"]
_PERCENTILES = ["p50_ms", "p95_ms", "p99_ms"]


def lag_chart(
    frame: pd.DataFrame,
    *,
    measure: Measure = "time",
    objectives: Mapping[str, float] | None = None,
    events: Events | None = None,
) -> Any:
    """Return the lag of each hop of each flow over time: the largest time lag or the summed offset lag of its partitions.

    Consumer groups have a picture of their own below: an idle one is days behind, and would press the mirror's lines to the ground.

    Args:
        frame: columns `observed_at`, `flow`, `hop`, `group_id`, `time_lag_ms`, `offset_lag`, as in `mirror.lag`. A null of one
            partition breaks the line: the unknown lag may be the largest.
        measure: `time` in seconds, or `offsets`.
        objectives: the agreed maximum time lag, in seconds by flow; a line each, or a word in the title where it is far above.
        events: what happened meanwhile (`mirror.events`): outages and pauses are shaded, other events are lines.

    Returns:
        A plotly `Figure`.

    Raises:
        UsageError: plotly is not installed, or a column is missing.

    Example:
        >>> ml.charts.lag_chart(mirror.lag.over("1h").pandas())  # doctest: +SKIP
    """
    column = "time_lag_ms" if measure == "time" else "offset_lag"
    _require(frame, "observed_at", "flow", "hop", "group_id", column)
    by_group = [f" by {group}" if isinstance(group, str) else "" for group in frame.group_id]
    named = frame.assign(line=frame.flow + " " + frame.hop + by_group)
    by = named.groupby(["line", "observed_at"], sort=True)[column]
    # Without the unknown partition, the lag would seem to fall.
    found = (by.max() / 1000 if measure == "time" else by.sum()).where(by.count() == by.size())
    lines = list(_series(found.reset_index(), "line", "observed_at", column))
    groups = set(named.line[named.group_id.notna()])
    title, unit = ("time lag", "seconds") if measure == "time" else ("offset lag", "offsets")
    limits = {f"objective of {flow}": most_s for flow, most_s in (objectives or {}).items() if measure == "time"}
    of_mirror, of_groups = ([line for line in lines if (line[0] in groups) is wanted] for wanted in (False, True))
    figure = _figure([(title, of_mirror), (f"{title} of consumer groups", of_groups)], unit, limits=limits)
    if events is not None and len(frame):
        _draw_events(figure, events, frame.observed_at)
    return figure


def latency_chart(frame: pd.DataFrame) -> Any:
    """Return percentiles of the seconds from a record's timestamp to its target, one line per flow, topic and percentile.

    Args:
        frame: columns `bucket`, `flow`, `topic`, `p50_ms`, `p95_ms`, `p99_ms`.

    Raises:
        UsageError: plotly is not installed, or a column is missing.
    """
    _require(frame, "bucket", "flow", "topic", *_PERCENTILES)
    long = frame.melt(id_vars=["bucket", "flow", "topic"], value_vars=_PERCENTILES, value_name="ms")
    figures = long.variable.str.removesuffix("_ms")
    long = long.assign(line=long.flow + " " + long.topic + " " + figures, s=long.ms / 1000)
    return _figure([("produce to target", _series(long, "line", "bucket", "s"))], "seconds")


def rpo_chart(frame: pd.DataFrame, *, objective_ms: float | None = None) -> Any:
    """Return the age of the records at risk over time, one line per flow, and the objective if there is one.

    Args:
        frame: columns `observed_at`, `flow`, `data_ms`; null breaks the line.
        objective_ms: the agreed RPO, in milliseconds.

    Raises:
        UsageError: plotly is not installed, or a column is missing.
    """
    _require(frame, "observed_at", "flow", "data_ms")
    lines = _series(frame.assign(s=frame.data_ms / 1000), "flow", "observed_at", "s")
    limits = {} if objective_ms is None else {"objective": objective_ms / 1000}
    return _figure([("RPO", lines)], "seconds", limits=limits)


def group_chart(frame: pd.DataFrame, group: str) -> Any:
    """Return the history of a consumer group: its position and the end, by topic and partition, in upstream offsets.

    Args:
        frame: columns `observed_at`, `flow`, `topic`, `partition`, `group_id`, `position`, `end_position`.
        group: the group's id.

    Raises:
        UsageError: plotly is not installed, a column is missing, or the group is not in the frame.
    """
    _require(frame, "observed_at", "flow", "topic", "partition", "group_id", "position", "end_position")
    own = frame[frame.group_id == group]
    if own.empty:
        known = ", ".join(sorted(frame.group_id.dropna().unique())[:20]) or "none"
        raise UsageError(f"no positions of the group '{group}' are known at this time", remedy=f"known groups: {known}")
    places = ["observed_at", "flow", "topic", "partition"]
    long = own.melt(id_vars=places, value_vars=["position", "end_position"], value_name="offset")
    place = long.flow + " " + long.topic + "-" + long.partition.astype(str)
    long["line"] = place + " " + long.variable.replace("end_position", "end")
    return _figure([(f"positions of {group}", _series(long, "line", "observed_at", "offset"))], "upstream offset")


def events_chart(events: Events) -> Any:
    """Return a timeline: a bar from start to end for each event that lasted, a point for each other one, by what it happened to.

    Args:
        events: as `mirror.events` returns them; the newest are drawn.

    Returns:
        A plotly `Figure`.

    Raises:
        UsageError: plotly is not installed.

    Example:
        >>> ml.charts.events_chart(mirror.events("24h"))  # doctest: +SKIP
    """
    figure = _figure([("events", [])], "")
    shown = events.newest(MAX_LINES)
    by_kind: dict[str, list[Event]] = {}
    for event in shown:
        by_kind.setdefault(event.kind, []).append(event)
    for index, (kind, several) in enumerate(by_kind.items()):
        ends = [event.until or (events.end if event.is_open else event.at) for event in several]
        # A bar of a second would not be seen in a day.
        least_ms = (events.end - events.start).total_seconds() * 1000 / 200
        figure.add_bar(
            name=_text(kind),
            orientation="h",
            y=[_text(middle(event.subject, _MAX_NAME)) for event in several],
            base=[_naive(event.at) for event in several],
            x=[
                max(least_ms, (end - event.at).total_seconds() * 1000) for event, end in zip(several, ends, strict=True)
            ],
            hovertext=[_text(str(event)) for event in several],
            hoverinfo="text",
            marker_color=COLOURS[index % len(COLOURS)],
        )
    rows = len({event.subject for event in shown})
    figure.update_layout(barmode="overlay", height=150 + 26 * rows, legend_y=-70 / (26 * rows + 10))
    figure.update_xaxes(type="date", range=[_naive(events.start), _naive(events.end)], nticks=5, tickangle=0)
    figure.update_yaxes(automargin=True)
    return figure


def _naive(at: datetime) -> datetime:
    """Return a UTC time without its zone, since plotly shows times as they are."""
    return at.astimezone(timezone.utc).replace(tzinfo=None)


def _draw_events(figure: Any, events: Events, observed_at: pd.Series) -> None:
    """Shade the events that last, and draw a line for others, behind the lines and within their times."""
    import pandas as pd

    times = pd.to_datetime(observed_at, utc=True)
    first, last = times.min().to_pydatetime(), times.max().to_pydatetime()
    for event in events.newest(_MAX_MARKS):
        until = event.until or (events.end if event.is_open else None)
        start, end = max(event.at, first), min(until or event.at, last)
        if start > end:
            continue
        # At the bottom: the names of objectives are at the top.
        named = {
            "annotation_text": _text(event.kind),
            "annotation_textangle": -90,
            "annotation_font_size": 10,
            "annotation_position": "bottom right" if until is None else "inside bottom left",
        }
        if until is None:
            figure.add_vline(
                x=_naive(start), line_dash="dot", line_color=_GREY, line_width=1, row="all", col=1, **named
            )
        else:
            figure.add_vrect(
                x0=_naive(start),
                x1=_naive(end),
                fillcolor=_SHADE,
                line_width=0,
                layer="below",
                row="all",
                col=1,
                **named,
            )


def _require(frame: pd.DataFrame, *columns: str) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise UsageError(
            f"the frame has no column {', '.join(missing)}",
            remedy=f"give one with {', '.join(columns)}; mirror.lag makes such frames",
        )


_Line = tuple[str, Sequence[Any], Sequence[float | None]]


def _series(frame: pd.DataFrame, line: str, time: str, value: str) -> Iterator[_Line]:
    import pandas as pd

    for name, rows in frame.sort_values([line, time]).groupby(line, sort=True):
        # Plotly shows times without their zone, which the axis names.
        times = pd.to_datetime(rows[time], utc=True).dt.tz_localize(None)
        values = (None if pd.isna(each) else float(each) for each in rows[value])
        points = broken_at_gaps(list(zip(times, values, strict=True)))
        yield str(name), [at for at, _ in points], [each for _, each in points]


def _figure(
    pictures: Iterable[tuple[str, Iterable[_Line]]], unit: str, *, limits: Mapping[str, float] | None = None
) -> Any:
    """Draw pictures below one another on one axis of time; the limits belong to the first."""
    shown = [(title, *_highest(lines)) for title, lines in pictures]
    shown = [one for one in shown if one[1]] or shown[:1]
    figure = _plotly_subplots()(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.12)
    index = 0
    for row, (title, lines, left_out) in enumerate(shown, start=1):
        for name, times, values in lines:
            figure.add_scatter(
                x=times,
                y=values,
                name=_text(name),
                mode="lines+markers",
                connectgaps=False,
                line={"color": COLOURS[index % len(COLOURS)], "dash": _DASHES[index % len(_DASHES)]},
                marker={"symbol": _MARKERS[(index + index // len(_DASHES)) % len(_MARKERS)], "size": 5},
                row=row,
                col=1,
            )
            index += 1
        peak = max((value for _, _, values in lines for value in values if value is not None), default=0.0)
        in_ms = {name: 1000 * value for name, value in (limits or {}).items()} if row == 1 else {}
        near, far = split_limits(in_ms, 1000 * peak)
        figure.add_annotation(
            text=_text("; ".join([title + left_out, *far])),
            showarrow=False,
            font={"size": 14},
            x=0,
            xref="paper",
            xanchor="left",
            y=1,
            yref=f"y{row if row > 1 else ''} domain",
            yanchor="bottom",
            # Clear of the highest tick.
            yshift=6,
        )
        top = max(peak, *(value / 1000 for value in near.values()), 0.0)
        for value, name in limit_labels(near, 1000 * top).items():
            figure.add_hline(
                y=value / 1000, line_dash="dot", line_color=_GREY, annotation_text=_text(name), row=row, col=1
            )
        figure.update_yaxes(range=[0, top * 1.08] if near else None, **_ticks(unit, top), row=row, col=1)
    figure.update_layout(
        # A fixed background colour would be wrong in one of two themes.
        template="none",
        autosize=True,
        # A page of 800 pixels has two names beside each other.
        height=100 + 260 * len(shown) + 19 * math.ceil(index / 2),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _GREY},
        margin={"l": 80, "r": 20, "t": 40, "b": 40},
        # 70 pixels below the axis, past its title.
        legend={"orientation": "h", "y": -70 / (260 * len(shown)), "yanchor": "top", "x": 0},
        showlegend=True,
        # A person's zoom stays while the title does; another title is another measure, whose zoom would fit nothing.
        uirevision=shown[0][0],
    )
    figure.update_xaxes(gridcolor=_LINES, zerolinecolor=_LINES)
    figure.update_xaxes(title={"text": "time (UTC)", "standoff": 10}, row=len(shown), col=1)
    figure.update_yaxes(rangemode="tozero", gridcolor=_LINES, zerolinecolor=_LINES)
    return figure


def _highest(lines: Iterable[_Line]) -> tuple[list[_Line], str]:
    """Return the highest lines in the order of their names, and what to say of those that are left out."""
    ranked = sorted(lines, key=lambda line: (-max((v for v in line[2] if v is not None), default=-1.0), line[0]))
    left_out = f", the highest {MAX_LINES} of {len(ranked)} lines" if len(ranked) > MAX_LINES else ""
    return sorted(ranked[:MAX_LINES]), left_out


def _ticks(unit: str, top: float) -> dict[str, Any]:
    # Below a minute, plotly divides seconds well, and anew when a person zooms.
    if unit != "seconds" or top < 60:
        return {"title": unit}
    ticks = duration_ticks(1000 * top)
    return {"title": "", "tickvals": [value / 1000 for value in ticks], "ticktext": [*ticks.values()]}


def _text(text: str) -> str:
    """Escape markup that plotly would interpret in names and titles.

    >>> _text("<a href='javascript:x'>g</a>")
    "&lt;a href='javascript:x'&gt;g&lt;/a&gt;"
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plotly_subplots() -> Any:
    try:
        from plotly.subplots import make_subplots
    except ImportError:
        raise UsageError(
            "charts need plotly, which is not installed",
            consequence="tables need nothing more",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
    return make_subplots
