"""One flow of a mirror: its settings, and its own calls."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake import mm2, republish, rules, topics
from mirrorlake import verify as verification
from mirrorlake.config import flow_sheet
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import AUDIT
from mirrorlake.mirror import changes
from mirrorlake.mirror.flow_recovery import FlowRecoveryMethods
from mirrorlake.mirror.offsets import Offsets
from mirrorlake.mirror.results import Ran, RepublishResult
from mirrorlake.model.control import Pause
from mirrorlake.model.group_overview import GroupOverview
from mirrorlake.model.groups import GroupPlan, GroupPosition
from mirrorlake.model.plan import Change, Plan
from mirrorlake.model.remotes import LostTopic
from mirrorlake.model.verify import VerifyReport
from mirrorlake.offsets import GroupSync
from mirrorlake.render import Displayable, Sheet
from mirrorlake.status import FlowStatus, Lag, Monitor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlake.mirror.runner import Runner
    from mirrorlake.mm2 import OtherMirror, TakeoverPlan
    from mirrorlake.republish import Quarantine
    from mirrorlake.topics import RulesShown, RuleTrial


def runner_of(context: Context) -> Runner:
    """Return the runner of a mirror's streams; imported late, because the import is heavy."""
    from mirrorlake.mirror.runner import Runner

    return context.shared(Runner)


