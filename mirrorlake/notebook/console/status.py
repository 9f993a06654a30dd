"""Live status: every flow, partition and hop, with charts that move while the kernel is free for other work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mirrorlake.lag.lines import LINE_COLUMNS
from mirrorlake.lag.status_model import Status
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.chart import draw, figure
from mirrorlake.notebook.console.desk import Desk
from mirrorlake.notebook.console.feeds import Feed
from mirrorlake.notebook.console.freshness import freshness
from mirrorlake.notebook.console.lag import LagView
from mirrorlake.notebook.console.store import Readings

STATUS = "status"
EVERY_S = 5.0
# Three questions without an answer.
STALE = timedelta(seconds=3 * EVERY_S)


def hop_lags(status: Status) -> dict[tuple[str, str], int]:
    """Return the offset lag of each hop of each flow: what is not landed yet, what is not republished yet.

    >>> from mirrorlake.lag.status_model import FlowStatus, PartitionStatus
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


def lag_frame(store: Readings) -> Any:
    """Return the samples of the store as `lag_chart` takes them: a pandas frame, one row a flow, hop and moment."""
    import pandas as pd

    rows = [(at, *name.split("|", 1), None, lag, None) for name in store.names() for at, lag in store.series(name)]
    return pd.DataFrame(rows, columns=[*LINE_COLUMNS])


class StatusView:
    """Show the store's status and its history.

    Args:
        store: where the feed puts what it hears.
        desk: runs a look on demand.
        mirror: returns the mirror, None while there is none.
    """

    def __init__(self, store: Readings, desk: Desk, mirror: Callable[[], Mirror | None]) -> None:
        self._store = store
        self._mirror = mirror
        self.feed = Feed(STATUS, self._ask, store=store, desk=desk, every_s=EVERY_S, then=self._sample)
        self.head = controls.html("status-fresh")
        self.rows = controls.html("status-rows")
        self.refresh = controls.button("status-refresh", "Look now")
        self.live = controls.switch("status-live", f"Look every {EVERY_S:.0f} s", value=False)
        self.chart = figure("status-chart")
        self.lag = LagView(store, desk, mirror)
        drawn = [self.chart] if self.chart is not None else []
        buttons = controls.row(self.refresh, self.live)
        self.widget = controls.column(buttons, self.head, *drawn, self.rows, self.lag.widget)
        self._drawn: object = None
        desk.on_click(self.refresh, self.feed.once)
        self.live.observe(desk.guarded(self._switch), "value")
        store.watch(desk.guarded(self.render))
        self.render()

    def start(self) -> None:
        """Look every few seconds, where an event loop runs."""
        self.live.value = True
        # The box may be ticked since a loop that has ended, as after a script's `asyncio.run`.
        self.feed.start()
        self.lag.feed.start()

    def stop(self) -> None:
        """Stop looking."""
        self.live.value = False
        self.feed.stop()
        self.lag.feed.stop()

    def _switch(self) -> None:
        (self.start if self.live.value else self.stop)()

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
        self.head.value = freshness(reading, self._store.now(), STALE)
        if reading.value is None:
            self.rows.value = "" if self._mirror() is not None else "There is no mirror yet: set one up first."
            return
        if reading.value is self._drawn:
            return
        self._drawn = reading.value
        self.rows.value = reading.value.to_html()
        if self.chart is not None:
            draw(self.chart, lag_frame(self._store), measure="offsets")
