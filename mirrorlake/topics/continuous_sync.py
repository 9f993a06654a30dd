"""Sync a running flow's target with its source every `sync.interval`: partitions, settings and ACLs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
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


@dataclass(eq=False, repr=False)
class ContinuousSync:
    """Record the changes at both ends of one flow in `metadata`, and correct the target.

    With `sync.continuous: false` it records only. It changes no lost remote topic (`held`), and none that the flow may not
    write (`filled`). Flows of one process share the `lock`: two never plan for one target at the same time.
    """

    flow: FlowConfig
    _: KW_ONLY
    all_flows: Sequence[FlowConfig]
    sources: Sources
    admins: Admins
    lake: Lake
    now: Callable[[], datetime]
    held: Callable[[], Iterable[LostTopic]]
    filled: FilledTopics
    lock: threading.Lock

    def __post_init__(self) -> None:
        self._audit = Audit(self.lake, now=self.now)
        self._source = SourceTopics(self.lake, self.flow.source)
        self._seen = Observations(self.lake, now=self.now)

    def duties(self) -> list[PeriodicTask]:
        """List the flow's periodic sync tasks."""
        sync = self.flow.sync
        kinds = {"topics": self.topics, **({"acls": self.acls} if sync.acls else {})}
        return [
            PeriodicTask(name=name, interval_s=sync.interval.total_seconds(), run=partial(do, correct=sync.continuous))
            for name, do in kinds.items()
        ]

    def topics(self, *, correct: bool) -> None:
        """Record changes of topics; create the remote topics of empty ones; sync partitions and settings."""
        flow = self.flow
        with self.lock:
            ends = look(flow, self.sources, self.admins)
            self._source.compare(ends.source, ends.source_configs, self.now())
            if correct:
                led = led_by_others(flow, self.all_flows, names=partial(list_carried_topics, self.lake))
                plan = topic_plan(flow, ends, self._audit, beside=self.all_flows, led=led)
                changes = self._allowed(plan.changes, ends)
                if changes:
                    skipped = {lost.remote for lost in self.held()}
                    skipped |= {conflict.name for conflict in filled_conflicts(flow, ends, self.filled)}
                    changes = [change for change in changes if change.name not in skipped]
                carry_out(changes, admins=self.admins, audit=self._audit, plan=plan, command="keep")
                if changes:
                    ends = look(flow, self.sources, self.admins)
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
        entries = self._audit.entries(self.flow.target, "topic")
        known = {entry.object for entry in entries}
        made = {entry.object for entry in entries if entry.action == "create"}
        if any(change.action == "create" for change in found):
            rivals = rivals_of(self.flow, self.all_flows)
            others = [(other, list_carried_topics(self.lake, other)) for other in rivals]
            known |= {change.name for change in name_conflicts(self.flow, ends, others=others)}

        def may(change: Change) -> bool:
            if change.action == "create":
                return change.name not in known and not self._has_sent_to(change.name)
            return change.action != "add_partitions" or change.name in made or self._has_sent_to(change.name)

        return [change for change in found if may(change)]

    def _has_sent_to(self, remote: str) -> bool:
        sent = (
            "SELECT 1 AS one FROM {offset_map} WHERE flow = :flow AND kind = 'sent' AND target_topic = :remote LIMIT 1"
        )
        return bool(self.lake.query(sent, flow=self.flow.name, remote=remote))

    def acls(self, *, correct: bool) -> None:
        """Record changes of ACLs, and sync the ACLs of the remote topics.

        Raises:
            NotAuthorized: the principal may not list or change ACLs.
        """
        flow = self.flow
        with self.lock:
            ends = look(flow, self.sources, self.admins)
            source = self.sources[flow.source].acls.list()
            target = read_target(self.admins[flow.target], self._audit)
            if source is not None:
                self._seen.record_acls(flow.source, source)
            if correct:
                known = list_carried_topics(self.lake, flow)
                own = clusters_own(source, flow, self.all_flows, self._audit)
                plan = acl_plan(flow, ends, source=own, target=target, known=known, all_flows=self.all_flows)
                carry_out(plan.changes, admins=self.admins, audit=self._audit, plan=plan, command="keep")
            # `target` holds the simulated plan: the present ACLs need no second request.
            if target.acls is not None:
                self._seen.record_acls(flow.target, target.acls)
