"""Show a plotly figure of `notebook/charts.py` as a widget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import traitlets

from mirrorlake.notebook.console.browser_widget import BrowserWidget, script


class Chart(BrowserWidget):
    """Show the newest figure, and keep its zoom.

    plotly's own `FigureWidget` opens empty and gets its figure in messages, which a page that is still loading plotly (5 MB) loses.
    """

    _esm = script("chart.js")
    _css = Path(__file__).with_name("chart.css")

    figure: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True, resent=True)

    def show(self, figure: Any | None) -> None:
        self.figure = {} if figure is None else json.loads(figure.to_json())

    def answer(self, content: dict[str, Any]) -> None:
        """Send plotly to a page that has none yet."""
        if "plotly" in content:
            from plotly.offline import get_plotlyjs

            self.send({"plotly": True}, buffers=[get_plotlyjs().encode()])
