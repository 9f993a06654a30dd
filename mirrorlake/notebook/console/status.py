"""Live status: every flow, partition and hop, with charts that move while the kernel is free for other work."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from mirrorlake.lag import LINE_COLUMNS, Status
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.chart import draw, figure
from mirrorlake.notebook.console.feed import Feed
from mirrorlake.notebook.console.lag import LagView
from mirrorlake.notebook.console.session import Session

EVERY_S = 5.0
# An hour.
_MOST_LOOKS = 720


class StatusView:
    """Show the newest status and what was seen since the console was opened."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.feed = Feed(self._ask, session=session, every_s=EVERY_S, changed=self.render)
        self.head = controls.html("status-fresh")
        self.rows = controls.html("status-rows")
        self.refresh = controls.button("status-refresh", "Refresh")
        self.live = controls.checkbox("status-live", f"Refresh every {EVERY_S:.0f} s", value=False)
        self.chart = figure("status-chart")
        self.lag = LagView(session)
        drawn = [self.chart] if self.chart is not None else []
        buttons = controls.row(self.refresh, self.live)
        self.widget = controls.column(buttons, self.head, *drawn, self.rows, self.lag.widget)
        self._drawn: Status | None = None
        self._seen: deque[tuple[datetime, Status]] = deque(maxlen=_MOST_LOOKS)
        session.runner.on_click(self.refresh, self.feed.once)
        self.live.observe(session.runner.guarded(self._switch), "value")
        self.render()

    def start(self) -> None:
        """Refresh every few seconds, where an event loop runs."""
        self.live.value = True
        # The box may be ticked since a loop that has ended, as after a script's `asyncio.run`.
        self.feed.start()
        self.lag.feed.start()

    def stop(self) -> None:
        """Stop refreshing."""
        self.live.value = False
        self.feed.stop()
        self.lag.feed.stop()

    def _switch(self) -> None:
        (self.start if self.live.value else self.stop)()

    def _ask(self) -> Status | None:
        mirror = self._session.mirror
        return None if mirror is None else mirror.status()

    def lag_frame(self) -> Any:
        """Make the pandas frame that `lag_chart` takes: one row a flow, hop and moment."""
        import pandas as pd

        rows = [
            (at, name, hop, None, offset_lag, None)
            for at, seen in self._seen
            for name, flow in seen.items()
            for hop, offset_lag in (("landed", flow.not_landed), ("republished", flow.offset_lag))
        ]
        return pd.DataFrame(rows, columns=[*LINE_COLUMNS])

    def render(self) -> None:
        """Show the newest status and how old it is; the chart moves only with a new one."""
        self.head.value = self.feed.freshness
        status = self.feed.reading.value
        if status is None:
            self.rows.value = "" if self._session.mirror is not None else "There is no mirror yet: set one up first."
        elif status is not self._drawn:
            self._drawn = status
            self._seen.append((self._session.now(), status))
            self.rows.value = status.to_html()
            if self.chart is not None:
                draw(self.chart, self.lag_frame(), measure="offsets")
