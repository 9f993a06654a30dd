"""Fail a flow over: freeze it, drain what can be reached, prove it, place the groups, report.

freeze   the flow is paused for every process of this lake; the ends of the source are noted where it answers
drain    what the source still gives is landed, and all that is landed is sent
prove    relay and target are compared, and the source where it answers
groups   each group is placed after the last record that it has read (law A)
done     the report, with RPO and RTO as they were measured
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, FailoverRefused, SafetyError, UsageError
from mirrorlake.failover.loss import estimate_loss, read_flow_progress, read_source_seen, rpo_seconds
from mirrorlake.failover.operation_context import (
    FAILOVER,
    FREEZE,
    OperationContext,
    drain_flow,
    failed_over,
    positions_from_json,
    positions_to_json,
)
from mirrorlake.failover.report import (
    FailoverReport,
    PlacedGroup,
    ProofSummary,
    ReportedStep,
    TopicEndpoints,
)
from mirrorlake.failover.return_flows import local_topics, target_ends
from mirrorlake.lake import landed_positions, proven_until
from mirrorlake.model.control import Pause, Subject
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.offsets import GroupSync
from mirrorlake.procedure import BEGIN, DONE, Operation, Procedure, Refusal, Step
from mirrorlake.render import document, format_duration, plural
from mirrorlake.republish import find_lost_topics
from mirrorlake.status import OpenTransaction
from mirrorlake.topics import settings_in_force

DRAIN, PROVE, GROUPS = "drain", "prove", "groups"


def fail_over(
    context: Context,
    flow: str,
    *,
    groups: Sequence[str] | None = None,
    dry_run: bool = False,
    unproven: bool = False,
) -> FailoverReport:
    """Fail a flow over (see `FlowHandle.failover`)."""
    only = tuple(groups) if groups else None
    return Failover(OperationContext.of(context, flow), only=only, unproven=unproven).run(dry_run=dry_run)


class Failover(Procedure[FailoverReport]):
    """One failover of one flow; `only` are the groups to place, None for all."""

    command = FAILOVER

    def __init__(self, work: OperationContext, *, only: Collection[str] | None = None, unproven: bool = False) -> None:
        super().__init__(work.journal)
        self._work = work
        self._flow = work.flow
        self._only = only
        self._unproven = unproven
        # Why the source cannot be asked, and why some of its partitions cannot, or "".
        self._silent = ""
        self._incomplete = ""
        self._asked_at = work.now()
        self._groups_plan = GroupPlan(work.flow.name, ())

    @property
    def _unreachable_reason(self) -> str:
        """The reasons why the source cannot be read in full, or ""."""
        return self._silent or self._incomplete

    @property
    def _is_frozen(self) -> bool:
        return Subject(kind="flow", name=self._flow.name) in self._work.control.state().pauses

    def _repeat(self) -> FailoverReport | None:
        work, flow = self._work, self._flow
        # `resume` ends a failover, because the flow has sent since; the next one is new.
        over = failed_over(work.journal.operations())
        if over is not None and self._is_frozen:
            return replace(msgspec.convert(over.after(DONE, {}), FailoverReport), is_repeat=True)
        # The time to find the source unreachable is an outage, too.
        self._asked_at = work.now()
        self._silent = work.unreachable_reason(flow.source)
        self._incomplete = "" if self._silent else work.leaderless_reason(flow)
        return None

    def _unfinished(self) -> Operation | None:
        last = self._journal.last(FAILOVER)
        is_over = last is None or last.is_done or (last.step(FREEZE) is not None and not self._is_frozen)
        return None if is_over else last

    def _request(self) -> Mapping[str, Any]:
        asked_at = self._asked_at.isoformat()
        after = {"silent": self._silent, "adds_hops": self._flow.adds_hops, "asked_at": asked_at}
        return {"before": {"groups": self._only, "unproven": self._unproven}, "after": after}

    # -- what forbids it ------------------------------------------------------------------------------------------

    def _refusals(self, operation: Operation | None) -> list[Refusal]:
        work, flow = self._work, self._flow
        found = work.paused_clusters(flow.target)
        found += [Refusal(one.cause) for one in find_lost_topics(work.context, flow)]
        self._groups_plan = plan = self._group_planner().plan()
        if unknown := sorted({*(self._only or ())} - {*plan.groups}):
            known = ", ".join(work.groups(flow, recorded=bool(self._unreachable_reason)).plan().groups)
            raise UsageError(
                f"{flow.name} knows no position of group {', '.join(unknown)}",
                consequence="nothing was changed",
                remedy=f"name one of: {known}" if known else "no group has a position on its topics",
            )
        if operation is None or operation.step(GROUPS) is None:
            found += work.active_groups(plan.groups, flow.target)
        return found

    def _refused(self, refusals: Sequence[Refusal], consequence: str = "this call placed no group") -> FailoverRefused:
        return FailoverRefused(
            f"{self._flow.name} is not failed over: {'; '.join(map(str, refusals))}",
            consequence=consequence,
            remedy=f"remove these reasons, then mirrorlake failover --flow '{self._flow.name}' again; it goes on where it stopped",
            flow=self._flow.name,
            reasons=tuple(map(str, refusals)),
        )

    def _group_planner(self) -> GroupSync:
        return self._work.groups(self._flow, recorded=bool(self._unreachable_reason), only=self._only)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _steps(self) -> Sequence[Step]:
        return (
            Step(FREEZE, self._freeze, before=lambda _: {"paused": self._stream_pause is not None}),
            Step(DRAIN, self._drain),
            Step(PROVE, self._prove),
            Step(GROUPS, self._place_groups),
        )

    @property
    def _stream_pause(self) -> Pause | None:
        return self._work.control.state().of_stream(self._flow.name, self._flow.target)

    def _freeze(self, operation: Operation) -> Any:
        work, flow = self._work, self._flow
        was = self._stream_pause
        subject = Subject(kind="flow", name=flow.name)
        pause = settings_in_force.pause(work.control, subject, reason=f"failover {operation.id}")
        ends = {} if self._silent else work.ends(flow, needs_all=False)
        if was is None:
            work.wait_for_pause(flow)
        # Read last, because records written on the target from now on are newer than the failover.
        local = local_topics(work.lake, flow, work.context.config.flows) if flow.policy.kind == "default" else []
        return {
            "since": pause.since.isoformat(),
            "ends": positions_to_json(ends),
            "blocked": document(work.open_transactions(flow, ends)),
            "at": work.now().isoformat(),
            "target_ends": target_ends(work.context.admin(flow.target), local),
        }

    def _drain(self, operation: Operation) -> Any:
        work, flow = self._work, self._flow
        wanted = positions_from_json(operation.after(FREEZE, {}).get("ends", ()))
        landed, why = 0, self._silent
        if not why and wanted:
            try:
                landed = work.land_up_to(flow, wanted)
            except (ClusterError, SafetyError) as error:
                # Landed records go on although others cannot be landed; the report has the missing ones.
                why = error.cause
        why = why or self._incomplete
        reached = landed_positions(work.lake, flow.source).reached
        sent = drain_flow(work.context, flow)
        positions = work.sent(flow)
        unsent = [
            f"{source} is landed up to {reached[source]} and republished up to {reached[source] - left}"
            for source, left in work.unsent(flow, positions, reached)
        ]
        if unsent:
            paused = ", ".join(sorted(work.control.state().topics_of(flow.name)))
            reason = f" (paused: {paused})" if paused else ""
            raise self._refused([Refusal(f"what is landed could not all be sent{reason}: {'; '.join(unsent[:5])}")])
        return {"landed": landed, "republished": sent, "silent": why, "cut": positions_to_json(positions)}

    def _prove(self, operation: Operation) -> Any:
        work, flow = self._work, self._flow
        if self._unproven:
            return document(ProofSummary.skipped(proven_until(work.lake, flow), positions_of(operation)))
        found = work.verify(flow, lost={flow.source} if self._unreachable_reason else set())
        proof = ProofSummary.of(found, stops_at=positions_of(operation))
        if proof.differences:
            count = plural(len(proof.differences), "difference")
            raise self._refused([Refusal(f"{count}: {'; '.join(proof.differences[:5])} (--unproven goes on)")])
        return document(proof)

    def _place_groups(self, _: Operation) -> Any:
        plan = self._group_planner().apply()
        if live := plan.with_members:
            placed = [group for group in plan.groups if group not in live]
            raise self._refused(
                [Refusal(f"group {group} has got members on {self._flow.target}: stop them") for group in live],
                f"placed by now: {', '.join(placed)}" if placed else "no group was placed",
            )
        return document(PlacedGroup.list(plan))

    # -- the report -----------------------------------------------------------------------------------------------

    def _plan(self, operation: Operation | None, refusals: Sequence[Refusal]) -> FailoverReport:
        report = self._make_report(operation or Operation(id="", command=FAILOVER, flow=self._flow.name))
        if report.source_answers:
            note = f"{self._flow.source} answers: what may be read there is landed and sent first"
            blocked = self._work.open_transactions(self._flow, self._work.ends(self._flow, needs_all=False))
            report = replace(report, source_note=note, blocked=blocked, rpo_s=None)
        return replace(report, refusals=tuple(map(str, refusals)))

    def _report(self, operation: Operation) -> FailoverReport:
        report, now = self._make_report(operation), self._work.now()
        rto_s = (now - (report.began_at or now)).total_seconds()
        return replace(report, state="done", ended_at=now, rto_s=rto_s)

    def _make_report(self, operation: Operation) -> FailoverReport:
        work, flow = self._work, self._flow
        reached = read_flow_progress(work.lake, flow, work.sent(flow))
        silent = operation.after(DRAIN, {}).get("silent", self._unreachable_reason)
        seen = read_source_seen(work.lake, flow, reached)
        if frozen := operation.after(FREEZE):
            ends, at = positions_from_json(frozen["ends"]), datetime.fromisoformat(frozen["at"])
            seen = seen.updated(ends, at, reached, silent=bool(silent))
        asked_at = (operation.after(BEGIN) or {}).get("asked_at")
        began = work.now() if asked_at is None else datetime.fromisoformat(asked_at)
        objectives = flow.objectives.rpo, flow.objectives.rto
        rpo_wanted, rto_wanted = (None if one is None else one.total_seconds() for one in objectives)
        proof, placed = operation.after(PROVE), operation.after(GROUPS)
        age: timedelta | None = None
        rpo_s: float | None = 0.0
        note = f"{flow.source} answers: it was landed up to its end at that time"
        if silent:
            age = None if seen.answered_at is None else max(began - seen.answered_at, timedelta(0))
            looked = "nobody had read its ends" if age is None else f"its ends were read {format_duration(age)} before"
            note, rpo_s = f"{flow.source}: {silent}; {looked}", rpo_seconds(seen, lost_at=began)
        # Where a transaction has ended meanwhile, its records may have been landed, too.
        sent = {(source.topic, source.partition): one.republished for source, one in reached.items()}
        noted = msgspec.convert((frozen or {}).get("blocked", ()), tuple[OpenTransaction, ...])
        blocked = tuple(one for one in noted if sent.get((one.topic, one.partition), 0) < one.offset + one.offsets)
        rpo_s = None if rpo_s is None else max([rpo_s, *(began.timestamp() - one.since_ms / 1000 for one in blocked)])
        return FailoverReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state="planned",
            id=operation.id,
            began_at=began if operation.id else None,
            source_answers=not silent,
            source_note=note,
            steps=tuple(
                ReportedStep(name=s.name, at=s.at, said=_describe_step(s.name, s.after)) for s in operation.steps
            ),
            blocked=blocked,
            partitions=estimate_loss(reached, seen.ends, seen_at=seen.ends_at),
            proof=msgspec.convert(proof, ProofSummary | None),
            groups=msgspec.convert(placed, tuple[PlacedGroup, ...])
            if placed is not None
            else PlacedGroup.list(self._groups_plan),
            topics=tuple(TopicEndpoints.of(topic, flow, work.context.config.flows) for topic in work.topics(flow)),
            deny_writes=self._deny_writes(),
            last_look_s=None if age is None else age.total_seconds(),
            rpo_s=rpo_s,
            objective_rpo_s=rpo_wanted,
            objective_rto_s=rto_wanted,
        )

    def _deny_writes(self) -> str:
        """Return the command that bars producers from the source, or "" where it has no topic of the flow."""
        topics = " ".join(f"--topic {topic}" for topic in self._work.topics(self._flow))
        servers = self._work.context.config.cluster(self._flow.source).servers()
        deny = f"kafka-acls.sh --bootstrap-server {servers} --add --deny-principal 'User:*' --operation Write"
        return f"{deny} {topics}" if topics else ""


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
    return positions_from_json(operation.after(DRAIN, {}).get("cut"))
