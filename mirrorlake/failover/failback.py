"""Fail a flow back: resolve the divergent tail, send newer records back, return the groups, resume the flow.

    land      what the source holds is landed; records past where the flow stopped are the divergent tail
    tail      the tail is found in the relay
    settle    by choice it is sent (`restore`), or stepped over and left on the source (`keep`, `drop`)
    back      what was produced on the target since goes to the source, by the flow of the settings that leads there
    prove     both directions are verified
    groups    each group goes on at the source after the last record that it has read on the target (law A)
    resume    the flow runs again in every process of the lake
    done      the report

Law H: the source's groups are set because this command was given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec

from mirrorlake.context import Context
from mirrorlake.errors import FailoverRefused, UsageError
from mirrorlake.failover.divergent_tail import RESOLVE, DivergentTail, tail_of
from mirrorlake.failover.failback_report import TAIL_CHOICES, FailbackReport, TailChoice, not_failed_back
from mirrorlake.failover.failover import GROUPS, PROVE
from mirrorlake.failover.groups_back import plan_groups_back
from mirrorlake.failover.operation_context import FAILBACK, OperationContext, failed_over, positions_to_json
from mirrorlake.failover.report import PlacedGroup, ProofSummary, ReportedStep
from mirrorlake.failover.return_flows import ReturnFlows
from mirrorlake.model.control import Subject
from mirrorlake.model.groups import GroupPlan
from mirrorlake.offsets import apply_groups
from mirrorlake.procedure import DONE, Operation, Procedure, Refusal, Step
from mirrorlake.render import document
from mirrorlake.topics import settings_in_force

LAND, BACK, RESUME = "land", "back", "resume"


def fail_back(
    context: Context,
    flow: str,
    *,
    tail: str | None = None,
    groups: Sequence[str] | None = None,
    leave: Sequence[str] = (),
    dry_run: bool = False,
    unproven: bool = False,
) -> FailbackReport:
    """Fail a flow back (see `FlowHandle.failback`)."""
    choice = next((one for one in TAIL_CHOICES if one == tail), None)
    if tail is not None and choice is None:
        raise UsageError(
            f"'{tail}' is not a choice for the tail",
            consequence="nothing was changed",
            remedy=f"name one of: {', '.join(TAIL_CHOICES)}",
        )
    work = OperationContext.of(context, flow)
    only = tuple(groups) if groups else None
    return Failback(work, tail=choice, groups=only, unproven=unproven, leave=leave).run(dry_run=dry_run)


class Failback(Procedure[FailbackReport]):
    """One failback of one flow, with the options of `FlowHandle.failback`."""

    command = FAILBACK

    def __init__(
        self,
        work: OperationContext,
        *,
        tail: TailChoice | None,
        groups: Collection[str] | None,
        unproven: bool,
        leave: Collection[str] = (),
    ) -> None:
        super().__init__(work.journal)
        self._work = work
        self._flow = work.flow
        self._choice = tail
        self._home = ReturnFlows(work, leave)
        self._leave = sorted(leave)
        self._only = groups
        self._unproven = unproven
        self._groups_plan = GroupPlan(work.flow.name, ())

    @cached_property
    def _operations(self) -> list[Operation]:
        return self._journal.operations()

    @cached_property
    def _over(self) -> Operation:
        """The failover that it ends. Raises UsageError: the flow was not failed over."""
        over = failed_over(self._operations)
        if over is None:
            raise UsageError(
                f"{self._flow.name} was not failed over",
                consequence="there is nothing to fail back",
                remedy=f"mirrorlake failover --flow '{self._flow.name}'",
                flow=self._flow.name,
            )
        return over

    @cached_property
    def _tail(self) -> DivergentTail:
        return DivergentTail(self._work, self._over, self._choice)

    def _repeat(self) -> FailbackReport | None:
        done = next((one for one in reversed(self._operations) if one.command == FAILBACK and one.is_done), None)
        if done is None or failed_over(self._operations) is not None:
            return None
        return replace(msgspec.convert(done.after(DONE), FailbackReport), is_repeat=True)

    def _unfinished(self) -> Operation | None:
        return next((one for one in reversed(self._operations) if one.command == FAILBACK and not one.is_done), None)

    def _request(self) -> Mapping[str, Any]:
        return {"before": {"failover": self._over.id, "tail": self._choice, "leave": self._leave}}

    # -- what forbids it ------------------------------------------------------------------------------------------

    def _refusals(self, operation: Operation | None) -> list[Refusal]:
        work, flow, over = self._work, self._flow, self._over
        # What does not answer cannot be failed back to.
        work.context.admin(flow.source).broker_count()
        found = work.paused_clusters(flow.source, flow.target)
        plans = [work.groups(each, only=self._only).plan() for each in self._home.flows]
        self._groups_plan = plan = GroupPlan.of(flow.name, plans if flow.adds_hops else [self._plan_back(), *plans])
        if unknown := sorted({*(self._only or ())} - {*plan.groups}):
            raise UsageError(
                f"group {', '.join(unknown)} has no position on {flow.target} that could go back",
                consequence="nothing was changed",
                remedy=f"mirrorlake failback --flow '{flow.name}' --dry-run shows the groups",
            )
        if operation is None or operation.step(GROUPS) is None:
            found += work.active_groups(plan.groups, flow.target, flow.source)
        if operation is None or operation.step(BACK) is None:
            found += self._home.refusals(over)
        return found

    def _refused(self, refusals: Sequence[Refusal]) -> FailoverRefused:
        return not_failed_back(self._flow, refusals)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _steps(self) -> Sequence[Step]:
        return (
            Step(LAND, self._land),
            *self._tail.steps(),
            Step(BACK, lambda _: self._home.send_back(self._over)),
            Step(PROVE, self._prove),
            Step(GROUPS, self._place_groups),
            Step(RESUME, self._resume),
        )

    def _land(self, _: Operation) -> Any:
        ends = self._work.ends(self._flow)
        return {"ends": positions_to_json(ends), "landed": self._work.land_up_to(self._flow, ends)}

    def _prove(self, _: Operation) -> Any:
        if self._unproven:
            return document(ProofSummary(is_skipped=True))
        found = []
        for each in (self._flow, *self._home.flows):
            # Records landed while the flow is paused are sent when it runs again.
            stops_at = self._work.sent(each) if each is self._flow else None
            one = ProofSummary.of(self._work.verify(each), stops_at=stops_at)
            if one.differences:
                raise self._refused([Refusal(f"{each.name}: {'; '.join(one.differences[:5])} (--unproven goes on)")])
            found.append(one)
        verified, not_compared = (sum(one.verified for one in found), sum(one.not_compared for one in found))
        return document(ProofSummary(verified=verified, not_compared=not_compared))

    def _place_groups(self, operation: Operation) -> Any:
        work, flow = self._work, self._flow
        done = [work.groups(each, only=self._only).apply() for each in self._home.flows]
        if not flow.adds_hops:
            plan = self._tail.move_past_dropped(self._plan_back(), operation)
            done.append(apply_groups(plan, target=work.context.groups(flow.source), where=flow.source))
        placed = GroupPlan.of(flow.name, done)
        if live := placed.with_members:
            raise self._refused([Refusal(f"group {group} has got members: stop them") for group in live])
        return document(PlacedGroup.list(placed))

    def _resume(self, operation: Operation) -> None:
        work, subject = self._work, Subject(kind="flow", name=self._flow.name)
        reason = f"failback {operation.id}"
        settings_in_force.resume_parked(work.context.config, work.control, subject, reason=reason)
        settings_in_force.resume(work.control, subject, reason=reason)

    def _plan_back(self) -> GroupPlan:
        return plan_groups_back(self._work.context, self._flow, only=self._only)

    # -- the report -----------------------------------------------------------------------------------------------

    def _plan(self, operation: Operation | None, refusals: Sequence[Refusal]) -> FailbackReport:
        tail, records = self._tail.preview()
        return replace(
            self._make_report(operation),
            refusals=tuple(map(str, refusals)),
            tail=tail,
            records=records,
            choice=self._choice,
            groups=PlacedGroup.list(self._groups_plan),
        )

    def _report(self, operation: Operation) -> FailbackReport:
        return replace(
            self._make_report(operation),
            state="done",
            ended_at=self._work.now(),
            tail=tail_of(operation),
            choice=operation.after(RESOLVE)["choice"],
            back=operation.after(BACK),
            proof=msgspec.convert(operation.after(PROVE), ProofSummary),
            groups=msgspec.convert(operation.after(GROUPS), tuple[PlacedGroup, ...]),
        )

    def _make_report(self, operation: Operation | None) -> FailbackReport:
        steps, flows = operation.steps if operation is not None else (), (self._flow, *self._home.flows)
        return FailbackReport(
            **self._work.identity(operation),
            state="planned",
            failover=self._over.id,
            blocked=tuple(one for flow in flows for one in self._work.open_transactions(flow, self._work.ends(flow))),
            steps=tuple(ReportedStep(name=step.name, at=step.at) for step in steps),
        )
