"""What happened to the mirror, newest first: from when to when, by whom and why."""

from __future__ import annotations

from datetime import datetime, timezone

from mirrorlake.notebook.charts import events_chart
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.chart import Chart
from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.notebook.console.poller import Poller
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import format_time
from mirrorlake.status import Event, Events

# Reading asks no cluster, and takes as long as the tables that changed meanwhile.
EVERY_S = 30.0
_SPANS = (("1 h", "1h"), ("24 h", "24h"), ("7 d", "7d"), ("30 d", "30d"))

COLUMNS = (
    Column("from", "From", help="UTC"),
    Column("until", "Until", help="UTC; empty for what has no end"),
    Column("took", "Took", kind="number"),
    Column("event", "Event", kind="mark"),
    Column("what", "What"),
    Column("who", "Who", help="User and host; empty for what the mirror did by itself"),
    Column("why", "Why and effect", kind="prose"),
)


class EventsView(Panel):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.poller = Poller(self._ask, session=session, every_s=EVERY_S, changed=self.render, name="events-fresh")
        self.since = controls.dropdown("events-since", "Events of the last", _SPANS, "24h")
        self.rows = Grid(
            "events-rows",
            COLUMNS,
            label="Events",
            least=("took", "until", "who"),
            empty="Nothing happened in this time.",
            file="events.csv",
        )
        self.refresh = self.button("events-refresh", "Refresh", self.poller.once)
        self.timeline = Chart("events-timeline")
        self.widget = controls.column(
            controls.row(self.since, self.refresh, self.poller.pulse), self.timeline, self.rows
        )
        self.on_change(self._choose, self.since)

    @property
    def events(self) -> Events | None:
        """The newest events; None before the first read."""
        events: Events | None = self.poller.reading.value
        return events

    def _choose(self) -> None:
        self._runner.start(self._runner.run(self.poller.once, self.refresh))

    def _ask(self) -> Events | None:
        mirror = self._session.mirror
        return None if mirror is None else mirror.events(self.since.value)

    def render(self) -> None:
        if self.events is not None:
            self.rows.show([_row(event) for event in reversed(self.events)])
            self.timeline.show(events_chart(self.events) if len(self.events) else None)


def _row(event: Event) -> Row:
    ended = _time(event.until) if event.until else Cell("still", sort="9") if event.is_open else None
    cells = {
        "from": _time(event.at),
        "until": ended,
        "took": Cell(event.took(), sort=event.seconds) if event.until else None,
        "event": Cell.of(event.badge),
        "what": event.subject,
        "who": event.who,
        "why": event.reasons(),
    }
    return Row(f"{event.kind} {event.subject} {event.at.isoformat()}", cells)


def _time(at: datetime) -> Cell:
    utc = at.astimezone(timezone.utc)
    return Cell(f"{utc:%Y-%m-%d %H:%M:%S}", sort=utc.timestamp(), title=format_time(at))
