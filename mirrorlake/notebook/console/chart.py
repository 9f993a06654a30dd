"""Draw the charts of `notebook/charts.py` in a widget, and update them in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.notebook.charts import Measure, lag_chart


def draw(chart: Any, frame: Any, *, measure: Measure, objectives: Mapping[str, float] | None = None) -> Any | None:
    """Draw a frame of `lag_chart`; return the chart, or None if plotly cannot draw in widgets (no anywidget).

    A chart with the same lines and title is updated in place, in one message, so its zoom remains. Any other chart is a new
    widget, complete from the start: a browser that is still loading plotly (5 MB) drops messages to a chart, and lines added later
    would never appear. `objectives` are those of `lag_chart`.
    """
    found = lag_chart(frame, measure=measure, objectives=objectives)
    if chart is None or _kind(chart) != _kind(found):
        return _figure(found)
    lines = {line.name: line for line in found.data}
    with chart.batch_update():
        chart.layout.shapes, chart.layout.annotations = found.layout.shapes, found.layout.annotations
        for held in chart.data:
            held.x, held.y = lines[held.name].x, lines[held.name].y
    return chart


def _kind(chart: Any) -> tuple[str | None, set[str]]:
    return chart.layout.title.text, {line.name for line in chart.data}


def _figure(found: Any) -> Any | None:
    try:
        import plotly.graph_objects as go

        made = go.FigureWidget(found)
    except ImportError:
        return None
    # Otherwise the chart never changes its first width; `pulse.js` reports a change.
    made.set_trait("_config", {**(made.trait_values()["_config"] or {}), "responsive": True})
    return made
