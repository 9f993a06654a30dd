"""Charts that are changed in place: what `notebook/charts.py` draws, in a widget that a browser need not redraw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.notebook.charts import Measure, lag_chart


def figure(name: str) -> Any:
    """Return an empty chart that can be changed in place; None where plotly cannot draw in widgets (no anywidget)."""
    try:
        import plotly.graph_objects as go

        found = go.FigureWidget()
    except ImportError:
        return None
    # Else it keeps the width of its first moment; `pulse.js` says when that is no longer right.
    found.set_trait("_config", {**(found.trait_values()["_config"] or {}), "responsive": True})
    found.add_class(f"ml-{name}")
    return found


def draw(chart: Any, frame: Any, *, measure: Measure, objectives: Mapping[str, float] | None = None) -> None:
    """Change a chart of `figure` in place to a frame of `lag_chart`, in one message to the browser.

    Lines that stay are changed, new ones added; a chart that was zoomed stays zoomed. `objectives` are those of `lag_chart`.
    """
    found = lag_chart(frame, measure=measure, objectives=objectives) if len(frame) else None
    wanted = {trace.name: trace for trace in found.data} if found is not None else {}
    held = {trace.name: trace for trace in chart.data}
    if set(held) - set(wanted):
        chart.data, held = [], {}
    if found is not None and chart.layout.title.text != found.layout.title.text:
        chart.update_layout(found.layout)
    with chart.batch_update():
        if found is not None:
            chart.layout.shapes, chart.layout.annotations = found.layout.shapes, found.layout.annotations
        for name in held:
            held[name].x, held[name].y = wanted[name].x, wanted[name].y
    new = [trace for name, trace in wanted.items() if name not in held]
    if new:
        chart.add_traces(new)
