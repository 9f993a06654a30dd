"""Draw interactive charts of lag from the frames of `mirror.lag`, as pandas (`.toPandas()`).

A figure shows the rows of its frame, aggregated over partitions as its docstring says; no query is run. Lines differ by dash,
marker and colour. Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mirrorlake.errors import UsageError
from mirrorlake.render import COLOURS

if TYPE_CHECKING:
    import pandas as pd

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_MARKERS = ("circle", "square", "triangle-up", "diamond", "x")
# A longer legend is not readable; the highest lines matter.
MAX_LINES = 30

# Readable on white and on black; the console's own styles use the theme's colours.
_GREY, _LINES = "#808080", "rgba(128,128,128,.3)"

Measure = Literal["time", "offsets"]
_PERCENTILES = ["p50_ms", "p95_ms", "p99_ms"]


def lag_chart(frame: pd.DataFrame, *, measure: Measure = "time", objectives: Mapping[str, float] | None = None) -> Any:
    """Return the lag of each hop of each flow over time: the largest time lag or the summed offset lag of its partitions.

    Args:
        frame: columns `observed_at`, `flow`, `hop`, `group_id`, `time_lag_ms`, `offset_lag`, as in `mirror.lag`. A null of one
            partition breaks the line: the unknown lag may be the largest.
        measure: `time` in seconds, or `offsets`.
        objectives: the agreed maximum time lag, in seconds by flow; a line each.

    Returns:
        A plotly `Figure`.

    Raises:
        UsageError: plotly is not installed, or a column is missing.

    Example:
        >>> ml.charts.lag_chart(mirror.lag.frame().toPandas())  # doctest: +SKIP
    """
    column = "time_lag_ms" if measure == "time" else "offset_lag"
    _require(frame, "observed_at", "flow", "hop", "group_id", column)
    by_group = [f" by {group}" if isinstance(group, str) else "" for group in frame.group_id]
    named = frame.assign(line=frame.flow + " " + frame.hop + by_group)
    by = named.groupby(["line", "observed_at"], sort=True)[column]
    # Without the unknown partition, the lag would seem to fall.
    found = (by.max() / 1000 if measure == "time" else by.sum()).where(by.count() == by.size())
    title, unit = ("time lag", "seconds") if measure == "time" else ("offset lag", "offsets")
    figure = _figure(title, unit, _series(found.reset_index(), "line", "observed_at", column))
    for flow, most_s in (objectives or {}).items() if measure == "time" else ():
        figure.add_hline(y=most_s, line_dash="dot", annotation_text=_text(f"objective of {flow}"))
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
    return _figure("produce to target", "seconds", _series(long, "line", "bucket", "s"))


def rpo_chart(frame: pd.DataFrame, *, objective_ms: float | None = None) -> Any:
    """Return the age of the records at risk over time, one line per flow, and the objective if there is one.

    Args:
        frame: columns `observed_at`, `flow`, `data_ms`; null breaks the line.
        objective_ms: the agreed RPO, in milliseconds.

    Raises:
        UsageError: plotly is not installed, or a column is missing.
    """
    _require(frame, "observed_at", "flow", "data_ms")
    figure = _figure("RPO", "seconds", _series(frame.assign(s=frame.data_ms / 1000), "flow", "observed_at", "s"))
    if objective_ms is not None:
        figure.add_hline(y=objective_ms / 1000, line_dash="dot", annotation_text="objective")
    return figure


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
    return _figure(f"positions of {group}", "upstream offset", _series(long, "line", "observed_at", "offset"))


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
        yield str(name), list(times), [None if pd.isna(each) else float(each) for each in rows[value]]


def _figure(title: str, unit: str, lines: Iterator[_Line]) -> Any:
    go = _plotly()
    ranked = sorted(lines, key=lambda line: (-max((v for v in line[2] if v is not None), default=-1.0), line[0]))
    shown = sorted(ranked[:MAX_LINES])
    figure = go.Figure()
    for index, (name, times, values) in enumerate(shown):
        figure.add_scatter(
            x=times,
            y=values,
            name=_text(name),
            mode="lines+markers",
            connectgaps=False,
            line={"color": COLOURS[index % len(COLOURS)], "dash": _DASHES[index % len(_DASHES)]},
            marker={"symbol": _MARKERS[(index + index // len(_DASHES)) % len(_MARKERS)], "size": 5},
        )
    left_out = f", the highest {len(shown)} of {len(ranked)} lines" if len(ranked) > len(shown) else ""
    figure.update_layout(
        title=_text(f"{title}{left_out}"),
        # A fixed background colour would be wrong in one of two themes.
        template="none",
        autosize=True,
        height=360,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _GREY},
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        legend={"orientation": "h", "y": -0.2},
        showlegend=True,
    )
    figure.update_xaxes(title="time (UTC)", gridcolor=_LINES, zerolinecolor=_LINES)
    figure.update_yaxes(title=unit, rangemode="tozero", gridcolor=_LINES, zerolinecolor=_LINES)
    return figure


def _text(text: str) -> str:
    """Escape markup that plotly would interpret in names and titles.

    >>> _text("<a href='javascript:x'>g</a>")
    "&lt;a href='javascript:x'&gt;g&lt;/a&gt;"
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise UsageError(
            "charts need plotly, which is not installed",
            consequence="tables need nothing more",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
    return go
