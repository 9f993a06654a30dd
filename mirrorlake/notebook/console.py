"""The console: watch and browse a mirror from a notebook, pause it, move groups and apply its settings.

    ml.console(mirror)

Each tab shows a fragment (`notebook/fragments.py`); each button makes a public call that works without a browser.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook import fields, fragments
from mirrorlake.notebook.fragments import SIDES, SPANS, Fragment, RecordsQuery
from mirrorlake.render import badge, breakable, format_time, plural

TABS = ("Status", "Events", "Topics", "Groups", "Records", "Tables", "Recovery", "Settings")
# A status calls every cluster.
REFRESH_INTERVAL_S = 10.0
_ALL = "all flows"


class Shown:
    """A fragment on screen: `read` asks the mirror for it, beside the kernel's thread, and never touches a field."""

    def __init__(self, name: str, read: Callable[[], Fragment], *, now: Callable[[], datetime]) -> None:
        self._read = read
        self._now = now
        self._newest = 0
        self.html = fields.html(name)
        self.age = fields.html(f"{name}-age")
        self.figure = fields.figure(f"{name}-figure")
        self.widget = fields.column(self.age, self.html, self.figure)

    def refresh(self) -> None:
        """Read and show it; after a failure the last answer stays, with its time and the reason."""
        self._newest += 1
        number = self._newest
        self.age.value = f"{self.age.value.partition(' · ')[0]} · reading …"
        try:
            fragment = self._read()
        except Exception as error:  # shown where the answer would be
            if number == self._newest:
                said = self.age.value.partition(" · ")[0]
                self.age.value = f"{said} · {fragments.error_html(fragments.error_text(error))}"
            return
        # An answer to an earlier choice is dropped.
        if number == self._newest:
            self.html.value = fragment.html
            self.age.value = f"as of {breakable(format_time(self._now()))}"
            self.figure.outputs = () if fragment.figure is None else (_output(fragment.figure),)

    def clear(self) -> None:
        self._newest += 1
        self.html.value, self.age.value, self.figure.outputs = "", "", ()


def _output(figure: Any) -> dict[str, Any]:
    data = {"application/vnd.plotly.v1+json": json.loads(figure.to_json()), "text/plain": "a chart"}
    return {"output_type": "display_data", "data": data, "metadata": {}}


