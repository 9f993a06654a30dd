"""The whole console: its tabs, its errors, and their shared session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import ipywidgets as widgets

from mirrorlake.config import BadReferenceError, expand, keep_for_session
from mirrorlake.config.edit import Draft, without_secrets
from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror, utc_now
from mirrorlake.notebook.console.events import EventsView
from mirrorlake.notebook.console.groups import GroupsView
from mirrorlake.notebook.console.links import slug
from mirrorlake.notebook.console.opener import Opener
from mirrorlake.notebook.console.records import RecordsView
from mirrorlake.notebook.console.recovery import RecoveryView
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.status import StatusView
from mirrorlake.notebook.console.tables import TablesView
from mirrorlake.notebook.console.topics import TopicsView
from mirrorlake.notebook.console.wizard import Wizard
from mirrorlake.notebook.display import keep_all_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABS = ("Set up", "Topics", "Status", "Events", "Groups", "Records", "Tables", "Recovery")


class Console:
    """Set up, watch and browse a mirror; the console is a widget."""

    def __init__(
        self,
        mirror: Mirror | None = None,
        *,
        spark: SparkSession | None = None,
        now: Callable[[], datetime] = utc_now,
        read_only: str = "",
    ) -> None:
        keep_all_messages()
        self.session = Session(mirror, spark=spark, now=now, read_only=read_only)
        self.session.opened = self._follow
        self.events = EventsView(self.session)
        self.status = StatusView(self.session, events=lambda: self.events.events)
        self.wizard = Wizard(
            self.session,
            _begin(mirror),
            read=mirror.config.text if mirror is not None and mirror.config.path is not None else None,
            applied=self._adopt,
            status=lambda: self.status.poller.reading,
        )
        self.topics = TopicsView(self.session, draft=lambda: self.wizard.kept, choose=self._set_up_topics)
        self.groups = GroupsView(self.session)
        self.records = RecordsView(self.session)
        self.tables = TablesView(self.session)
        self.recovery = RecoveryView(self.session)
        watched = (self.topics, self.status, self.events, self.groups, self.records, self.tables, self.recovery)
        views = [view.widget for view in (self.wizard, *watched)]
        self.tabs = widgets.Tab(views, titles=TABS, selected_index=0 if mirror is None else TABS.index("Status"))
        self.tabs.add_class("ml-tabs")
        self.tabs.observe(self.session.runner.guarded(self._switch), "selected_index")
        opener = Opener(self.session.follow)
        self.widget = widgets.VBox([self.session.pulse, self.session.errors, self.tabs, opener])
        self.widget.add_class("ml-console")

    @property
    def mirror(self) -> Mirror | None:
        return self.session.mirror

    def __repr__(self) -> str:
        return f"Console({self.mirror!r})"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.start()
        return {**self.widget._repr_mimebundle_(**options), "text/plain": repr(self)}

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Refresh every few seconds if an event loop runs; displaying the console calls this."""
        if self.mirror is not None:
            self.status.start()
            self.events.poller.start()
            self.records.start()
            self._switch()

    def stop(self) -> None:
        self.status.stop()
        self.events.poller.stop()
        self.records.live.stop()
        self.tables.poller.stop()

    async def open(self, path: str) -> None:
        kind, *names = (unquote(part) for part in path.strip("/").split("/"))
        match kind, names:
            case "", []:
                pass
            case "flow", [flow]:
                self._show("Status")
                self.status.choose(flow)
            case "topic", [cluster, topic]:
                self._show("Topics")
                await self.topics.open_topic(cluster, topic)
            case "group", [flow, group]:
                self._show("Groups")
                await self.groups.choose_group(flow, group)
            case "table", [table]:
                self._show("Tables")
                await self.tables.open_table(table)
            case "passport", [cluster, topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
                self._show("Records")
                await self.records.open_record(cluster, topic, int(partition), int(offset))
            case _, [] if kind in map(slug, TABS):
                self._show(next(tab for tab in TABS if slug(tab) == kind))
            case _:
                raise UsageError(f"the link {path} names nothing in this console", remedy="choose a tab")

    def _show(self, tab: str) -> None:
        self.tabs.selected_index = TABS.index(tab)

    def _switch(self) -> None:
        """Offer the clusters of the draft, and read the typed tables only while they are shown."""
        self.topics.offer()
        if TABS[self.tabs.selected_index or 0] == "Tables":
            self.tables.start()
        else:
            self.tables.poller.stop()

    def close(self) -> None:
        """Stop refreshing, stop this console's run after its current batches, and remove the widgets."""
        self.stop()
        self.wizard.run.end()
        self.session.runner.stop()
        self._close(self.widget)

    def _close(self, widget: widgets.Widget) -> None:
        for child in getattr(widget, "children", ()):
            self._close(child)
        widget.close()

    def _follow(self, path: str) -> None:
        self.session.runner.start(self.open(path))

    def _set_up_topics(self, cluster: str, topics: str) -> None:
        """Make a cluster's topics those of the flow being set up, and show its form."""
        self.wizard.take_topics(cluster, topics)
        self.tabs.selected_index = TABS.index("Set up")

    def _adopt(self, mirror: Mirror) -> None:
        self.session.mirror = mirror
        self.topics.offer()
        self.groups.offer()
        self.records.offer()
        self.recovery.offer()
        self.tables.render()
        self.status.render()
        self.start()


def _begin(mirror: Mirror | None) -> Draft:
    """Return the draft of a mirror's settings; plain secrets stay in memory only."""
    if mirror is None or not mirror.config.text:
        return Draft()
    text, secrets = without_secrets(mirror.config.text)
    for reference, secret in secrets.items():
        # An unresolved reference is reported when it is needed, by name.
        with suppress(BadReferenceError):
            keep_for_session(reference, expand(secret))
    return Draft.of(text, path=mirror.config.path)
