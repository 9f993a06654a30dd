"""Fail a flow over: freeze it, drain what can be reached, prove it, place the groups, report.

    freeze   the flow is paused for every process of this lake; the ends of the source are noted where it answers
    drain    what the source still gives is landed, and all that is landed is sent
    prove    relay and target are compared, and the source where it answers
    groups   each group is placed after the last record that it has read (law A)
    fence    on request: producers are kept off the old source (law H)
    done     the report, with RPO and RTO as they were measured

Law F (repeatable): each step has a row in `audit`, and the command goes on with the first one that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from mirrorlake.errors import ClusterError, FailoverRefused, SafetyError, UsageError
from mirrorlake.failover.journal import BEGIN, DONE, FAILOVER, FREEZE, Operation, failed_over
from mirrorlake.failover.loss import (
    NO_PROGRESS,
    PartitionProgress,
    SourceSeen,
    estimate_loss,
    read_flow_progress,
    read_source_seen,
    rpo_seconds,
)
from mirrorlake.failover.operation_context import OperationContext, drain_flow, positions_from_json, positions_to_json
from mirrorlake.failover.records import MAX_READ, TailRecord, raw_record
from mirrorlake.failover.report import (
    FailoverReport,
    PlacedGroup,
    ProofSummary,
    ReportedStep,
    TopicEndpoints,
    objectives_of,
)
from mirrorlake.failover.return_flows import local_topics, target_ends
from mirrorlake.failover.source_fence import FENCE_PLAN, Fence, fence_changes, plan_source_fence
from mirrorlake.groups import GroupSync
from mirrorlake.lake import landed_positions, proven_until
from mirrorlake.model.control import Subject
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.render import document, format_duration, plural
from mirrorlake.republish import find_lost_topics
from mirrorlake.topics import settings_in_force

DRAIN, PROVE, GROUPS, FENCE = "drain", "prove", "groups", "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """The options of a failover; `groups` is None for all, `reports` reads records that never arrived if the source answers."""

    groups: tuple[str, ...] | None = None
    unproven: bool = False
    fence: Fence | None = None
    reports: bool = False


class Failover:
    """One failover of one flow; `run` resumes an earlier one that was killed."""

    def __init__(self, work: OperationContext, options: FailoverOptions) -> None:
        self._work = work
        self._flow = work.flow
        self._options = options
        # Errors of the source and of its leaderless partitions, or "".
        self._silent = ""
        self._incomplete = ""

    def run(self, *, dry_run: bool = False) -> FailoverReport:
        """Fail over, or with `dry_run` only report the plan.

        Raises:
            FailoverRefused: it is not safe, with all reasons; the flow may be frozen by then, and nothing is lost.
            UsageError: the flow comes from a lake cluster, or a group is not known.
            ClusterError: the target does not answer.
        """
        work, flow = self._work, self._flow
        if work.context.config.cluster(flow.source).is_lake:
            raise UsageError(
                f"{flow.name} comes from a lake cluster, which nobody consumes from",
                consequence="there is nothing to fail over",
                remedy="name a flow between Kafka clusters",
            )
        # `resume` ends a failover, because the flow has sent since; the next one is new.
        is_frozen = Subject(kind="flow", name=flow.name) in work.control.state().pauses
        held = failed_over(work.journal.operations())
        if held is not None and is_frozen:
            return self._repeat(held, dry_run=dry_run)
        if self._options.reports:
            raise UsageError(
                f"{flow.name} was not failed over",
                consequence="there is nothing to report, and nothing was done",
                remedy=f"mirrorlake failover --flow '{flow.name}' --dry-run",
                flow=flow.name,
            )
        # The time to find the source unreachable is an outage, too.
        asked_at = work.now()
        self._inspect_source()
        operation = work.journal.last(FAILOVER)
        if operation is not None and (operation.is_done or (operation.step(FREEZE) is not None and not is_frozen)):
            operation = None
        refusals, plan = self._refusals(operation)
        if dry_run:
            return self._report(operation, plan, state="planned", refusals=refusals)
        if refusals:
            raise self._refused(refusals)
        if operation is None:
            operation = work.journal.begin(
                FAILOVER,
                before=document(self._options),
                after={"silent": self._silent, "adds_hops": flow.adds_hops, "asked_at": asked_at.isoformat()},
            )
            work.step_hook(BEGIN, "written")
        for step, carry_out in self._steps().items():
            if operation.step(step) is None:
                operation = carry_out(operation)
        report = self._report(operation, None, state="done")
        work.write(operation, DONE, after=document(report))
        return report

    def _steps(self) -> Mapping[str, Callable[[Operation], Operation]]:
        steps = {FREEZE: self._freeze, DRAIN: self._drain, PROVE: self._prove, GROUPS: self._groups}
        return {**steps, FENCE: self._fence} if self._options.fence else steps

    def _repeat(self, held: Operation, *, dry_run: bool) -> FailoverReport:
        """Return the report of a completed failover, after adding a fence that only this call requests."""
        done = held.step(DONE)
        report = msgspec.convert(done.after if done is not None else {}, FailoverReport)
        if self._options.fence and not dry_run and held.step(FENCE) is None:
            fenced = self._fence(held).step(FENCE)
            report = replace(report, fence=tuple(fenced.after if fenced is not None else ()))
        if self._options.reports and not self._work.unreachable_reason(self._flow.source):
            report = replace(report, lost=self._read_lost_records(held))
        begun = held.step(BEGIN)
        named = begun is not None and (begun.before or {}).get("groups") is not None
        placed = self._place_others(held, report, dry_run=dry_run) if named else ()
        if placed:
            report = replace(report, groups=(*report.groups, *placed), added_groups=tuple({p.group: p for p in placed}))
            if not dry_run:
                self._work.write(held, DONE, after=document(replace(report, added_groups=())))
        return replace(report, is_repeat=True)

    def _place_others(self, held: Operation, report: FailoverReport, *, dry_run: bool) -> tuple[PlacedGroup, ...]:
        """Place the requested groups that no earlier call of this failover placed.

        Raises:
            FailoverRefused: one of them has members on the target.
        """
        self._inspect_source()
        done = {one.group for one in report.groups}
        others = sorted({one.group for one in self._group_planner().plan()} - done)
        if not others:
            return ()
        self._options = replace(self._options, groups=tuple(others))
        refusals, plan = self._refusals(None)
        if dry_run:
            return tuple(PlacedGroup.of(position) for position in plan)
        if refusals:
            raise self._refused(refusals)
        placed = tuple(PlacedGroup.of(position) for position in self._group_planner().apply())
        self._work.write(held, GROUPS, after=document((*report.groups, *placed)))
        return placed

    def _read_lost_records(self, held: Operation) -> tuple[TailRecord, ...]:
        """Read the source's first records past the flow's positions."""
        work, flow, cut = self._work, self._flow, positions_of(held)
        found: list[TailRecord] = []
        with work.context.reader(flow.source) as reader:
            for source, end in sorted(work.ends(flow).items()):
                first = cut.get(source, 0)
                if first < end and len(found) < MAX_READ:
                    records = reader.read(source.topic, source.partition, first)
                    found += [raw_record(source, record) for record in islice(records, MAX_READ - len(found))]
        if flow.adds_hops:
            # If clusters mirror each other, records that visited the target came from there.
            found = [one for one in found if flow.target not in one.been_on]
        return tuple(found)

    # -- what forbids it ------------------------------------------------------------------------------------------

    def _refusals(self, operation: Operation | None) -> tuple[list[str], GroupPlan]:
        """Return the reasons to refuse, and the present plan of the groups."""
        work, flow = self._work, self._flow
        state, found = work.control.state(), []
        if (pause := state.of_cluster(flow.target)) is not None:
            found.append(f"{flow.target} is paused by {pause.who}: {pause.resume_command}")
        found += [one.cause for one in find_lost_topics(work.context, flow)]
        plan = self._group_planner().plan()
        named = {position.group for position in plan}
        if unknown := sorted(set(self._options.groups or ()) - named):
            known = sorted(
                {position.group for position in work.groups(flow, recorded=bool(self._unreachable_reason)).plan()}
            )
            raise UsageError(
                f"{flow.name} knows no position of group {', '.join(unknown)}",
                consequence="nothing was changed",
                remedy=f"name one of: {', '.join(known)}" if known else "no group has a position on its topics",
            )
        if operation is None or operation.step(GROUPS) is None:
            live = sorted(named & work.context.groups(flow.target).active())
            found += [
                f"group {group} has members on {flow.target}: stop them, or name the other groups with --group"
                for group in live
            ]
        return found, plan

    def _refused(self, reasons: Sequence[str]) -> FailoverRefused:
        return FailoverRefused(
            f"{self._flow.name} is not failed over: {'; '.join(reasons)}",
            consequence="no group was placed",
            remedy=f"mend it, then mirrorlake failover --flow '{self._flow.name}' again; it goes on where it stopped",
            flow=self._flow.name,
            reasons=tuple(reasons),
        )

    # -- steps ----------------------------------------------------------------------------------------------------

    def _freeze(self, operation: Operation) -> Operation:
        work, flow = self._work, self._flow
        was = work.control.state().of_stream(flow.name, flow.target)
        subject = Subject(kind="flow", name=flow.name)
        pause = settings_in_force.pause(work.control, subject, reason=f"failover {operation.id}")
        ends = {} if self._silent else work.ends(flow, needs_all=False)
        if was is None:
            work.wait_for_pause(flow)
        # Read last, because records written on the target from now on are newer than the failover.
        local = local_topics(work.lake, flow, work.context.config.flows) if flow.policy.kind == "default" else []
        after = {
            "since": pause.since.isoformat(),
            "ends": positions_to_json(ends),
            "at": work.now().isoformat(),
            "target_ends": target_ends(work.context.admin(flow.target), local),
        }
        return work.write(operation, FREEZE, before={"paused": was is not None}, after=after)

    def _drain(self, operation: Operation) -> Operation:
        work, flow = self._work, self._flow
        wanted = positions_from_json((self._after(operation, FREEZE) or {}).get("ends", ()))
        landed, why = 0, self._silent
        if not why and wanted:
            try:
                landed = work.land_up_to(flow, wanted)
            except (ClusterError, SafetyError) as error:
                # Landed records go on although others cannot be landed; the report has the missing ones.
                why = error.cause
        why = why or self._incomplete
        held = landed_positions(work.lake, flow.source).reached
        sent = drain_flow(work.context, flow)
        positions = work.sent(flow)
        unsent = [
            f"{source} is landed up to {held[source]} and republished up to {held[source] - left}"
            for source, left in work.unsent(flow, positions, held)
        ]
        if unsent:
            paused = ", ".join(sorted(work.control.state().topics_of(flow.name)))
            reason = f" (paused: {paused})" if paused else ""
            raise self._refused([f"what is landed could not all be sent{reason}: {'; '.join(unsent[:5])}"])
        after = {"landed": landed, "republished": sent, "silent": why, "cut": positions_to_json(positions)}
        return work.write(operation, DRAIN, after=after)

    def _prove(self, operation: Operation) -> Operation:
        work, flow = self._work, self._flow
        if self._options.unproven:
            until = proven_until(work.lake, flow)
            return work.write(operation, PROVE, after=document(ProofSummary.skipped(until, positions_of(operation))))
        found = work.verify(flow, lost={flow.source} if self._unreachable_reason else set())
        proof = ProofSummary.of(found, stops_at=positions_of(operation))
        if proof.differences:
            raise self._refused(
                [
                    f"{plural(len(proof.differences), 'difference')}: {'; '.join(proof.differences[:5])} (--unproven goes on)"
                ]
            )
        return work.write(operation, PROVE, after=document(proof))

    def _groups(self, operation: Operation) -> Operation:
        plan = self._group_planner().apply()
        if live := sorted({one.group for one in plan.held if "members on the target" in one.reason}):
            raise self._refused([f"group {group} has got members on {self._flow.target}: stop them" for group in live])
        placed = [PlacedGroup.of(position) for position in plan]
        return self._work.write(operation, GROUPS, after=document(placed))

    def _fence(self, operation: Operation) -> Operation:
        work, flow = self._work, self._flow
        if self._silent or self._options.fence is None:
            return operation
        source = work.context.admin(flow.source)
        if operation.step(FENCE_PLAN) is None:
            plan = plan_source_fence(flow, work.topics(flow), self._options.fence, source=source)
            # Written first, so that a restart still knows the state before.
            operation = work.write(operation, FENCE_PLAN, after=document(plan.changes))
        changes = fence_changes(operation)
        for change in changes:
            source.apply(change)
        return work.write(operation, FENCE, after=[*map(str, changes)])

    # -- looks ----------------------------------------------------------------------------------------------------

    @property
    def _unreachable_reason(self) -> str:
        """The reasons why the source cannot be read in full, or ""."""
        return self._silent or self._incomplete

    def _inspect_source(self) -> None:
        work, flow = self._work, self._flow
        self._silent = work.unreachable_reason(flow.source)
        self._incomplete = "" if self._silent else work.leaderless_reason(flow)

    def _group_planner(self) -> GroupSync:
        return self._work.groups(self._flow, recorded=bool(self._unreachable_reason), only=self._options.groups)

    def _after(self, operation: Operation | None, step: str) -> Any:
        done = operation.step(step) if operation is not None else None
        return done.after if done is not None else None

    # -- the report -----------------------------------------------------------------------------------------------

    def _report(
        self, operation: Operation | None, plan: GroupPlan | None, *, state: Any, refusals: Sequence[str] = ()
    ) -> FailoverReport:
        work, flow, now = self._work, self._flow, self._work.now()
        reached = read_flow_progress(work.lake, flow, work.sent(flow))
        frozen, drained = self._after(operation, FREEZE) or {}, self._after(operation, DRAIN) or {}
        silent = drained.get("silent", self._unreachable_reason)
        seen = self._source_seen(reached, frozen, silent=bool(silent))
        asked_at = (self._after(operation, BEGIN) or {}).get("asked_at")
        began = now if asked_at is None else datetime.fromisoformat(asked_at)
        rpo_wanted, rto_wanted = objectives_of(flow)
        proof, placed = self._after(operation, PROVE), self._after(operation, GROUPS)
        groups = (
            msgspec.convert(placed, tuple[PlacedGroup, ...])
            if placed is not None
            else tuple(PlacedGroup.of(position) for position in plan or ())
        )
        age: timedelta | None = None
        rpo_s = 0.0 if state == "done" else None
        note = f"{flow.source} answers: it was landed up to its end at that time"
        if silent:
            age = None if seen.answered_at is None else max(began - seen.answered_at, timedelta(0))
            looked = "nobody had read its ends" if age is None else f"its ends were read {format_duration(age)} before"
            note, rpo_s = f"{flow.source}: {silent}; {looked}", rpo_seconds(seen, lost_at=began)
        elif state == "planned":
            note = f"{flow.source} answers: what it holds is landed and sent first"
        return FailoverReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state=state,
            id=operation.id if operation is not None else "",
            began_at=began if operation is not None else None,
            ended_at=now if state == "done" else None,
            source_answers=not silent,
            source_note=note,
            refusals=tuple(refusals),
            steps=tuple(
                ReportedStep(name=s.name, at=s.at, said=_describe_step(s.name, s.after))
                for s in (operation.steps if operation else ())
            ),
            partitions=estimate_loss(reached, seen.ends, seen_at=seen.ends_at),
            proof=msgspec.convert(proof, ProofSummary) if proof is not None else None,
            groups=groups,
            topics=tuple(TopicEndpoints.of(topic, flow, work.context.config.flows) for topic in work.topics(flow)),
            fence=tuple(self._after(operation, FENCE) or ()),
            last_look_s=None if age is None else age.total_seconds(),
            rpo_s=rpo_s,
            rto_s=(now - began).total_seconds() if state == "done" else None,
            objective_rpo_s=rpo_wanted,
            objective_rto_s=rto_wanted,
        )

    def _source_seen(
        self, reached: Mapping[SourcePartition, PartitionProgress], frozen: Mapping[str, Any], *, silent: bool
    ) -> SourceSeen:
        """Return the newest ends of the source: read by this failover, or recorded in the lake."""
        ends = positions_from_json(frozen.get("ends", ()))
        recorded = read_source_seen(self._work.lake, self._flow, reached)
        if not ends:
            return recorded
        # The freeze has no ends of leaderless partitions.
        ends = {**recorded.ends, **ends}
        at = datetime.fromisoformat(frozen["at"])
        is_whole = all(end <= reached.get(source, NO_PROGRESS).landed for source, end in ends.items())
        in_step_at = at if is_whole else recorded.in_step_at
        return SourceSeen(
            ends=ends,
            ends_at=at,
            answered_at=at,
            silent_at=recorded.silent_at if silent else None,
            in_step_at=in_step_at,
        )


def _describe_step(step: str, after: Any) -> str:
    if step == DRAIN and isinstance(after, dict):
        return f"{plural(after['landed'], 'record')} landed, {plural(after['republished'], 'record')} republished"
    if step == PROVE and isinstance(after, dict):
        return str(msgspec.convert(after, ProofSummary))
    if step == GROUPS and isinstance(after, list):
        return f"{plural(len(after), 'position')}"
    if step == FREEZE:
        return "the flow is paused"
    return ""


def positions_of(operation: Operation) -> dict[SourcePartition, int]:
    """Return the flow's position in each source partition after the drain."""
    drained = operation.step(DRAIN)
    return positions_from_json(drained.after["cut"]) if drained is not None else {}
