"""Live status: every flow, partition and hop, with charts that move while the kernel is free for other work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.mirror import Mirror
from mirrorlake.model.status import Status
from mirrorlake.notebook.charts import lag_chart
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.desk import Desk
from mirrorlake.notebook.console.feeds import Feed
from mirrorlake.notebook.console.store import Reading, Store
from mirrorlake.show import badge, duration, escape, moment

STATUS = "status"
EVERY_S = 5.0
# Three questions without an answer.
STALE = timedelta(seconds=3 * EVERY_S)
HOPS = ("landed", "republished")
_COLUMNS = ("observed_at", "flow", "hop", "group_id", "offset_lag", "time_lag_ms")


def hop_lags(status: Status) -> dict[tuple[str, str], int]:
    """Return the offset lag of each hop of each flow: what is not landed yet, what is not republished yet.

    >>> from mirrorlake.model.status import FlowStatus, PartitionStatus
    >>> row = PartitionStatus(topic="t", partition=0, source_end=9, landed=7, republished=4, offset_lag=5,
    ...                       time_lag_ms=None, verdict="behind")
    >>> hop_lags(Status(flows=(FlowStatus(flow="f", partitions=(row,), observed_at=None),), observed_at=None))
    {('f', 'landed'): 2, ('f', 'republished'): 5}
    """
    found: dict[tuple[str, str], int] = {}
    for name, flow in status.items():
        found[name, "landed"] = sum(max(0, row.source_end - row.landed) for row in flow)
        found[name, "republished"] = sum(row.offset_lag for row in flow)
    return found


def lag_frame(store: Store) -> Any:
    """Return the samples of the store as `lag_chart` takes them: a pandas frame, one row a flow, hop and moment."""
    import pandas as pd

    rows = [(at, *name.split("|", 1), None, lag, None) for name in store.names() for at, lag in store.series(name)]
    return pd.DataFrame(rows, columns=[*_COLUMNS])


def freshness(reading: Reading, now: datetime, limit: timedelta = STALE) -> str:
    """Return how fresh a reading is as HTML: stale data is marked, and why it is stale is said."""
    age = reading.age(now)
    if age is None:
        return badge("waiting for the first answer", "off").html() if reading.problem is None else _stale(reading)
    said = f" as of {escape(moment(reading.at, date=False))}, {escape(duration(age))} ago"
    return (_stale(reading) if reading.is_stale(now, limit) else badge("live", "good").html()) + said


def _stale(reading: Reading) -> str:
    why = "" if reading.problem is None else f" <span>{escape(reading.problem.splitlines()[0])}</span>"
    return badge("stale", "bad").html() + why


class StatusView:
    """Show the store's status and its history.

    Args:
        store: where the feed puts what it hears.
        desk: runs a look on demand.
        mirror: returns the mirror, None while there is none.
    """

    def __init__(self, store: Store, desk: Desk, mirror: Callable[[], Mirror | None]) -> None:
        self._store = store
        self._mirror = mirror
        self.feed = Feed(STATUS, self._ask, store=store, desk=desk, every_s=EVERY_S, then=self._sample)
        self.head = controls.html("status-fresh")
        self.rows = controls.html("status-rows")
        self.refresh = controls.button("status-refresh", "Look now")
        self.live = controls.switch("status-live", f"Look every {EVERY_S:.0f} s", value=False)
        self.chart = _figure()
        self.widget = controls.column(
            controls.row(self.refresh, self.live),
            self.head,
            *([self.chart] if self.chart is not None else []),
            self.rows,
        )
        self._drawn: object = None
        desk.on_click(self.refresh, self.feed.once)
        self.live.observe(desk.guarded(self._switch), "value")
        store.watch(desk.guarded(self.render))
        self.render()

    def _switch(self) -> None:
        if self.live.value:
            self.feed.start()
        else:
            self.feed.stop()

    def _ask(self) -> Status | None:
        mirror = self._mirror()
        return None if mirror is None else mirror.status()

    def _sample(self, status: Status | None) -> None:
        if status is not None:
            for (flow, hop), lag in hop_lags(status).items():
                self._store.sample(f"{flow}|{hop}", lag)

    def render(self) -> None:
        """Show the newest reading and how old it is; the chart moves only with a new one."""
        reading = self._store.reading(STATUS)
        self.head.value = freshness(reading, self._store.now())
        if reading.value is None:
            self.rows.value = "" if self._mirror() is not None else "There is no mirror yet: set one up first."
            return
        if reading.at == self._drawn:
            return
        self._drawn = reading.at
        self.rows.value = reading.value.to_html()
        if self.chart is not None:
            draw(self.chart, lag_frame(self._store))


def _figure() -> Any:
    """Return an empty chart that can be changed in place; None where plotly cannot draw in widgets (no anywidget)."""
    try:
        import plotly.graph_objects as go

        figure = go.FigureWidget()
    except ImportError:
        return None
    figure.add_class("ml-status-chart")
    return figure


def draw(chart: Any, frame: Any) -> None:
    """Change a chart in place to what the frame says, in one message to the browser.

    Lines that stay are changed, new ones added; a chart that was zoomed stays zoomed.
    """
    wanted = {trace.name: trace for trace in lag_chart(frame, measure="offsets").data} if len(frame) else {}
    held = {trace.name: trace for trace in chart.data}
    if set(held) - set(wanted):
        chart.data = []
        held = {}
    if not held:
        figure = lag_chart(frame, measure="offsets")
        chart.update_layout(figure.layout)
    with chart.batch_update():
        for name, trace in wanted.items():
            if name in held:
                held[name].x, held[name].y = trace.x, trace.y
    new = [trace for name, trace in wanted.items() if name not in held]
    if new:
        chart.add_traces(new)
