"""Show lag over time below the live status, from this console's statuses or the sampler's samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.notebook.charts import lag_chart
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.chart import Chart
from mirrorlake.notebook.console.poller import Poller
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.status import LINE_COLUMNS, Events

# The sampler writes every half minute, and reading an hour of samples queries the lake.
EVERY_S = 30.0
SEEN = ""
_SPANS = (("Since opened", SEEN), ("15 min", "15m"), ("1 h", "1h"), ("24 h", "24h"), ("7 d", "7d"))
_MEASURES = (("Time lag", "time"), ("Offset lag", "offsets"))


class LagView(Panel):
    """Show the lag of every hop over time; draw nothing without two moments of data.

    `seen` returns the frame of this console's statuses, `events` what happened in the time that the console has read.
    """

    def __init__(
        self, session: Session, *, seen: Callable[[], Any], events: Callable[[], Events | None] = lambda: None
    ) -> None:
        super().__init__(session)
        self._seen = seen
        self._events = events
        self.poller = Poller(self._ask, session=session, every_s=EVERY_S, changed=self.render, name="lag-fresh")
        self.since = controls.dropdown("lag-since", "Lag over", _SPANS, SEEN)
        self.measure = controls.dropdown("lag-measure", "Measure", _MEASURES, "time")
        tip = "Read what the sampler of the mirror has written"
        self.refresh = self.button("lag-refresh", "Read the samples", self.poller.once, tip=tip)
        self.chart = Chart("lag-chart")
        self.sampled = controls.row(self.refresh, self.poller.pulse)
        self.note = controls.html("lag-note")
        self.widget = controls.column(controls.row(self.since, self.measure), self.sampled, self.note, self.chart)
        self._drawn: tuple[Any, str] = (None, "")
        self.on_change(self._choose, self.since)
        self.on_change(self.render, self.measure)
        self.render()

    def start(self) -> None:
        if self.since.value != SEEN:
            self.poller.start()

    def changed(self) -> None:
        if self.since.value == SEEN:
            self.render()

    def _choose(self) -> None:
        self._drawn = (None, "")
        self.poller.forget()
        self.render()
        if self.since.value == SEEN:
            self.poller.stop()
        else:
            self._runner.start(self._runner.run(self.poller.once, self.refresh))

    def _ask(self) -> Any:
        import pandas as pd

        mirror = self._session.mirror
        if mirror is None:
            return None
        try:
            return mirror.lag.lines(self.since.value)
        except UsageError:
            # A mirror that has not run yet has no samples; that is no fault.
            return pd.DataFrame([], columns=[*LINE_COLUMNS])

    def render(self) -> None:
        is_seen = self.since.value == SEEN
        self.sampled.layout.display = "none" if is_seen else None
        lines, measure = self._seen() if is_seen else self.poller.reading.value, self.measure.value
        # A line needs two moments.
        there = lines is not None and lines.observed_at.nunique() > 1
        is_empty = not is_seen and lines is not None and not there
        self.note.value = "Nothing was sampled in this time. A mirror that runs samples by itself." if is_empty else ""
        if lines is self._drawn[0] and measure == self._drawn[1]:
            return
        self._drawn = lines, measure
        if not there:
            self.chart.show(None)
            return
        if measure == "time" and is_seen:
            # The timestamps of records not landed are unknown.
            lines = lines[lines.hop != "landed"]
        self.chart.show(lag_chart(lines, measure=measure, objectives=self._objectives(), events=self._events()))

    def _objectives(self) -> dict[str, float]:
        """Return the RPO objectives by flow, in seconds."""
        mirror = self._session.mirror
        wanted = {} if mirror is None else {flow.name: flow.objectives.rpo for flow in mirror.config.flows}
        return {name: rpo.total_seconds() for name, rpo in wanted.items() if rpo is not None}
