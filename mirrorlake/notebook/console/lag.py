"""Lag over time, as the sampler has written it: the chart below the live status."""

from __future__ import annotations

from typing import Any

from mirrorlake.lag import lag_lines
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.chart import draw, figure
from mirrorlake.notebook.console.feed import Feed
from mirrorlake.notebook.console.session import Session

# Samples come every few seconds, but reading an hour of them is a Spark job.
EVERY_S = 30.0
_SPANS = (("the last 15 minutes", "15m"), ("the last hour", "1h"), ("the last 6 hours", "6h"), ("the last day", "1d"))
_MEASURES = (("time lag", "time"), ("offset lag", "offsets"))


class LagView:
    """Show the lag of every hop over time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.feed = Feed(self._ask, session=session, every_s=EVERY_S, changed=self.render)
        self.since = controls.dropdown("lag-since", "Lag over", _SPANS, "1h")
        self.measure = controls.dropdown("lag-measure", "Measure", _MEASURES, "time")
        self.refresh = controls.button("lag-refresh", "Read the samples", tip="What mirrorlake sample has written")
        self.head = controls.html("lag-fresh")
        self.chart = figure("lag-chart")
        drawn = [self.chart] if self.chart is not None else []
        self.widget = controls.column(controls.row(self.since, self.measure, self.refresh), self.head, *drawn)
        self._drawn: tuple[Any, str] = (None, "")
        runner = session.runner
        runner.on_click(self.refresh, self.feed.once)
        self.since.observe(lambda _: runner.start(runner.run(self.feed.once, self.refresh)), "value")
        self.measure.observe(runner.guarded(self.render), "value")
        self.render()

    def _ask(self) -> Any:
        mirror = self._session.mirror
        return None if mirror is None else lag_lines(mirror.lag, self.since.value)

    def render(self) -> None:
        """Show the newest samples and how old they are."""
        self.head.value = self.feed.freshness
        lines, measure = self.feed.reading.value, self.measure.value
        if lines is None or self.chart is None or (lines is self._drawn[0] and measure == self._drawn[1]):
            return
        self._drawn = lines, measure
        draw(self.chart, lines, measure=measure)
