"""Charts that are changed in place: what `notebook/charts.py` draws, in a widget that a browser need not redraw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.notebook.charts import Measure, lag_chart


def draw(chart: Any, frame: Any, *, measure: Measure, objectives: Mapping[str, float] | None = None) -> Any | None:
    """Draw a frame of `lag_chart` and return the chart; None where plotly cannot draw in widgets (no anywidget).

    The given chart is changed in place, in one message to the browser, where lines and title are those it has: one that was
    zoomed stays zoomed. Any other gets a chart of its own, whole from the start: a browser that is still loading plotly (5 MB)
    drops messages to a chart, so lines that are added later never appear. `objectives` are those of `lag_chart`.
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
    # Else it keeps the width of its first moment; `pulse.js` says when that is no longer right.
    made.set_trait("_config", {**(made.trait_values()["_config"] or {}), "responsive": True})
    return made
