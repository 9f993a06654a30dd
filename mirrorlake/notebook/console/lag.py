"""Lag over time, as the sampler has written it: the chart below the live status."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mirrorlake.lag.lines import lag_lines
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.chart import draw, figure
from mirrorlake.notebook.console.desk import Desk
from mirrorlake.notebook.console.feeds import Feed
from mirrorlake.notebook.console.freshness import freshness
from mirrorlake.notebook.console.store import Readings

LAG = "lag"
# Samples come every few seconds, but reading an hour of them is a Spark job.
EVERY_S = 30.0
_STALE = timedelta(seconds=3 * EVERY_S)
_SPANS = (("the last 15 minutes", "15m"), ("the last hour", "1h"), ("the last 6 hours", "6h"), ("the last day", "1d"))
_MEASURES = (("time lag", "time"), ("offset lag", "offsets"))


class LagView:
    """Show the lag of every hop over time.

    Args:
        store: where the feed puts what it reads.
        desk: runs a look on demand.
        mirror: returns the mirror, None while there is none.
    """

    def __init__(self, store: Readings, desk: Desk, mirror: Callable[[], Mirror | None]) -> None:
        self._store = store
        self._mirror = mirror
        self.feed = Feed(LAG, self._ask, store=store, desk=desk, every_s=EVERY_S)
        self.since = controls.choice("lag-since", "Lag in", _SPANS, "1h")
        self.measure = controls.choice("lag-measure", "As", _MEASURES, "time")
        self.refresh = controls.button("lag-refresh", "Read the samples", tip="What mirrorlake sample has written")
        self.head = controls.html("lag-fresh")
        self.chart = figure("lag-chart")
        drawn = [self.chart] if self.chart is not None else []
        self.widget = controls.column(controls.row(self.since, self.measure, self.refresh), self.head, *drawn)
        self._drawn: object = None
        self._drawn_as = ""
        desk.on_click(self.refresh, self.feed.once)
        self.since.observe(lambda _: desk.start(desk.run(self.feed.once, self.refresh)), "value")
        self.measure.observe(desk.guarded(self.render), "value")
        store.watch(desk.guarded(self.render))
        self.render()

    def _ask(self) -> Any:
        mirror = self._mirror()
        return None if mirror is None else lag_lines(mirror.lag, self.since.value)

    def render(self) -> None:
        """Show the newest reading and how old it is."""
        reading = self._store.reading(LAG)
        self.head.value = freshness(reading, self._store.now(), _STALE)
        is_drawn = reading.value is self._drawn and self.measure.value == self._drawn_as
        if reading.value is None or self.chart is None or is_drawn:
            return
        self._drawn, self._drawn_as = reading.value, self.measure.value
        draw(self.chart, reading.value, measure=self.measure.value)
