"""The part of the facade that sets a mirror up and changes it: plan, apply, groups, takeovers, pauses."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from mirrorlake.config.edit.preview import FlowPreview, preview
from mirrorlake.lake.audit import Audit
from mirrorlake.mirror.base import Part
from mirrorlake.mm2.survey import OtherMirror, Sites
from mirrorlake.mm2.takeover import TakeoverPlan, apply_takeover, make_takeover_plan
from mirrorlake.model.control import Pause
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Plan
from mirrorlake.offsets.rebuild import RebuildPlan, apply_rebuild
from mirrorlake.republish.in_order import InOrder
from mirrorlake.republish.republisher import Republisher
from mirrorlake.topics import settings_in_force as control_step
from mirrorlake.topics import setup as set_up
from mirrorlake.topics.edits import SETTINGS


class SettingUp(Part):
    """Plans and changes of a mirror."""

    def plan(self, flow: str | None = None) -> Plan:
        """Plan what `apply` would change on the targets and in the lake, without changing anything (law G)."""
        edited = control_step.settings_plan(self.config, self._wiring.control(), flow=flow)
        return edited + set_up.make_plan(
            self._chosen(flow),
            beside=self.config.flows,
            sources=self._wiring.sources(),
            admins=self._wiring.clusters(),
            lake=self.lake,
            audit=Audit(self.lake, now=self._now),
            held=self._wiring.held,
        )

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Carry out a plan, the present one by default, and return it; running mirrors then adopt the settings.

        A given plan puts the settings in force only where it shows how they were edited.
        """
        chosen = self.plan(flow) if plan is None else plan
        sources = {f.source for f in self._chosen(flow)}
        set_up.apply_plan(
            chosen, sources=sorted(sources), admins=self._wiring.clusters(), lake=self.lake, now=self._now
        )
        control = self._wiring.control()
        if plan is None or control.state().applied is None or any(change.where == SETTINGS for change in plan.changes):
            control_step.put_in_force(self.config, control, flow=flow)
        return chosen

    def plan_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Return where each consumer group of a flow would go on at the target, and what is held back and why.

        Nobody consumes from a lake cluster: the plan of a flow from one is empty.

        Args:
            flow: the flow's name.
            recorded: take the groups' positions from the lake, where the source is lost.
        """
        return self._wiring.group_sync(self.config.flow(flow), recorded=recorded).plan()

    def apply_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Set what the plan of this moment moves, write positions and checkpoints to the lake, and return the plan."""
        return self._wiring.group_sync(self.config.flow(flow), recorded=recorded).apply()

    def takeover(self, flow: str, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Return where a flow goes on after a MirrorMaker 2 that was stopped; changes nothing (law G).

        Args:
            flow: the flow, which has not begun yet.
            other: where MirrorMaker kept its state.
            trust_stored: go on at its stored offsets where the records on the target cannot tell.
        """
        settings = self.config.flow(flow)
        source, target = settings.source, settings.target
        sites = Sites(
            self.admin(source),
            self.admin(target),
            self._wiring.reader_options(source),
            self._wiring.reader_options(target),
        )
        return make_takeover_plan(settings, sites, other=other, trust_stored=trust_stored)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Carry a takeover out and return it: the flow's next `run` goes on there.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        flow = self.config.flow(plan.flow)
        apply_takeover(
            plan,
            flow,
            target=self.admin(flow.target),
            producer_options=self._wiring.producer_options(flow),
            reader_options=self._wiring.reader_options(flow.target),
            lake=self.lake,
            now=self._now(),
        )
        return plan

    def plan_rebuild(self, *, like: str, target: str, recorded: bool = False) -> RebuildPlan:
        """Plan how to give `target` the merged topics of `like` in their recorded order, without changing anything (law G).

        Args:
            like: the target whose order is recorded.
            target: the target that gets it.
            recorded: take the order from the lake alone, where `like` is lost.

        Raises:
            UsageError: no flow into `target` has a counterpart into `like`, or records go by key.
            SafetyError: `target` holds more than the beginning of that order, or the order is not certain yet.
        """
        return self._wiring.rebuild_plan(like=like, target=target, recorded=recorded)

    def apply_rebuild(self, plan: RebuildPlan, *, stop: threading.Event | None = None) -> int:
        """Send what a rebuild plan holds and return how many records that were; `stop` ends it between two stretches."""
        with self._wiring.watching() as board:
            return apply_rebuild(plan, self._in_order, stop=stop, tell=board.tell)

    def _in_order(self, flow: str) -> InOrder:
        settings = self._wiring.republish_settings(self.config.flow(flow))
        audit = Audit(self.lake, now=self._now)
        return Republisher(self.lake, self.admin(settings.flow.target), settings, audit=audit).in_order()

    def pause(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause:
        """Pause a cluster, a flow or a topic of a flow, here and in every process that runs on this lake; asks no cluster.

        A paused cluster is neither read nor written by streams; what the relay holds of it still goes to other clusters.
        Of a paused flow or topic landing goes on, and what it lands is sent after `resume`, without a gap or a repeat.

        Args:
            cluster: an alias.
            flow: a flow's name.
            topic: a source topic that the flow carries.
            reason: shown wherever the pause is.

        Raises:
            UsageError: one of them is needed, and known to the settings.

        Example:
            >>> mirror.pause(flow="east->central", reason="the line is needed for a backup")  # doctest: +SKIP
        """
        subject = control_step.subject_of(self.config, cluster=cluster, flow=flow, topic=topic)
        return control_step.pause(self._wiring.control(), subject, reason=reason)

    def resume(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause | None:
        """End a pause and return it, None where there was none; the arguments are those of `pause`.

        Streams that a running mirror has parked after a failure are started again, too: the flow's, or with `cluster` the
        landing from it and the flows into it. `status` names them.
        """
        subject = control_step.subject_of(self.config, cluster=cluster, flow=flow, topic=topic)
        control_step.resume_parked(self.config, self._wiring.control(), subject, reason=reason)
        return control_step.resume(self._wiring.control(), subject, reason=reason)

    def parked(self) -> Mapping[str, Parked]:
        """Return the streams that failed in a running mirror while the others went on, by name; asks no cluster."""
        return self._wiring.control().state().parked

    def preview(self, flow: str) -> FlowPreview:
        """Return which topics of its source a flow mirrors under which names, and which it leaves out and why.

        Raises:
            ClusterError: the source does not answer.
        """
        settings = self.config.flow(flow)
        return preview(settings, self._wiring.source(settings.source).topic_names())
