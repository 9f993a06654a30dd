"""Set a mirror up, and change it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake import offsets, republish
from mirrorlake.config import edit
from mirrorlake.mirror.calls.core import CoreCalls
from mirrorlake.model.control import Pause
from mirrorlake.model.group_standing import GroupStanding
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.needed_acls import NeededAcls
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Plan

if TYPE_CHECKING:
    from mirrorlake.config.edit import FlowPreview
    from mirrorlake.mm2 import OtherMirror, TakeoverPlan
    from mirrorlake.offsets import RebuildPlan
    from mirrorlake.topics import RuleTrial


class SetUpCalls(CoreCalls):
    """Plan and apply what a mirror needs, and steer it."""

    def plan(self, flow: str | None = None) -> Plan:
        """Plan what `apply` would change on the targets and in the lake, without changing anything (law G)."""
        return self._services.changes.plan(flow)

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Carry out a plan, the present one by default, and return it; running mirrors then adopt the settings.

        A given plan puts the settings in force only where it shows how they were edited.
        """
        return self._services.changes.apply(flow, plan)

    def acls(
        self,
        principal: str,
        flow: str | None = None,
        *,
        also: Collection[str] = (),
        host: str = "*",
        command_config: str = "",
    ) -> NeededAcls:
        """List the ACLs that a principal needs, and no more, with the commands that grant them; asks no cluster.

        What the settings turn on is in it: groups, settings, ACLs, MirrorMaker 2's topics.

        Args:
            principal: as the brokers see it, such as `User:mirror`; for TLS clients `User:CN=mirror,O=example`.
            flow: this flow only; all flows of the settings without it.
            also: what is done by hand: `fence-acl` and `fence-topic` keep producers off a source, `failover` places groups
                that are not kept in step, `failback` returns to the source.
            host: the address that the principal comes from; `*` for any.
            command_config: a file with the login of whoever runs the commands.

        Raises:
            UsageError: `principal` is not `Type:name`, there is no such flow, or `also` names something else.

        Example:
            >>> print(mirror.acls("User:mirror").script())  # doctest: +SKIP
        """
        return self._services.changes.acls(
            flow, principal=principal, also=also, host=host, command_config=command_config
        )

    def preview(self, flow: str) -> FlowPreview:
        """Preview the topics of its source that a flow mirrors, with their names, and those that it leaves out, with reasons.

        Raises:
            ClusterError: the source does not answer.
        """
        settings = self.config.flow(flow)
        return edit.preview(settings, self._context.source(settings.source).topic_names())

    def try_rules(self, flow: str, topic: str, newest: int) -> RuleTrial:
        """Try the rules of a flow on the newest records of a topic (see `FlowHandle.try_rules`)."""
        return self[flow].try_rules(topic, newest)

    def plan_groups(self, flow: str, *, recorded: bool = False, groups: Sequence[str] | None = None) -> GroupPlan:
        """Plan where each consumer group of a flow goes on at the target (see `FlowHandle.groups`)."""
        return self[flow].groups(recorded=recorded, groups=groups)

    def apply_groups(
        self,
        flow: str,
        *,
        recorded: bool = False,
        groups: Sequence[str] | None = None,
        plan: GroupPlan | None = None,
    ) -> GroupPlan:
        """Set the positions of a flow's groups that are inactive on the target (see `FlowHandle.apply_groups`)."""
        return self[flow].apply_groups(recorded=recorded, groups=groups, plan=plan)

    def group_standing(self, flow: str) -> GroupStanding:
        """Show members, state and lag of a flow's groups on both clusters (see `FlowHandle.group_standing`)."""
        return self[flow].group_standing()

    def takeover(self, flow: str, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Plan where a flow goes on after a MirrorMaker 2 that was stopped (see `FlowHandle.takeover`)."""
        return self[flow].takeover(other=other, trust_stored=trust_stored)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Carry a takeover out and return it: the flow's next `run` goes on there.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        return self._services.changes.apply_takeover(plan)

    def plan_rebuild(self, *, like: str, target: str, recorded: bool = False) -> RebuildPlan:
        """Plan how to give `target` the merged topics of `like` in their recorded order, without changing anything (law G).

        With `recorded` the order comes from the lake alone, where `like` is lost.

        Raises:
            UsageError: no flow into `target` has a counterpart into `like`, or records go by key.
            SafetyError: `target` holds more than the beginning of that order, or the order is not certain yet.
        """
        return offsets.make_rebuild_plan(self.lake, self._context, like=like, target=target, recorded=recorded)

    def apply_rebuild(self, plan: RebuildPlan, *, stop: threading.Event | None = None) -> int:
        """Send what a rebuild plan holds and return how many records that were; `stop` ends it between two stretches."""
        with self._context.board() as board:
            return offsets.apply_rebuild(
                plan, partial(republish.send_in_order, self._context), stop=stop, tell=board.tell
            )

    def pause(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause:
        """Pause a cluster, a flow or a topic of a flow, here and in every process that runs on this lake; asks no cluster.

        A paused cluster is neither read nor written by streams; what the relay holds of it still goes to other clusters.
        Of a paused flow or topic landing goes on, and what it lands is sent after `resume`, without a gap or a repeat.

        Name a `cluster` by its alias, or a `flow`, or a `flow` and a source `topic` of it; `reason` is shown with the pause.

        Raises:
            UsageError: neither or both are named, or the settings do not know it.

        Example:
            >>> mirror.pause(flow="east->central", reason="the line is needed for a backup")  # doctest: +SKIP
        """
        return self._services.changes.pause(cluster=cluster, flow=flow, topic=topic, reason=reason)

    def resume(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause | None:
        """End a pause and return it, None where there was none; the arguments are those of `pause`.

        Streams that a running mirror has parked after a failure are started again, too: the flow's, or with `cluster` the
        landing from it and the flows into it. `status` names them.
        """
        return self._services.changes.resume(cluster=cluster, flow=flow, topic=topic, reason=reason)

    def parked(self) -> Mapping[str, Parked]:
        """Return the streams that failed in a running mirror while the others went on, by name; asks no cluster."""
        return self._context.control().state().parked