class Console:
    """Watch, browse and steer a mirror; the console is a widget."""

    def __init__(self, mirror: Mirror, *, now: Callable[[], datetime]) -> None:
        self.mirror = mirror
        self.flow_names = [flow.name for flow in mirror.config.flows]
        self._now = now
        self._stop = threading.Event()
        self._stop.set()
        _adopt_session(mirror)
        self.work = fields.ButtonThreads()
        self.live = fields.checkbox("live", f"Refresh every {REFRESH_INTERVAL_S:.0f} s")
        self.shown: dict[str, Shown] = {}
        contents = [getattr(self, f"_{tab.lower()}_tab")() for tab in TABS]
        self.tabs = fields.tabs("tabs", contents, TABS)
        self.tabs.observe(lambda _: self.work.start(self.refresh), "selected_index")
        self.widget = fields.column(self.work.widget, self.live, self.tabs)
        self.widget.add_class("ml-console")
        self.work.on_change(self._switch, self.live)

    # -- tabs -----------------------------------------------------------------------------------------------------

    def _status_tab(self) -> Any:
        flow = fields.choice("status-flow", "Flow", [_ALL, *self.flow_names])
        since = fields.choice("status-since", "Lag over", SPANS, "1h")
        reason = fields.text("pause-reason", "Reason of a pause")
        shown = self._show(
            "Status", lambda: fragments.status(self.mirror, _named(flow.value), since.value), flow, since
        )

        def pause() -> None:
            for name in self._chosen(flow.value):
                self.mirror.pause(flow=name, reason=reason.value or "paused in the console")
            said.value = f"{badge('paused').html()} {breakable(flow.value)}: landing goes on, nothing is sent."
            shown.refresh()

        def resume() -> None:
            ended = [self.mirror.resume(flow=name) for name in self._chosen(flow.value)]
            said.value = (
                f"{badge('resumed' if any(ended) else 'was not paused', 'note').html()} {breakable(flow.value)}"
            )
            shown.refresh()

        said = fields.html("pause-said")
        pausing = self.work.button(
            "pause", "Pause", pause, tip="Hold the flow back wherever it runs; landing goes on", main=True
        )
        resuming = self.work.button(
            "resume", "Resume", resume, tip="Send what was held back, in order, and go on", main=True
        )
        return fields.column(
            fields.row(flow, since, self._refresher("status", shown)),
            shown.widget,
            fields.row(reason, pausing, resuming),
            said,
        )

    def _events_tab(self) -> Any:
        since = fields.choice("events-since", "Events of the last", SPANS, "24h")
        shown = self._show("Events", lambda: fragments.events(self.mirror, since.value), since)
        return fields.column(fields.row(since, self._refresher("events", shown)), shown.widget)

    def _topics_tab(self) -> Any:
        cluster = fields.choice("topics-cluster", "Cluster", [*self.mirror.config.clusters])
        matching = fields.text("topics-matching", "Matching", hint="orders, clicks.*")
        listed = self._show("Topics", lambda: fragments.topics(self.mirror, cluster.value, matching.value))
        self.work.on_change(listed.clear, cluster)
        reading = self.work.button(
            "topics-read", "Read the topics", listed.refresh, tip="Ask the cluster; changes nothing"
        )
        return fields.column(fields.row(cluster, matching, reading), listed.widget)

    def _groups_tab(self) -> Any:
        flow = fields.choice("groups-flow", "Flow", self.flow_names)
        names = fields.text("groups-names", "Groups", hint="all groups of the flow; or billing, audit")
        shown = self._show("Groups", lambda: fragments.groups(self.mirror, flow.value))

        def inputs() -> tuple[str, str]:
            return flow.value, names.value

        def make(asked: tuple[str, str]) -> tuple[Any, str]:
            chosen = [name.strip() for name in asked[1].split(",") if name.strip()]
            return self.mirror.plan_groups(asked[0], groups=chosen or None), asked[0]

        def carry_out(plan: Any) -> str:
            done = self.mirror.apply_groups(plan.flow, plan=plan)
            shown.refresh()
            return f"<p>{plural(len(done.moves), 'position')} moved</p>{done.to_html(rows=None)}"

        box = fields.PlanBox(self.work, "groups", "Move the groups", carry_out)
        self.work.on_change(box.withdraw, flow, names)
        self.work.on_change(shown.clear, flow)
        planning = self.work.button(
            "groups-plan", "Show the plan", partial(box.propose, inputs, make), tip="Sets nothing"
        )
        reading = self.work.button(
            "groups-read", "Read the groups", shown.refresh, tip="Ask both clusters; sets nothing"
        )
        return fields.column(fields.row(flow, reading), shown.widget, fields.row(names, planning), box.widget)

    def _records_tab(self) -> Any:
        flow = fields.choice("records-flow", "Flow", self.flow_names)
        topic = fields.text("records-topic", "Source topic")
        partition = fields.text("records-partition", "Partition", hint="all")
        side = fields.choice("records-side", "Side of the offset", SIDES)
        offset = fields.text("records-offset", "From offset", hint="the newest records")
        at = fields.text("records-time", "From time (UTC)", hint="2026-11-22 03:30, 03:30, -2h")
        key = fields.text("records-key", "Key is", hint="the whole key")
        contains = fields.text("records-contains", "Value contains")
        where = fields.text("records-where", "Where", hint="$.customer.id = 7")

        def query() -> RecordsQuery:
            if not topic.value.strip():
                raise UsageError("no topic is named", remedy="name a source topic of the flow")
            return RecordsQuery(
                flow=flow.value,
                topic=topic.value.strip(),
                partition=_number(partition),
                side=side.value,
                offset=_number(offset),
                at=at.value.strip(),
                key=key.value,
                contains=contains.value,
                where=where.value,
            )

        def passport() -> Fragment:
            asked = query()
            if asked.partition is None or asked.offset is None:
                raise UsageError("no record is named", remedy="fill in its partition and its offset")
            config = self.mirror.config.flow(asked.flow)
            on_target = asked.side == "target"
            cluster, name = (
                (config.target, config.remote_topic(asked.topic)) if on_target else (config.source, asked.topic)
            )
            return fragments.passport(self.mirror, cluster, name, asked.partition, asked.offset)

        shown = self._show("Records", lambda: fragments.records(self.mirror, query()))
        followed = Shown("passport", passport, now=self._now)
        reading = self.work.button("records-read", "Read records", shown.refresh)
        following = self.work.button("records-follow", "Show the record and its passport", followed.refresh)
        return fields.column(
            fields.row(flow, topic, partition),
            fields.row(side, offset, at),
            fields.row(key, contains, where),
            fields.row(reading, following),
            shown.widget,
            followed.widget,
        )

    def _tables_tab(self) -> Any:
        name = fields.text("tables-table", "Table", hint="to see its columns and newest rows")
        shown = self._show("Tables", lambda: fragments.tables(self.mirror))
        page = Shown("tables-page", lambda: fragments.one_table(self.mirror, name.value.strip()), now=self._now)
        opening = self.work.button("tables-open", "Open the table", page.refresh)
        return fields.column(self._refresher("tables", shown), shown.widget, fields.row(name, opening), page.widget)

    def _recovery_tab(self) -> Any:
        flow = fields.choice("recovery-flow", "Flow", self.flow_names)
        shown = self._show("Recovery", lambda: fragments.recovery(self.mirror, flow.value))
        self.work.on_change(shown.clear, flow)
        return fields.column(fields.row(flow, self._refresher("recovery", shown)), shown.widget)

    def _settings_tab(self) -> Any:
        flow = fields.choice("settings-flow", "Flow", [_ALL, *self.flow_names])
        shown = self._show("Settings", lambda: Fragment(self.mirror.to_html()))

        def carry_out(plan: Any) -> str:
            done = self.mirror.apply(_named(flow.value), plan=plan)
            return f"<p>{badge('applied').html()} {plural(len(done.changes), 'change')} to {breakable(flow.value)}</p>"

        def make(asked: str) -> tuple[Any, str]:
            return self.mirror.plan(_named(asked)), asked

        box = fields.PlanBox(self.work, "settings", "Apply", carry_out)
        self.work.on_change(box.withdraw, flow)
        planning = self.work.button("settings-plan", "Show the plan", lambda: box.propose(lambda: flow.value, make))
        return fields.column(shown.widget, fields.row(flow, planning), box.widget)

    def _show(self, tab: str, read: Callable[[], Fragment], *choices: Any) -> Shown:
        """Make the fragment of a tab; a change of `choices` reads it again."""
        shown = self.shown[tab] = Shown(tab.lower(), read, now=self._now)
        for field in choices:
            field.observe(lambda _: self.work.start(shown.refresh), "value")
        return shown

    def _refresher(self, name: str, shown: Shown) -> Any:
        return self.work.button(f"{name}-refresh", "Refresh", shown.refresh)

    def _chosen(self, flow: str) -> list[str]:
        return self.flow_names if flow == _ALL else [flow]

    # -- refreshing -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read again what is shown without a question of the person's; where only Spark reads the tables, once."""
        tab = TABS[self.tabs.selected_index or 0]
        is_slow = tab == "Tables" and self.mirror.lake.is_spark_only and self.shown[tab].html.value
        if tab in ("Status", "Events", "Tables", "Settings") and not is_slow:
            self.shown[tab].refresh()

    def start(self) -> None:
        """Refresh until `stop`; displaying the console calls this."""
        self.live.value = True

    def stop(self) -> None:
        self.live.value = False

    def close(self) -> None:
        """Stop refreshing, and remove the widgets."""
        self.stop()
        fields.close_all(self.widget)

    def _switch(self) -> None:
        self._stop.set()
        if self.live.value:
            # Its own event: a timer that ends late must not go on with the next one's.
            self._stop = threading.Event()
            self.work.start(partial(self._refresh_until, self._stop))

    def _refresh_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.refresh()
            stop.wait(REFRESH_INTERVAL_S)

    def __repr__(self) -> str:
        return f"Console({self.mirror!r})"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.start()
        return {**self.widget._repr_mimebundle_(**options), "text/plain": "the console of a mirror"}

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _adopt_session(mirror: Mirror) -> None:
    """Use this thread's active Spark session, if there is one: other threads would not see it, and start another."""
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        if SparkSession.getActiveSession() is not None:
            _ = mirror.spark


def _named(flow: str) -> str | None:
    return None if flow == _ALL else flow


def _number(field: Any) -> int | None:
    typed = field.value.strip()
    if typed and not typed.isdecimal():
        raise UsageError(f"{field.description}: '{typed}' is not a number", remedy="write digits only, or nothing")
    return int(typed) if typed else None
