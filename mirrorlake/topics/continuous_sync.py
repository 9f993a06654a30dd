"""Sync a running flow's target with its source every `sync.interval`: partitions, settings and ACLs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Audit, Lake, Observations, SourceTopics, list_carried_topics
from mirrorlake.model.plan import Change
from mirrorlake.model.remotes import LostTopic
from mirrorlake.runtime import PeriodicTask
from mirrorlake.topics.acl_plan import acl_plan, clusters_own, read_target
from mirrorlake.topics.filled_topics import FilledTopics
from mirrorlake.topics.setup import carry_out
from mirrorlake.topics.topic_plan import (
    Admins,
    BothEnds,
    Sources,
    filled_conflicts,
    led_by_others,
    look,
    name_conflicts,
    rivals_of,
    topic_plan,
)

# A person resolves conflicts.
_WHILE_RUNNING = ("create", "add_partitions", "set_configs", "reset_configs")


class ContinuousSync:
    """Record the changes at both ends of one flow in `metadata`, and correct the target.

    With `sync.continuous: false` it records only. It changes no lost remote topic (`held`), and none that the flow may not
    write (`filled`). Flows of one process share the `lock`: two never plan for one target at the same time.
    """

    def __init__(
        self,
        flow: FlowConfig,
        *,
        all_flows: Sequence[FlowConfig],
        sources: Sources,
        admins: Admins,
        lake: Lake,
        now: Callable[[], datetime],
        held: Callable[[], Iterable[LostTopic]],
        filled: FilledTopics,
        lock: threading.Lock,
    ) -> None:
        self._flow = flow
        self._all_flows = all_flows
        self._sources = sources
        self._admins = admins
        self._lake = lake
        self._now = now
        self._held = held
        self._filled = filled
        self._lock = lock
        self._audit = Audit(lake, now=now)
        self._source = SourceTopics(lake, flow.source)
        self._seen = Observations(lake, now=now)

    def duties(self) -> list[PeriodicTask]:
        """List the flow's periodic sync tasks."""
        sync = self._flow.sync
        kinds = {"topics": self.topics, **({"acls": self.acls} if sync.acls else {})}
        return [
            PeriodicTask(name=name, interval_s=sync.interval.total_seconds(), run=partial(do, correct=sync.continuous))
            for name, do in kinds.items()
        ]

    def topics(self, *, correct: bool) -> None:
        """Record changes of topics; create the remote topics of empty ones; sync partitions and settings."""
        flow = self._flow
        with self._lock:
            ends = look(flow, self._sources, self._admins)
            self._source.compare(ends.source, ends.source_configs, self._now())
            if correct:
                led = led_by_others(flow, self._all_flows, names=partial(list_carried_topics, self._lake))
                plan = topic_plan(flow, ends, self._audit, beside=self._all_flows, led=led)
                changes = self._allowed(plan.changes, ends)
                if changes:
                    skipped = {lost.remote for lost in self._held()}
                    skipped |= {conflict.name for conflict in filled_conflicts(flow, ends, self._filled)}
                    changes = [change for change in changes if change.name not in skipped]
                carry_out(changes, admins=self._admins, audit=self._audit, plan=plan, command="keep")
                if changes:
                    ends = look(flow, self._sources, self._admins)
            scope = {flow.remote_topic(name) for name in ends.source}
            self._seen.record_topics(flow.target, ends.remote, ends.remote_configs, scope=scope)

    def _allowed(self, changes: Sequence[Change], ends: BothEnds) -> list[Change]:
        """Return the changes that need no confirmation.

        Growing a topic that others made would move their keys: a person decides, with `apply`. A topic that was on the target
        before and is missing now is not an empty topic: creating it again would hide the loss of its records (law E).
        """
        found = [change for change in changes if change.action in _WHILE_RUNNING]
        if not any(change.action in ("create", "add_partitions") for change in found):
            return found
        entries = self._audit.entries(self._flow.target, "topic")
        known = {entry.object for entry in entries}
        made = {entry.object for entry in entries if entry.action == "create"}
        if any(change.action == "create" for change in found):
            rivals = rivals_of(self._flow, self._all_flows)
            others = [(other, list_carried_topics(self._lake, other)) for other in rivals]
            known |= {change.name for change in name_conflicts(self._flow, ends, others=others)}

        def may(change: Change) -> bool:
            if change.action == "create":
                return change.name not in known and not self._has_sent_to(change.name)
            return change.action != "add_partitions" or change.name in made or self._has_sent_to(change.name)

        return [change for change in found if may(change)]

    def _has_sent_to(self, remote: str) -> bool:
        sent = "SELECT 1 AS one FROM {offset_map} WHERE flow = :flow AND target_topic = :remote LIMIT 1"
        return bool(self._lake.query_rows(sent, flow=self._flow.name, remote=remote))

    def acls(self, *, correct: bool) -> None:
        """Record changes of ACLs, and sync the ACLs of the remote topics.

        Raises:
            NotAuthorized: the principal may not list or change ACLs.
        """
        flow = self._flow
        with self._lock:
            ends = look(flow, self._sources, self._admins)
            source = self._sources[flow.source].acls.list()
            target = read_target(self._admins[flow.target], self._audit)
            if source is not None:
                self._seen.record_acls(flow.source, source)
            if correct:
                known = list_carried_topics(self._lake, flow)
                own = clusters_own(source, flow, self._all_flows, self._audit)
                plan = acl_plan(flow, ends, source=own, target=target, known=known, all_flows=self._all_flows)
                carry_out(plan.changes, admins=self._admins, audit=self._audit, plan=plan, command="keep")
            # `target` holds the simulated plan: the present ACLs need no second request.
            if target.acls is not None:
                self._seen.record_acls(flow.target, target.acls)
