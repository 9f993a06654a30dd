"""Failover and what comes after it: what a mirror does for the steps of `mirrorlake.failover`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from mirrorlake import failover, landing, republish
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.failover import CutoverReport, Desk, FailbackReport, FailoverOptions, FailoverReport, Journal, Seam
from mirrorlake.groups import GroupSync
from mirrorlake.lake import OneWriter, who
from mirrorlake.mirror.services.changes import Changes
from mirrorlake.model.control import Pause, Subject
from mirrorlake.model.owner import new_owner
from mirrorlake.model.parked import landing as landing_stream
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.model.verify import VerifyReport
from mirrorlake.republish import Tenure
from mirrorlake.rules import View
from mirrorlake.verify import Verifications


class Recovery:
    """Fail flows of one mirror over and back, and cut over."""

    def __init__(self, context: Context, changes: Changes) -> None:
        self._context = context
        self._changes = changes

    def failover(
        self,
        flow: str,
        *,
        groups: Sequence[str] | None = None,
        dry_run: bool = False,
        unproven: bool = False,
        fence_source: str | None = None,
        report: bool = False,
        seam: Seam | None = None,
    ) -> FailoverReport:
        """Fail a flow over (see `FlowHandle.failover`); `seam` hears of each step, for tests."""
        fence = next((one for one in failover.FENCES if one == fence_source), None)
        if fence_source is not None and fence is None:
            raise UsageError(
                f"'{fence_source}' is not a way to keep producers off a source",
                consequence="nothing was changed",
                remedy=f"name one of: {', '.join(failover.FENCES)}",
            )
        options = FailoverOptions(
            groups=tuple(groups) if groups else None, unproven=unproven, fence=fence, reports=report
        )
        return failover.Failover(self.desk(flow, seam), options).run(dry_run=dry_run)

    def rehearse(self, flow: str, options: FailoverOptions, *, silent: str) -> FailoverReport:
        """Fail a flow over as if its source were lost; `silent` says so in the report."""
        return failover.Failover(replace(self.desk(flow, None), lost=silent), options).run()

    def failback(
        self,
        flow: str,
        *,
        tail: str | None = None,
        groups: Sequence[str] | None = None,
        leave: Sequence[str] = (),
        dry_run: bool = False,
        unproven: bool = False,
        seam: Seam | None = None,
    ) -> FailbackReport:
        """Fail a flow back (see `FlowHandle.failback`); `seam` hears of each step, for tests."""
        choice = next((one for one in failover.TAIL_CHOICES if one == tail), None)
        if tail is not None and choice is None:
            raise UsageError(
                f"'{tail}' is not what a tail can be settled by",
                consequence="nothing was changed",
                remedy=f"name one of: {', '.join(failover.TAIL_CHOICES)}",
            )
        only = tuple(groups) if groups else None
        hands, made = self._with_way_home(flow)
        desk = replace(hands.desk(flow, seam), made=made)
        work = failover.Failback(desk, tail=choice, groups=only, unproven=unproven, leave=leave)
        return work.run(dry_run=dry_run)

    def _with_way_home(self, flow: str) -> tuple[Recovery, str]:
        """Work with settings in which a flow leads home; these themselves where they have one, or where none can be made."""
        context = self._context
        config, settings = context.config, context.config.flow(flow)
        topics = failover.local_topics(context.lake, settings, config.flows)
        made = failover.made_way_home(settings, topics) if topics else None
        has_one = any(each.source == settings.target for each in config.flows_to(settings.source))
        if made is None or has_one or config.cluster(settings.source).is_lake:
            return self, ""
        if (found := config.with_flow(made)) is None:
            return self, ""
        beside = context.beside(found)
        return Recovery(beside, Changes(beside)), made.name

    def cutover(
        self, flow: str, *, commit: bool = False, back: bool = False, seam: Seam | None = None
    ) -> CutoverReport:
        """Go on with the cutover of a flow (see `FlowHandle.cutover`); `seam` hears of each step, for tests."""
        if commit and back:
            raise UsageError("commit and back exclude each other", remedy="name one of them")
        work = failover.Cutover(self.desk(flow, seam), plan=partial(self._changes.plan, flow))
        return work.back() if back else work.run(commit=commit)

    def desk(self, flow: str, seam: Seam | None) -> Desk:
        """Put together what a command on a flow works with."""
        context, settings = self._context, self._context.config.flow(flow)
        context.create_tables()
        desk = Desk(
            flow=settings,
            lake=context.lake,
            clusters=context,
            control=context.control(),
            journal=Journal(context.lake, flow=settings.name, where=settings.target, now=context.now),
            hands=self,
            now=context.now,
            reader=context.reader,
        )
        return desk if seam is None else replace(desk, seam=seam)

    # -- hands ----------------------------------------------------------------------------------------------------

    def land(self, alias: str) -> int:
        """Land what a source holds now, and return how many records that were; a lander that is replaced comes back after it."""
        context = self._context
        with context.presence.announced([landing_stream(alias)], temporary=True) as sign, context.board() as board:
            writer = OneWriter(context.lake, alias, owner=new_owner(sign))
            return landing.land(context, alias, threading.Event(), once=True, tell=board.tell, writer=writer)

    def drain(self, flow: FlowConfig, *, through: Callable[[View | None], View] | None = None) -> int:
        """Send all that is landed of a flow, paused or not, and return how many records that were; its duties rest.

        A republisher that is replaced comes back after it.
        """
        context = self._context
        state, at = context.control().state(), context.now()
        source = Subject(kind="cluster", name=flow.source)
        rests = replace(state, pauses={**state.pauses, source: Pause(subject=source, who=who(), since=at)})
        with context.presence.announced([flow.name], temporary=True) as sign, context.board() as board:
            settings = republish.republish_settings(context, flow, rests)
            if through is not None:
                settings = replace(settings, view=through(settings.view))
            tenure = Tenure(sign=sign)
            republisher = republish.make_republisher(context, settings, tell=board.tell, tenure=tenure)
            republisher.run(once=True, stop=threading.Event())
            return republisher.records

    def verify(self, flow: FlowConfig, *, lost: Collection[str]) -> VerifyReport:
        """Compare the places where the flow's records stand, without asking the clusters in `lost`."""
        return self._context.shared(Verifications).verify(flow.name, lost=lost)[0]

    def groups(self, flow: FlowConfig, *, recorded: bool, only: Collection[str] | None) -> GroupSync:
        """Give the planner of the flow's groups, or of some of them."""
        return GroupSync(self._context, flow, recorded=recorded, only=only)

    def held(self, flow: FlowConfig) -> list[HeldTopic]:
        """List the remote topics of a flow that were lost and wait for a choice."""
        return republish.find_lost_topics(self._context, flow)

    def runs(self, stream: str) -> bool:
        """Tell whether a process of any machine carries a stream now."""
        return bool(self._context.presence.carried([stream]))