class FlowHandle(FlowRecoveryMethods, Displayable):
    """One flow of a mirror: `mirror["east->central"]`."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self.name = name

    def __repr__(self) -> str:
        return f"FlowHandle({self.name})"

    def sheet(self) -> Sheet:
        """Return the flow's settings; calls no cluster (see `FlowHandle.status`)."""
        return flow_sheet(self._context.config, self.config)

    @property
    def config(self) -> FlowConfig:
        """The flow's settings; a running mirror adopts newer ones that were applied."""
        return self._context.config.flow(self.name)

    @property
    def offsets(self) -> Offsets:
        """The offset map."""
        return Offsets(self._context, self.name)

    # -- set up ---------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Plan the changes of `apply` for this flow (see `Mirror.plan`)."""
        return changes.plan_changes(self._context, self.name)

    def apply(self, plan: Plan | None = None) -> Plan:
        """Apply a plan of this flow (see `Mirror.apply`)."""
        return changes.apply_changes(self._context, self.name, plan)

    def takeover(self, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Plan the takeover of this flow from a stopped MirrorMaker 2; changes nothing (law G).

        Args:
            other: the location of MirrorMaker's state.
            trust_stored: start at its stored offsets if the records on the target do not show the position.
        """
        return mm2.make_takeover_plan(self._context, self.config, other=other, trust_stored=trust_stored)

    def rules(self) -> RulesShown:
        """Return the rules of this flow, in the order in which they apply, with their versions."""
        return topics.list_rules(self.config)

    def try_rules(self, topic: str, newest: int = 1000) -> RuleTrial:
        """Try the rules on the newest records of a source topic in the relay, without changing anything.

        Raises:
            UsageError: the flow does not carry the topic, or the function of a rule does not exist.
            ConfigError: a key cannot be resolved.

        Example:
            >>> mirror["east->central"].try_rules("orders", 500).filtered  # doctest: +SKIP
            17
        """
        context, flow = self._context, self.config
        view = rules.view_of_flow(flow)
        return topics.try_rules(context.lake, flow, view, topic=topic, newest=newest)

    # -- run ------------------------------------------------------------------------------------------------------

    def republish(
        self,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        restore_ledger: bool = False,
        take_over: bool = False,
    ) -> RepublishResult:
        """Republish this flow.

        Args:
            once: republish the records landed so far and return; otherwise until `stop` is set.
            stop: set it to return after the current batch.
            rebuild_checkpoint: create a new checkpoint location from the ledger after the old one was lost.
            restore_ledger: start from the furthest positions of ledger and lake after the ledger was lost; a whole ledger
                is refused.
            take_over: with `once`, republish instead of a process that runs the flow.

        Raises:
            AlreadyRuns: with `once`, a process of any machine already runs the flow; nothing was done.
        """
        return runner_of(self._context).republish(
            self.config,
            once=once,
            stop=stop or threading.Event(),
            rebuild=rebuild_checkpoint,
            restore_ledger=restore_ledger,
            take_over=take_over,
        )

    def run(
        self,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        metrics_port: int | None = None,
        take_over: bool = False,
    ) -> Ran:
        """Land this flow's source and republish the flow (see `Mirror.run`)."""
        return runner_of(self._context).run(
            self.name, once=once, stop=stop or threading.Event(), metrics_port=metrics_port, take_over=take_over
        )

    def pause(self, topic: str | None = None, *, reason: str = "") -> Pause:
        """Pause this flow, or one of its topics (see `Mirror.pause`)."""
        return changes.pause_stream(self._context, flow=self.name, topic=topic, reason=reason)

    def resume(self, topic: str | None = None, *, reason: str = "") -> Pause | None:
        """Resume this flow, or one of its topics (see `Mirror.resume`)."""
        return changes.resume_stream(self._context, flow=self.name, topic=topic, reason=reason)

    def lost_topics(self) -> list[LostTopic]:
        """Return this flow's remote topics that were deleted or created again and wait for a choice.

        Raises:
            ClusterError: the target does not answer.
        """
        return republish.find_lost_topics(self._context, self.config)

    def send_again(self, topic: str) -> LostTopic | None:
        """Choose to send a lost remote topic everything again from the relay (see `Mirror.resolve_lost_topic`)."""
        return self._resolve_lost_topic(topic, send_again=True)

    def accept_empty(self, topic: str) -> LostTopic | None:
        """Choose to continue a lost remote topic empty, with unsent records only (see `Mirror.resolve_lost_topic`)."""
        return self._resolve_lost_topic(topic, send_again=False)

    def _resolve_lost_topic(self, topic: str, *, send_again: bool) -> LostTopic | None:
        context, flow = self._context, self.config
        context.lake.create_all([flow.source])
        return republish.resolve_lost_topic(context.control(), flow, topic, self.lost_topics(), send_again=send_again)

    @property
    def quarantine(self) -> Quarantine:
        """The quarantined records, and the call that redrives them."""
        return republish.Quarantine(self._context, self.config)

    # -- consumer groups ------------------------------------------------------------------------------------------

    def groups(self, *, recorded: bool = False, groups: Sequence[str] | None = None) -> GroupPlan:
        """Plan the position of each consumer group on the target, and which groups are not moved and why.

        A lake cluster has no consumers: the plan of a flow from one is empty.

        Args:
            recorded: take the groups' positions from the lake, because the source is lost.
            groups: only these groups; None for all of the flow.

        Raises:
            UsageError: one of `groups` has no position on the flow's topics.
        """
        return _named(self._sync(recorded=recorded, only=groups).plan(), groups)

    def apply_groups(
        self, *, recorded: bool = False, groups: Sequence[str] | None = None, plan: GroupPlan | None = None
    ) -> GroupPlan:
        """Set the positions of groups that are inactive on the target by the present plan, and return the plan.

        Positions and checkpoints are written to the lake.

        Args:
            recorded: take the groups' positions from the lake, because the source is lost.
            groups: only these groups; None for all of the flow.
            plan: a plan that was shown: exactly its moves are made. Those that are no longer allowed are returned on hold,
                with the reason (laws A and G).

        Raises:
            UsageError: one of `groups` has no position on the flow's topics, or the plan is another flow's.

        Example:
            >>> plan = mirror["east->central"].groups(groups=["billing"])  # doctest: +SKIP
            >>> mirror["east->central"].apply_groups(plan=plan)  # doctest: +SKIP
        """
        if plan is not None and plan.flow != self.name:
            raise UsageError(
                f"the plan is of {plan.flow}, not of {self.name}", remedy=f"plan the groups of {self.name}"
            )
        if plan is not None:
            shown = plan if groups is None else _named(plan.only(groups), groups)
            return self._sync(recorded=recorded, only=shown.groups).apply(shown, tell=self._record_moves)
        # An unknown name is refused before anything is set.
        chosen = None if groups is None else self.groups(recorded=recorded, groups=groups)
        return self._sync(recorded=recorded, only=groups).apply(chosen, tell=self._record_moves)

    def _record_moves(self, done: GroupPlan) -> None:
        """Record in `audit` which groups a person moved; those that a running mirror moves are in `checkpoints`."""
        moves: dict[str, list[GroupPosition]] = {}
        for move in done.moves:
            moves.setdefault(move.group, []).append(move)
        changes = [
            Change(
                where=self.config.target,
                kind="group",
                name=group,
                action="move",
                before={str(one.resume.target): one.target_offset for one in several},
                after={str(one.resume.target): one.resume.downstream_offset for one in several},
                flow=self.name,
            )
            for group, several in moves.items()
        ]
        if changes:
            self._context.lake.create_side_table(AUDIT)
            self._context.audit().record(changes, command="groups")

    def _sync(self, *, recorded: bool = False, only: Sequence[str] | None = None) -> GroupSync:
        return GroupSync(self._context, self.config, recorded=recorded, only=only)

    def group_standing(self) -> GroupOverview:
        """Return members, state and lag of each group on both clusters, with its planned position (see `groups`).

        Raises:
            ClusterError: a cluster does not answer, or denies access.

        Example:
            >>> mirror["east->central"].group_standing()  # doctest: +SKIP
        """
        return self._sync().overview()

    # -- check ----------------------------------------------------------------------------------------------------

    def status(self) -> FlowStatus:
        """Return the state of each partition of this flow (see `Mirror.status`)."""
        return self._context.shared(Monitor).status(self.name)[self.name]

    def verify(
        self,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
    ) -> VerifyReport:
        """Compare source, relay and target of this flow (see `Mirror.verify`)."""
        return self._context.shared(verification.Verifications).verify(self.name, full=full, since=since, until=until)[
            0
        ]

    @property
    def lag(self) -> Lag:
        """The lag of each hop of this flow, now and over time (see `Lag`)."""
        return self._context.shared(Monitor).lag(self.name)


def _named(plan: GroupPlan, groups: Sequence[str] | None) -> GroupPlan:
    unknown = sorted(set(groups or ()) - set(plan.groups))
    if unknown:
        raise UsageError(
            f"no group {', '.join(unknown)} has a position on the topics of {plan.flow}",
            consequence="nothing was changed",
            remedy=f"mirrorlake groups --flow '{plan.flow}' lists those that have one",
        )
    return plan
