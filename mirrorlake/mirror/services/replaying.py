"""Replays: records of a relay once more, to any cluster, file or frame."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

from mirrorlake import republish
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.model.replay import PREFIXES
from mirrorlake.model.verify import VerifyReports
from mirrorlake.replay import (
    Asked,
    Leave,
    Replay,
    Restore,
    Site,
    compare,
    flow_of,
    found,
    plan_again,
    plan_here,
    plan_replay,
    restore_topics,
)

When = str | datetime | None


class Replaying:
    """Plan replays, and know those that were begun."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def site(self) -> Site:
        """Give a replay the parts of this mirror that it needs."""
        context = self._context
        return Site(
            config=context.config,
            lake=context.lake,
            admin=context.admin,
            groups=context.groups,
            reader=context.reader,
            audit=context.audit(),
            sending=partial(republish.sending_settings, context),
            watching=context.board,
        )

    def replay(
        self, *, name: str | None, leave: Leave, source: str | None, topic: str | None, into: str, **asked: Any
    ) -> Replay:
        """Plan a replay (see `Mirror.replay`)."""
        site = self.site()
        given = {key: _words(value) for key, value in asked.items()}
        if source is None and topic is None and name is not None and not into:
            return Replay(site, plan_again(site, name, leave=leave), leave=leave)
        if source is None or topic is None:
            raise UsageError(
                "a replay needs a source and a topic",
                remedy="mirrorlake replay --source east --topic orders --into central:orders.replayed; one that was begun "
                "goes on with --name alone",
            )
        wanted = Asked(source=source, topic=topic, into=into, **given)
        if not into or wanted.files is not None:
            return Replay(site, plan_here(site, wanted), leave=leave, folder=wanted.files)
        return Replay(site, plan_replay(site, wanted, name=name, leave=leave), leave=leave)

    def restore(
        self,
        *,
        source: str,
        topics: str | Iterable[str],
        at: str | datetime,
        into: str,
        name: str | None,
        leave: Leave,
        groups: bool,
        acls: bool,
    ) -> Restore:
        """Plan a restore (see `Mirror.restore`)."""
        return restore_topics(
            self.site(),
            source=source,
            topics=topics if isinstance(topics, str) else tuple(topics),
            at=str(_words(at)),
            into=into,
            name=name,
            leave=leave,
            groups=groups,
            acls=acls,
        )

    def is_one(self, name: str) -> bool:
        """Tell whether a name is that of a replay or a restore, and of no flow of the settings."""
        return name.startswith(PREFIXES) and all(flow.name != name for flow in self._context.config.flows)

    def verify(self, name: str) -> VerifyReports:
        """Compare what a replay or a restore sent with the relay.

        Raises:
            UsageError: none of this name was begun, or it cannot be compared.
        """
        site = self.site()
        return VerifyReports([compare(site, found(site, name).definition)])

    def flow(self, name: str) -> FlowConfig:
        """Return the flow of the settings, or of a replay that was begun, of this name.

        Raises:
            UsageError: there is neither.
        """
        config = self._context.config
        if not self.is_one(name):
            return config.flow(name)
        return flow_of(found(self.site(), name).definition, config)


def _words(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(f"{value.isoformat()} has no time zone", remedy=f"write {value.isoformat()}Z for UTC")
        return value.isoformat()
    if value is None or isinstance(value, str | int):
        return value
    return tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, Iterable) else value
