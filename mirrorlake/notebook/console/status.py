"""Live status: every flow and topic with its verdict, by partition on opening; below it the lag over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.notebook.console.lag import LagView
from mirrorlake.notebook.console.poller import Poller
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import format_count, format_duration, link
from mirrorlake.status import (
    LINE_COLUMNS,
    Events,
    FlowStatus,
    PartitionStatus,
    Status,
    TopicStatus,
    status_badge,
)

EVERY_S = 5.0
_ALL = "all flows"
# An hour.
_MAX_SAMPLES = 720

COLUMNS = (
    Column("topic", "Topic", help="The source topic; opens to its partitions"),
    Column("flow", "Flow"),
    Column("verdict", "Verdict", kind="mark", help="Burrow's words; the last column says why"),
    Column("offset_lag", "Offset lag", kind="number", help="Offsets that are not on the target yet, markers included"),
    Column("time_lag", "Time lag", kind="number", help="Age of the oldest record that waits"),
    Column("in", "In/s", kind="number", help="Offsets a second that come to the source"),
    Column("out", "Out/s", kind="number", help="Offsets a second that reach the target"),
    Column("eta", "Catches up in", kind="number", help="At the rates of the newest samples"),
    Column("proven", "Proven", help="How much of what the source held a verification has found equal on the target"),
    Column("why", "Why", kind="prose"),
)
FLOW_COLUMNS = (
    Column("flow", "Flow"),
    *(column for column in COLUMNS[2:-1] if column.key != "proven"),
    Column("objectives", "Objectives"),
    Column("why", "Why", kind="prose"),
)
_LEAST = ("eta", "in", "out", "proven", "offset_lag")


class StatusView(Panel):
    def __init__(self, session: Session, *, events: Callable[[], Events | None] = lambda: None) -> None:
        super().__init__(session)
        self._drawn: Status | None = None
        self._shown: Status | None = None
        self._seen: deque[tuple[datetime, Status]] = deque(maxlen=_MAX_SAMPLES)
        self.poller = Poller(self._ask, session=session, every_s=EVERY_S, changed=self.render, name="status-fresh")
        self.flow = controls.dropdown("status-flow", "Flow", [_ALL, *session.flow_names], _ALL)
        self.flows = Grid(
            "status-flows", FLOW_COLUMNS, label="Flows", least=_LEAST, empty="", file="flows.csv", follow=session.follow
        )
        self.lost = controls.html("status-lost")
        self.rows = Grid(
            "status-rows",
            COLUMNS,
            label="Topics of all flows",
            least=_LEAST,
            empty="There is no status yet.",
            file="status.csv",
            follow=session.follow,
        )
        self.refresh = self.button("status-refresh", "Refresh", self.poller.once)
        self.live = controls.checkbox("status-live", f"Refresh every {EVERY_S:.0f} s", value=False)
        self.lag = LagView(session, seen=self.lag_frame, events=events)
        buttons = controls.row(self.refresh, self.live, self.poller.pulse)
        self.widget = controls.column(buttons, self.flow, self.flows, self.lost, self.rows, self.lag.widget)
        self.on_change(self._switch, self.live)
        self.on_change(self._show_status, self.flow)
        self.render()

    def start(self) -> None:
        self.live.value = True
        # The box may be ticked from an event loop that has ended, as after a script's `asyncio.run`.
        self.poller.start()
        self.lag.start()

    def stop(self) -> None:
        self.live.value = False
        self.poller.stop()
        self.lag.poller.stop()

    def _switch(self) -> None:
        (self.start if self.live.value else self.stop)()

    @property
    def chosen_flow(self) -> str | None:
        """The only flow that is shown; None if all are."""
        return None if self.flow.value == _ALL else self.flow.value

    def choose(self, flow: str) -> None:
        self._offer_flows()
        if flow not in self.flow.options:
            raise UsageError(f"there is no flow {flow}", remedy=f"choose one of {', '.join(self._session.flow_names)}")
        self.flow.value = flow

    def _offer_flows(self) -> None:
        if list(self.flow.options) != (offered := [_ALL, *self._session.flow_names]):
            controls.refill(self.flow, offered)
        self.flow.layout.display = None if len(offered) > 2 else "none"

    def _ask(self) -> Status | None:
        mirror = self._session.mirror
        return None if mirror is None else mirror.status()

    def lag_frame(self) -> Any:
        """Return the pandas frame for `lag_chart`: one row per flow, hop and status of this console."""
        import pandas as pd

        rows = [
            (at, name, hop, None, offset_lag, time_lag_ms)
            for at, seen in self._seen
            for name, flow in seen.items()
            if flow.is_whole
            for hop, offset_lag, time_lag_ms in (
                ("landed", flow.not_landed, None),
                ("republished", flow.offset_lag, flow.time_lag_ms),
            )
        ]
        return pd.DataFrame(rows, columns=[*LINE_COLUMNS])

    def render(self) -> None:
        status = self.poller.reading.value
        self._offer_flows()
        if status is None:
            self.rows.empty = (
                "There is no status yet." if self._session.mirror else "There is no mirror yet: set one up."
            )
            return
        if status is self._drawn:
            return
        self._shown = self._drawn = status
        self._seen.append((self._session.now(), status))
        self._show_status()
        self.lag.changed()

    def _show_status(self) -> None:
        flows = [flow for flow in (self._shown or {}).values() if self.chosen_flow in (None, flow.flow)]
        aims = any(flow.objectives for flow in flows)
        known = [column for column in FLOW_COLUMNS if aims or column.key != "objectives"]
        self.flows.show([_flow_row(flow) for flow in flows], known if len(known) != len(self.flows.columns) else None)
        self.lost.value = "".join(one.to_html() for flow in flows for one in (*flow.parked, *flow.held))
        columns = [column for column in COLUMNS if column.key != "flow" or len(flows) > 1]
        mirror = self._session.mirror
        sources = {flow.name: flow.source for flow in mirror.config.flows} if mirror is not None else {}
        rows = [_row(topic, sources[flow.flow]) for flow in flows for topic in flow.topics]
        self.rows.show(rows, columns if len(columns) != len(self.rows.columns) else None)


def _flow_row(flow: FlowStatus) -> Row:
    objectives = str(flow.objectives) if flow.objectives else ""
    opening = Cell(flow.flow, link=link("flow", flow.flow))
    return Row(flow.flow, dict(_cells(flow, ""), flow=opening, objectives=objectives))


def _row(topic: TopicStatus, source: str) -> Row:
    name = f"{topic.flow}/{topic.topic}"
    proven = topic.proven_words()
    opening = Cell(topic.topic, link=link("topic", source, topic.topic))
    cells = dict(_cells(topic, proven), topic=opening, flow=topic.flow)
    parts = [
        Row(f"{name}-{part.partition}", dict(_cells(part, _proven(part)), **_place(part))) for part in topic.partitions
    ]
    return Row(name, cells, parts)


def _place(part: PartitionStatus) -> dict[str, Cell | str]:
    positions = f"source end {part.source_end}, landed up to {part.landed}, republished up to {part.republished}"
    return {"topic": Cell(f"partition {part.partition}", part.partition, title=positions), "flow": ""}


def _proven(part: PartitionStatus) -> str:
    return "nothing" if part.proven_until is None else f"up to {part.proven_until}"


def _cells(one: FlowStatus | TopicStatus | PartitionStatus, proven: str) -> Iterator[tuple[str, Cell | str]]:
    yield "verdict", Cell.of(status_badge(one.verdict, one.state), title=one.reason)
    offset_lag = None if isinstance(one, FlowStatus) and not one.is_whole else one.offset_lag
    yield "offset_lag", Cell(format_count(offset_lag), offset_lag)
    yield "time_lag", Cell(format_duration(one.time_lag_ms), one.time_lag_ms)
    yield "in", Cell(format_count(one.in_per_s), one.in_per_s)
    yield "out", Cell(format_count(one.out_per_s), one.out_per_s)
    # A caught-up flow needs no forecast.
    yield "eta", Cell("" if one.eta_ms == 0 else format_duration(one.eta_ms), one.eta_ms or None)
    yield "proven", proven
    yield "why", one.reason
