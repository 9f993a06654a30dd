"""Keep a running flow's target in step: partitions, settings and ACLs, each at the interval of `sync.interval`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.model.plan import Change
from mirrorlake.relay.audit import Audit
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import OFFSET_MAP
from mirrorlake.steps.acls import acl_plan, read_target
from mirrorlake.steps.set_up import carry_out, recorded_topics
from mirrorlake.steps.topics import Admins, Sources, look, topic_plan
from mirrorlake.streams.duties import Duty
from mirrorlake.streams.observations import Observations
from mirrorlake.streams.topics import SourceTopics

# A running flow makes a remote topic with its first record, and conflicts are for people.
_WHILE_RUNNING = ("add_partitions", "set_configs", "reset_configs")


class Keeper:
    """Look at both ends of one flow, record what changed in `metadata`, and correct the target.

    With `sync.continuous: false` it records only.

    Args:
        flow: the flow.
        beside: all flows of the settings.
        sources: the sources by alias.
        admins: the Kafka clusters by alias.
        lake: the lake.
        now: the clock, in UTC.
        lock: held while it works; flows of one process share it, so that two never plan for one target at a time.
    """

    def __init__(
        self,
        flow: FlowConfig,
        *,
        beside: Sequence[FlowConfig],
        sources: Sources,
        admins: Admins,
        lake: Lake,
        now: Callable[[], datetime],
        lock: threading.Lock,
    ) -> None:
        self._flow = flow
        self._beside = beside
        self._sources = sources
        self._admins = admins
        self._lake = lake
        self._now = now
        self._lock = lock
        self._audit = Audit(lake, now=now)
        self._source = SourceTopics(lake, flow.source)
        self._seen = Observations(lake, now=now)

    def duties(self) -> list[Duty]:
        """Return what is done beside the flow's records."""
        every = self._flow.sync.interval.total_seconds()
        correct = self._flow.sync.continuous
        found = [Duty(name="topics", every_s=every, do=partial(self.topics, correct=correct))]
        if self._flow.sync.acls:
            found.append(Duty(name="acls", every_s=every, do=partial(self.acls, correct=correct)))
        return found

    def look(self) -> None:
        """Record what both ends are like now; correct nothing."""
        self.topics(correct=False)
        if self._flow.sync.acls:
            self.acls(correct=False)

    def topics(self, *, correct: bool) -> None:
        """Record changes of topics, and bring partitions and settings of the remote topics in step.

        Raises:
            ClusterError: a cluster did not answer or refused.
        """
        flow = self._flow
        with self._lock:
            ends = look(flow, self._sources, self._admins)
            self._source.compare(ends.source, ends.source_configs, self._now())
            if correct:
                plan = topic_plan(flow, ends, copied=lambda: self._audit.copied_configs(flow.target))
                changes = [change for change in plan.changes if self._may(change)]
                carry_out(changes, admins=self._admins, audit=self._audit, plan=plan, command="keep")
                if changes:
                    ends = look(flow, self._sources, self._admins)
            scope = {flow.remote_topic(name) for name in ends.source}
            self._seen.topics(flow.target, ends.remote, ends.remote_configs, scope=scope)

    def _may(self, change: Change) -> bool:
        # To grow somebody else's topic would move that one's keys: a person decides that, with `apply`.
        return change.action in _WHILE_RUNNING and (change.action != "add_partitions" or self._is_ours(change.name))

    def _is_ours(self, remote: str) -> bool:
        made = self._audit.entries(self._flow.target, "topic")
        if any(entry.object == remote and entry.action == "create" for entry in made):
            return True
        runs = self._lake.meta(OFFSET_MAP).where((F.col("flow") == self._flow.name) & (F.col("target_topic") == remote))
        return bool(runs.limit(1).count())

    def acls(self, *, correct: bool) -> None:
        """Record changes of ACLs, and bring those of the remote topics in step.

        Raises:
            NotAuthorized: they may not be listed or changed.
        """
        flow = self._flow
        with self._lock:
            ends = look(flow, self._sources, self._admins)
            source = self._sources[flow.source].acls.list()
            target = read_target(self._admins[flow.target], self._audit)
            if source is not None:
                self._seen.acls(flow.source, source)
            if correct:
                known = recorded_topics(self._lake, flow)
                plan = acl_plan(flow, ends, source=source, target=target, known=known, beside=self._beside)
                carry_out(plan.changes, admins=self._admins, audit=self._audit, plan=plan, command="keep")
            # The plan was carried out on paper, too: what is there now is known without another look.
            if target.there is not None:
                self._seen.acls(flow.target, target.there)
