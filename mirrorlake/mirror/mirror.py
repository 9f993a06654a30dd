"""The facade: one `Mirror` a settings file, with a method for each operation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mirrorlake import mm2, replay
from mirrorlake.config import when
from mirrorlake.errors import UsageError
from mirrorlake.mirror import changes
from mirrorlake.mirror.base import of_flow
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.mirror.records import RecordMethods
from mirrorlake.mirror.recovery import RecoveryMethods
from mirrorlake.mirror.running import RunMethods
from mirrorlake.model.control import Pause
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Plan
from mirrorlake.model.verify import VerifyReports
from mirrorlake.status import Events, Lag, Monitor, Status, read_events

if TYPE_CHECKING:
    from mirrorlake.config import FlowPreview
    from mirrorlake.doctor import Findings
    from mirrorlake.mm2 import TakeoverPlan
    from mirrorlake.verify import ProofReport


class Mirror(RunMethods, RecoveryMethods, RecordMethods):
    """Everything that one settings file describes.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one at its first use.
        now: the clock.
        display: creates the display of long work: by default bars in a notebook and in a terminal, else log lines;
            `lambda: None` shows nothing.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
        >>> mirror.plan()  # doctest: +SKIP
        >>> mirror.run(once=True)  # doctest: +SKIP
        >>> mirror["east->central"].verify().equal  # doctest: +SKIP
        True
    """

    # -- set up ---------------------------------------------------------------------------------------------------

    def plan(self, flow: str | None = None) -> Plan:
        """Plan the changes of `apply` to the targets and the lake, without changing anything (law G)."""
        return changes.plan_changes(self._context, flow)

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Apply a plan, the present one by default, and return it; running mirrors then adopt the settings.

        A given plan puts the settings in force only if it shows how they were edited.
        """
        return changes.apply_changes(self._context, flow, plan)

    def preview(self, flow: str) -> FlowPreview:
        """Preview the topics of its source that a flow mirrors, with their names, and those that it leaves out, with reasons.

        Raises:
            ClusterError: the source does not answer.
        """
        settings = self.config.flow(flow)
        from mirrorlake.config import preview

        return preview(settings, self._context.source(settings.source).topic_names())

    try_rules = of_flow(FlowHandle.try_rules)
    plan_groups = of_flow(FlowHandle.groups)
    apply_groups = of_flow(FlowHandle.apply_groups)
    group_standing = of_flow(FlowHandle.group_standing)
    takeover = of_flow(FlowHandle.takeover)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Apply a takeover and return it: the flow's next `run` starts at its positions.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        return mm2.apply_takeover(self._context, plan)

    def pause(
        self,
        *,
        cluster: str | None = None,
        flow: str | None = None,
        topic: str | None = None,
        table: str | None = None,
        reason: str = "",
    ) -> Pause:
        """Pause a cluster, a flow or a topic of a flow in every process of this lake; calls no cluster.

        Streams neither read nor write a paused cluster; its records in the relay still go to other clusters. A paused
        flow or topic is still landed, and those records are sent after `resume`, without a gap or a repeat.

        Name a `cluster` by its alias, or a `flow`, or a `flow` and a source `topic` of it, or a typed `table`; `reason`
        is shown with the pause.

        Raises:
            UsageError: neither or both are named, or the settings do not have it.

        Example:
            >>> mirror.pause(flow="east->central", reason="the line is needed for a backup")  # doctest: +SKIP
        """
        return changes.pause_stream(self._context, cluster=cluster, flow=flow, topic=topic, table=table, reason=reason)

    def resume(
        self,
        *,
        cluster: str | None = None,
        flow: str | None = None,
        topic: str | None = None,
        table: str | None = None,
        reason: str = "",
    ) -> Pause | None:
        """End a pause and return it, or None if there was none; the arguments are those of `pause`.

        It also restarts streams that a running mirror has parked after a failure: the flow's, or with `cluster` the
        landing from it and the flows into it. `status` names them.
        """
        return changes.resume_stream(self._context, cluster=cluster, flow=flow, topic=topic, table=table, reason=reason)

    def parked(self) -> Mapping[str, Parked]:
        """Return the streams that failed in a running mirror while the others went on, by name; calls no cluster."""
        return self._context.control().state().parked

    # -- check ----------------------------------------------------------------------------------------------------

    def status(self, flow: str | None = None) -> Status:
        """Return the state of each partition of each flow; a flow whose source or target does not answer is CLUSTER_AWAY.

        Raises:
            StoreError: the lake failed.
        """
        return self._context.shared(Monitor).status(flow)

    def verify(
        self,
        flow: str | None = None,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
    ) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut, by count and by content.

        Records that an earlier verification proved are not read again. Flows may run meanwhile: their new records are
        beyond the cut and not compared.

        Args:
            flow: this flow only; `replay.<name>`, too, always whole, with the relay alone.
            full: compare proven records, too: only this detects a record that changed after its proof.
            since: records with a timestamp from this time on, as `"2026-11-22 03:30"` (UTC) or `"-2h"`; None from the first.
            until: records with a timestamp before this time; None to the last.

        Raises:
            UsageError: a time is invalid.
            ClusterError: a cluster does not answer.

        Example:
            >>> mirror.verify(full=True).equal  # doctest: +SKIP
            True
        """
        if flow is not None and replay.is_replay(self.config, flow):
            if since is not None or until is not None:
                raise UsageError(f"{flow} is compared whole", remedy=f"mirrorlake verify --flow {flow}", flow=flow)
            return replay.verify_replay(self._context, flow)
        return self._verifications.verify(flow, full=full, since=since, until=until)

    def proof_report(self, verification: str) -> ProofReport:
        """Return a report of one verification for sign-off: ranges, digests, topic ids and table versions, with a fingerprint.

        It is built from the table `proofs`, so it can be built again later. It has counts and differences only if
        this object made the verification.

        Raises:
            UsageError: there was no such verification, or it had nothing new to prove and was another `Mirror`'s.

        Example:
            >>> mirror.proof_report(mirror.verify(full=True).verification).write("proof.html")  # doctest: +SKIP
        """
        return self._verifications.report(verification)

    def doctor(self, *, only: Collection[str] = (), skip: Collection[str] = ()) -> Findings:
        """Check every layer of the mirror: settings, this machine, clusters, lake and flows; changes nothing.

        Args:
            only: run these checks of docs/doctor.md; `kafka` stands for all checks with that prefix.
            skip: leave these out.

        Raises:
            UsageError: a name is not that of a check.

        Example:
            >>> mirror.doctor(skip=["disk.free"]).bad  # doctest: +SKIP
            []
        """
        from mirrorlake.doctor import examine

        return examine(self._context, only=only, skip=skip)

    @property
    def lag(self) -> Lag:
        """The lag of each hop of each flow, now and over time, in offsets and in time (see `Lag`)."""
        return self._context.shared(Monitor).lag()

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` over some days; on a path they last as long as the session.

        Example:
            >>> mirror.create_views(days=30)  # doctest: +SKIP
            >>> spark.sql("SELECT * FROM lag WHERE hop = 'republished' ORDER BY observed_at DESC")  # doctest: +SKIP
        """
        return self.lag.create_views(days=days)

    def events(self, since: str | timedelta | datetime = "24h", *, flow: str | None = None) -> Events:
        """Return what happened to the mirror since a time, or to one flow: pauses, parked streams, outages, changes, proofs, losses.

        It reads the lake alone. An event that began earlier and lasted into the time is among them.

        Raises:
            UsageError: the settings have no such flow, or `since` is not a time.

        Example:
            >>> [event.took() for event in mirror.events("2h") if event.kind == "cluster away"]  # doctest: +SKIP
            ['31.0 s']
        """
        flows, begin = self._context.chosen(flow), when(since, now=self._context.now())
        events = read_events(self._context, begin)
        return events if flow is None else events.of(flow, flows[0].source, flows[0].target)
