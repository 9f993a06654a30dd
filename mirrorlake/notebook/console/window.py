"""The console as a whole: its tabs, its errors, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import ipywidgets as widgets
from pyspark.sql import SparkSession

from mirrorlake.config import BadReferenceError, expand, keep_for_session
from mirrorlake.config.edit import Draft, without_secrets
from mirrorlake.mirror import Mirror, utc_now
from mirrorlake.notebook.console.groups import GroupsView
from mirrorlake.notebook.console.records import RecordsView
from mirrorlake.notebook.console.recovery import RecoveryView
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.status import StatusView
from mirrorlake.notebook.console.wizard import Wizard

TABS = ("Set up", "Status", "Groups", "Records", "Recovery")


class Console:
    """Set up, watch and look into a mirror; shows itself as a widget.

    A second display of the same console shows the same widgets. `close` stops its questions and removes it; a `with` block
    does so at its end.

    Args:
        mirror: the mirror; None to set one up first.
        spark: the session for a mirror that is set up here; None as for `ml.load`.
        now: the clock.
    """

    def __init__(
        self, mirror: Mirror | None = None, *, spark: SparkSession | None = None, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.session = Session(mirror, spark=spark, now=now)
        self._ticking: asyncio.Task[None] | None = None
        self.wizard = Wizard(self.session, _begin(mirror), applied=self._adopt)
        self.status = StatusView(self.session)
        self.groups = GroupsView(self.session)
        self.records = RecordsView(self.session)
        self.recovery = RecoveryView(self.session)
        shown = (self.wizard, self.status, self.groups, self.records, self.recovery)
        views = [view.widget for view in shown]
        self.tabs = widgets.Tab(views, titles=TABS, selected_index=0 if mirror is None else 1)
        self.tabs.add_class("ml-tabs")
        self.widget = widgets.VBox([self.session.errors, self.tabs])
        self.widget.add_class("ml-console")

    @property
    def mirror(self) -> Mirror | None:
        """The mirror that is watched; None until one is set up."""
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
        """Refresh every few seconds, where an event loop runs; called when the console is displayed."""
        if self.mirror is not None:
            self.status.start()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._ticking is None or self._ticking.done():
            self._ticking = loop.create_task(self._tick())

    def stop(self) -> None:
        """Stop refreshing; what is shown stays and grows stale."""
        self.status.stop()
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    def close(self) -> None:
        """Stop refreshing, and remove the widgets."""
        self.stop()
        self.session.runner.stop()
        self._close(self.widget)

    def _close(self, widget: widgets.Widget) -> None:
        for child in getattr(widget, "children", ()):
            self._close(child)
        widget.close()

    async def _tick(self) -> None:
        # The age of what is shown grows by itself, also when nothing answers.
        while True:
            await asyncio.sleep(1)
            self.status.render()

    def _adopt(self, mirror: Mirror) -> None:
        self.session.mirror = mirror
        self.groups.offer()
        self.records.offer()
        self.recovery.offer()
        self.status.render()
        self.start()


def _begin(mirror: Mirror | None) -> Draft:
    """Return the draft of a mirror's settings at a new flow; secrets that stand there in the open stay in memory only."""
    if mirror is None or not mirror.config.text:
        return Draft()
    text, secrets = without_secrets(mirror.config.text)
    for reference, secret in secrets.items():
        # What cannot be resolved here is asked for when it is needed, with the reference in the message.
        with suppress(BadReferenceError):
            keep_for_session(reference, expand(secret))
    return Draft.of(text)
