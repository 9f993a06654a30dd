"""Fail a flow back: resolve the divergent tail, send newer records back, return the groups, resume the flow.

    unfence   a fence that the failover put up on the source is taken down
    land      what the source holds is landed; records past where the flow stopped are the divergent tail
    tail      the tail is kept in the table `divergent`
    settle    by choice it is sent (`restore`), or stepped over and left on the source (`keep`, `drop`)
    back      what was produced on the target since goes to the source, by the flow of the settings that leads there
    prove     both directions are verified
    groups    each group goes on at the source after the last record that it has read on the target (law A)
    resume    the flow runs again in every process of the lake
    done      the report

Law F (repeatable): each step has a row in `audit`, and the command goes on with the first one that has none.
Law H: the source's groups are set, and its fence is taken down, because this command was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from mirrorlake.errors import UsageError
from mirrorlake.failover.divergent_tail import RESOLVE, TAIL, DivergentTail
from mirrorlake.failover.failback_report import FailbackReport, TailChoice, not_failed_back
from mirrorlake.failover.failover import GROUPS, PROVE
from mirrorlake.failover.groups_back import plan_groups_back
from mirrorlake.failover.journal import DONE, FAILBACK, Operation, failed_over
from mirrorlake.failover.operation_context import OperationContext, positions_to_json
from mirrorlake.failover.report import PlacedGroup, ProofSummary, ReportedStep
from mirrorlake.failover.return_flows import ReturnFlows
from mirrorlake.failover.source_fence import active_source_fence
from mirrorlake.failover.tail import archived_tail_records
from mirrorlake.groups import apply_groups
from mirrorlake.model.control import Subject
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.plan import Change
from mirrorlake.render import document
from mirrorlake.topics import settings_in_force

UNFENCE, LAND, BACK, RESUME = "unfence", "land", "back", "resume"


class Failback:
    """One failback of one flow; `run` resumes an earlier one that was killed.

    Args:
        work: what it works with.
        tail: what becomes of records that never arrived; without a choice, a failback that finds some stops there.
        groups: only these consumer groups.
        unproven: place groups without any verification.
        leave: topics on the target whose records written since stay there.
    """

    def __init__(
        self,
        work: OperationContext,
        *,
        tail: TailChoice | None,
        groups: Collection[str] | None,
        unproven: bool,
        leave: Collection[str] = (),
    ) -> None:
        self._work = work
        self._flow = work.flow
        self._choice = tail
        self._tail = DivergentTail(work, tail)
        self._home = ReturnFlows(work, leave)
        self._leave = sorted(leave)
        self._only = groups
        self._unproven = unproven

    def run(self, *, dry_run: bool = False) -> FailbackReport:
        """Fail back, or with `dry_run` only report the plan.

        Raises:
            FailoverRefused: it is not safe, or the tail waits for a choice; all reasons.
            UsageError: the flow was not failed over.
            ClusterError: the source or the target does not answer.
        """
        work, flow = self._work, self._flow
        operations = work.journal.operations()
        over = failed_over(operations)
        if over is None:
            return self._repeat(operations)
        operation = next((one for one in reversed(operations) if one.command == FAILBACK and not one.is_done), None)
        work.context.admin(flow.source).broker_count()
        refusals, plan = self._refusals(over, operation)
        if dry_run:
            return self._plan_report(over, operation, plan, refusals)
        if refusals:
            raise not_failed_back(flow, refusals)
        if operation is None:
            operation = work.journal.begin(FAILBACK, before=self._asked(over))
            work.step_hook("begin", "written")
        for step, carry_out in self._steps().items():
            if operation.step(step) is None:
                operation = carry_out(operation, over)
        report = self._report(operation, over)
        work.write(operation, DONE, after=document(replace(report, records=())))
        return report

    def _asked(self, over: Operation) -> dict[str, Any]:
        """Return the options for the journal, with the derived flow."""
        made = self._home.derived
        return {
            "failover": over.id,
            "tail": self._choice,
            "leave": self._leave,
            "made": None if made is None else made.name,
        }

    def _steps(self) -> Mapping[str, Callable[[Operation, Operation], Operation]]:
        return {
            UNFENCE: self._unfence,
            LAND: self._land,
            TAIL: self._tail.archive,
            RESOLVE: lambda operation, _: self._tail.resolve(operation),
            BACK: self._send_back,
            PROVE: self._prove,
            GROUPS: self._groups,
            RESUME: self._resume,
        }

    def _repeat(self, operations: Sequence[Operation]) -> FailbackReport:
        done = next((one.step(DONE) for one in reversed(operations) if one.command == FAILBACK and one.is_done), None)
        if done is None:
            raise UsageError(
                f"{self._flow.name} was not failed over",
                consequence="there is nothing to fail back",
                remedy=f"mirrorlake failover --flow '{self._flow.name}'",
                flow=self._flow.name,
            )
        report = msgspec.convert(done.after, FailbackReport)
        return replace(report, records=archived_tail_records(self._work.lake, report.failover), is_repeat=True)

    # -- what forbids it ------------------------------------------------------------------------------------------

    def _refusals(self, over: Operation, operation: Operation | None) -> tuple[list[str], GroupPlan]:
        work, flow = self._work, self._flow
        found = []
        for alias in (flow.source, flow.target):
            if (pause := work.control.state().of_cluster(alias)) is not None:
                found.append(f"{alias} is paused by {pause.who}: {pause.resume_command}")
        plan = self._plan_groups()
        if unknown := sorted(set(self._only or ()) - {one.group for one in plan}):
            raise UsageError(
                f"group {', '.join(unknown)} has no position on {flow.target} that could go back",
                consequence="nothing was changed",
                remedy=f"mirrorlake failback --flow '{flow.name}' --dry-run shows the groups",
            )
        if operation is None or operation.step(GROUPS) is None:
            named = {one.group for one in plan}
            for alias in (flow.target, flow.source):
                found += [
                    f"group {group} has members on {alias}: stop them, or name the other groups with --group"
                    for group in sorted(named & work.context.groups(alias).active())
                ]
        if operation is None or operation.step(BACK) is None:
            found += self._home.refusals(over)
        return found, plan

    # -- steps ----------------------------------------------------------------------------------------------------

    def _unfence(self, operation: Operation, _: Operation) -> Operation:
        admin = self._work.context.admin(self._flow.source)
        undone = [_undo(change) for change in active_source_fence(self._work.journal.operations())]
        for change in undone:
            admin.apply(change)
        return self._work.write(operation, UNFENCE, after=[*map(str, undone)])

    def _land(self, operation: Operation, _: Operation) -> Operation:
        ends = self._work.ends(self._flow)
        landed = self._work.land_up_to(self._flow, ends)
        return self._work.write(operation, LAND, after={"ends": positions_to_json(ends), "landed": landed})

    def _send_back(self, operation: Operation, over: Operation) -> Operation:
        return self._work.write(operation, BACK, after=self._home.send_back(over))

    def _prove(self, operation: Operation, _: Operation) -> Operation:
        if self._unproven:
            return self._work.write(operation, PROVE, after=document(ProofSummary(is_skipped=True)))
        found = []
        for each in (self._flow, *self._home.flows):
            # Records landed while the flow is paused are sent when it runs again.
            stops_at = self._work.sent(each) if each is self._flow else None
            one = ProofSummary.of(self._work.verify(each), stops_at=stops_at)
            if one.differences:
                raise not_failed_back(
                    self._flow, [f"{each.name}: {'; '.join(one.differences[:5])} (--unproven goes on)"]
                )
            found.append(one)
        proof = ProofSummary(
            verified=sum(one.verified for one in found), not_compared=sum(one.not_compared for one in found)
        )
        return self._work.write(operation, PROVE, after=document(proof))

    def _groups(self, operation: Operation, _: Operation) -> Operation:
        work, flow = self._work, self._flow
        done = [position for each in self._home.flows for position in work.groups(each, only=self._only).apply()]
        if not flow.adds_hops:
            plan = self._tail.move_past_dropped(self._plan_back(), operation)
            done += apply_groups(plan, target=work.context.groups(flow.source), where=flow.source)
        if live := GroupPlan(flow.name, tuple(done)).with_members:
            raise not_failed_back(self._flow, [f"group {group} has got members: stop them" for group in live])
        return work.write(operation, GROUPS, after=document([PlacedGroup.of(one) for one in done]))

    def _resume(self, operation: Operation, _: Operation) -> Operation:
        work, flow = self._work, self._flow
        subject = Subject(kind="flow", name=flow.name)
        settings_in_force.resume_parked(work.context.config, work.control, subject, reason=f"failback {operation.id}")
        settings_in_force.resume(work.control, subject, reason=f"failback {operation.id}")
        return work.write(operation, RESUME)

    # -- groups ---------------------------------------------------------------------------------------------------

    def _plan_back(self) -> GroupPlan:
        return plan_groups_back(self._work.context, self._flow, only=self._only)

    def _plan_groups(self) -> GroupPlan:
        found = [] if self._flow.adds_hops else [*self._plan_back()]
        for each in self._home.flows:
            found += self._work.groups(each, only=self._only).plan()
        return GroupPlan(self._flow.name, tuple(found))

    # -- the report -----------------------------------------------------------------------------------------------

    def _plan_report(
        self, over: Operation, operation: Operation | None, plan: GroupPlan, refusals: Sequence[str]
    ) -> FailbackReport:
        flow = self._flow
        tail, records = self._tail.preview(over)
        return FailbackReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state="planned",
            failover=over.id,
            refusals=tuple(refusals),
            tail=tail,
            records=records,
            choice=self._choice,
            made=self._home.derived.name if self._home.derived is not None else "",
            to_send=self._home.to_send,
            groups=tuple(PlacedGroup.of(one) for one in plan),
            steps=_steps_of(operation),
        )

    def _report(self, operation: Operation, over: Operation) -> FailbackReport:
        flow = self._flow

        def after(step: str) -> Any:
            done = operation.step(step)
            return done.after if done is not None else None

        return FailbackReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state="done",
            id=operation.id,
            failover=over.id,
            began_at=operation.began_at,
            ended_at=self._work.now(),
            steps=_steps_of(operation),
            tail=self._tail.archived(operation),
            records=archived_tail_records(self._work.lake, over.id),
            choice=after(RESOLVE)["choice"],
            back=after(BACK),
            made=self._home.derived.name if self._home.derived is not None else "",
            proof=msgspec.convert(after(PROVE), ProofSummary),
            groups=msgspec.convert(after(GROUPS), tuple[PlacedGroup, ...]),
            unfenced=tuple(after(UNFENCE)),
        )


def _steps_of(operation: Operation | None) -> tuple[ReportedStep, ...]:
    return tuple(
        ReportedStep(name=step.name, at=step.at) for step in (operation.steps if operation is not None else ())
    )


def _undo(change: Change) -> Change:
    """Reverse a change."""
    if change.kind == "acl":
        return replace(change, action="delete", before=change.after, after=None, reason="the flow is failed back")
    return replace(change, before=change.after, after=change.before, reason="the flow is failed back")
