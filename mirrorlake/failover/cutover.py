"""Move a flow's consumers and producers to the target for good, by a checklist that can be left and resumed.

    topics      topics, partitions, settings and ACLs of the target are as the plan wants them
    groups      each group has its place on the target
    proven      source, relay and target hold the same records
    consumers   no group of the flow has members on the source any more
    producers   the source does not grow any more, no transaction is open on it, and all that was produced to it is mirrored:
                verified at its frozen end
    commit      only with `commit`: the flow is paused; from here on there is no way back but a failover's

Until the commit nothing is changed but positions of groups without members, and `back` brings the consumers home exactly. A
step that was fine and is not any more is open again: every call looks at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import msgspec

from mirrorlake.context import Context
from mirrorlake.errors import FailoverRefused, UsageError
from mirrorlake.failover.failover import GROUPS
from mirrorlake.failover.groups_back import plan_groups_back
from mirrorlake.failover.operation_context import CUTOVER, OperationContext, failed_over, positions_to_json
from mirrorlake.failover.report import PlacedGroup, ProofSummary, TopicEndpoints, endpoints_table, groups_table
from mirrorlake.model.control import Subject
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.plan import Plan
from mirrorlake.offsets import apply_groups
from mirrorlake.procedure import DONE, Operation, Refusal
from mirrorlake.render import JsonDisplayable, Mood, Sheet, badge, document, plural, table
from mirrorlake.topics import settings_in_force

TOPICS, PROVEN, CONSUMERS, PRODUCERS, BACK = "topics", "proven", "consumers", "producers", "back"
# A source that has not grown for this long counts as quiet; the commit checks again.
_QUIET_S = 5.0
_MOODS: dict[str, Mood] = {"ok": "good", "open": "warn", "waits": "off"}
_WORDS: dict[str, tuple[str, Mood]] = {
    "open": ("open", "warn"),
    "ready": ("ready to commit", "good"),
    "committed": ("committed", "good"),
    "back": ("taken back", "off"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistLine:
    """A line of the checklist: `ok`, `open` with the next action, or `waits` for an earlier line."""

    name: str
    state: Literal["ok", "open", "waits"]
    said: str
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CutoverReport(JsonDisplayable):
    """The state of a cutover: `open`, `ready` (every line is ok), `committed`, or `back` (consumers returned).

    `mirrored` answers whether all that was produced to the source is on the target; None until its end is frozen and compared.
    """

    flow: str
    source: str
    target: str
    state: Literal["open", "ready", "committed", "back"]
    id: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    checks: tuple[ChecklistLine, ...] = ()
    mirrored: bool | None = None
    topics: tuple[TopicEndpoints, ...] = ()
    groups: tuple[PlacedGroup, ...] = ()
    is_repeat: bool = False

    def sheet(self) -> Sheet:
        """Show the checklist, what is open first said by its next step."""
        rows = [(c.name, badge(c.state, _MOODS[c.state]), c.said, c.next or None) for c in self.checks]
        answer = {None: "not known yet", True: "yes, verified", False: "no"}[self.mirrored]
        parts = [
            *([table("", ["step", "state", "found", "next"], rows)] if rows else []),
            *([endpoints_table(self.topics, self.target)] if self.topics else []),
            *([groups_table(self.groups)] if self.groups else []),
        ]
        return Sheet(
            title=f"cutover {self.flow}",
            badge=badge(*_WORDS[self.state]),
            facts=(f"all events produced to {self.source} are mirrored: {answer}",),
            parts=tuple(parts),
        )


def cut_over(
    context: Context,
    flow: str,
    *,
    plan: Callable[[], Plan],
    commit: bool = False,
    back: bool = False,
) -> CutoverReport:
    """Run or resume the cutover of a flow (see `FlowHandle.cutover`); `plan` plans changes to its topics."""
    if commit and back:
        raise UsageError("commit and back exclude each other", remedy="name one of them")
    cutover = Cutover(OperationContext.of(context, flow), plan=plan, commit=commit)
    return cutover.back() if back else cutover.run()


class Cutover:
    """One cutover of one flow.

    `plan` plans what `apply` would change for the flow.
    """

    def __init__(self, work: OperationContext, *, plan: Callable[[], Plan], commit: bool = False) -> None:
        self._work = work
        self._journal = work.journal
        self._flow = work.flow
        self._topics_plan = plan
        self._is_commit = commit
        self._checks: dict[str, ChecklistLine] = {}
        self._mirrored: bool | None = None

    def run(self) -> CutoverReport:
        """Look at every line, because one that was ok may be open again."""
        if failed_over(self._journal.operations()) is not None:
            raise self._refused(
                [Refusal("it was failed over", f"mirrorlake failback --flow '{self._flow.name}' first")]
            )
        last = self._journal.last(CUTOVER)
        # A cutover that was killed after the consumers returned is over, too.
        if last is not None and last.step(BACK) is not None:
            last = None
        if last is not None and last.is_done:
            return replace(msgspec.convert(last.after(DONE), CutoverReport), is_repeat=True)
        operation = self._journal.begin(CUTOVER) if last is None else last
        for name, check in self._steps():
            self._checks[name] = line = check(operation)
            if line.state == "ok" and operation.step(name) is None:
                operation = self._journal.write(operation, name, after={"said": line.said})
        report = self._report(operation)
        if report.state == "committed":
            self._journal.write(operation, DONE, after=document(report))
        return report

    def _refused(self, refusals: Sequence[Refusal]) -> FailoverRefused:
        why = "; ".join(map(str, refusals))
        return FailoverRefused(
            f"the cutover of {self._flow.name} does not go on: {why}",
            consequence="nothing was changed",
            remedy=refusals[0].remedy,
            flow=self._flow.name,
            reasons=(why,),
        )

    def back(self) -> CutoverReport:
        """Return the consumers: each group resumes at the source after what it has read on the target (law A)."""
        work, flow = self._work, self._flow
        operation = self._journal.last(CUTOVER)
        if operation is None or operation.step(BACK) is not None:
            raise UsageError(f"no cutover of {flow.name} is under way", remedy="mirrorlake cutover begins one")
        plan = GroupPlan(flow.name, ()) if flow.adds_hops else plan_groups_back(work.context, flow)
        if refusal := self._refusal_to_return(operation, plan):
            raise self._refused([refusal])
        done = apply_groups(plan, target=work.context.groups(flow.source), where=flow.source)
        placed = PlacedGroup.list(done)
        paused = Subject(kind="flow", name=flow.name)
        if (pause := work.control.state().pauses.get(paused)) is not None and pause.reason == _describe_commit(
            operation
        ):
            # The pause of a killed commit is removed; another person's pause stays.
            settings_in_force.resume(work.control, paused, reason=f"cutover {operation.id}: taken back")
        report = CutoverReport(**work.identity(operation), state="back", ended_at=work.now(), groups=placed)
        operation = self._journal.write(operation, BACK, after=document(placed))
        self._journal.write(operation, DONE, after=document(report))
        return report

    def _refusal_to_return(self, operation: Operation, plan: GroupPlan) -> Refusal | None:
        work, flow = self._work, self._flow
        if operation.is_done:
            return Refusal("it was committed", f"mirrorlake failover and failback move {flow.name} from here on")
        if flow.adds_hops:
            flows = work.context.config.flows_to(flow.source)
            name = next((each.name for each in flows if each.source == flow.target), "")
            return Refusal("both clusters mirror each other", f"mirrorlake groups --flow '{name}' --apply does it")
        active = work.context.groups(flow.source).active() | work.context.groups(flow.target).active()
        if live := sorted({*plan.groups} & active):
            return Refusal(f"these groups have members: {', '.join(live)}", "stop them, then give the command again")
        return None

    # -- the checklist --------------------------------------------------------------------------------------------

    def _steps(self) -> Sequence[tuple[str, Callable[[Operation], ChecklistLine]]]:
        return (
            (TOPICS, self._check_topics),
            (GROUPS, self._check_groups),
            (PROVEN, self._check_proof),
            (CONSUMERS, self._check_consumers),
            (PRODUCERS, self._check_producers),
        )

    def _report(self, operation: Operation) -> CutoverReport:
        work, flow, checks = self._work, self._flow, tuple(self._checks.values())
        left = [f"{one.name}: {one.said}" for one in checks if one.state != "ok"]
        report = CutoverReport(
            **work.identity(operation),
            state="open" if left else "ready",
            checks=checks,
            mirrored=self._mirrored,
            topics=tuple(TopicEndpoints.of(topic, flow, work.context.config.flows) for topic in work.topics(flow)),
        )
        if not self._is_commit:
            return report
        if left:
            remedy = f"mirrorlake cutover --flow '{flow.name}' shows what is next"
            raise self._refused([Refusal("; ".join(left), remedy)])
        subject = Subject(kind="flow", name=flow.name)
        settings_in_force.pause(work.control, subject, reason=_describe_commit(operation))
        return replace(report, state="committed", ended_at=work.now())

    def _check_topics(self, _: Operation) -> ChecklistLine:
        flow = self._flow
        plan = Plan(tuple(change for change in self._topics_plan().changes if change.where == flow.target))
        if plan:
            said = f"{plural(len(plan), 'change')}: {'; '.join(map(str, plan.changes[:3]))}"
            return _open(TOPICS, said, f"mirrorlake apply --flow '{flow.name}'")
        left = "" if flow.sync.acls else "; ACLs are not kept in step (sync.acls)"
        return _ok(TOPICS, f"{plural(len(self._work.topics(flow)), 'topic')} as planned{left}")

    def _check_groups(self, operation: Operation) -> ChecklistLine:
        work, flow = self._work, self._flow
        plan = work.groups(flow).apply()
        live = work.context.groups(flow.target).active()
        # After all groups were placed, a group past its position has read on, and need not run all the time.
        was_placed = operation.step(GROUPS) is not None
        held = [one for one in plan.held if one.group not in live and not (was_placed and one.is_past)]
        if reasons := {*((one.group, one.reason) for one in held), *plan.unread.items()}:
            said = "; ".join(sorted(map(": ".join, reasons))[:3])
            return _open(GROUPS, said, f"mirrorlake groups --flow '{flow.name}'")
        return _ok(GROUPS, plural(len(plan), "position"))

    def _check_proof(self, _: Operation) -> ChecklistLine:
        if self._checks[TOPICS].state != "ok":
            return _waiting(PROVEN, "the topics")
        found = self._work.verify(self._flow)
        proof = ProofSummary.of(found)
        if any(one.problem != "not_republished" for one in found.differences):
            said = f"{plural(len(found.differences), 'difference')}: {'; '.join(proof.differences[:3])}"
            return _open(PROVEN, said, f"mirrorlake verify --flow '{self._flow.name}'")
        return _ok(PROVEN, str(proof))

    def _check_consumers(self, _: Operation) -> ChecklistLine:
        work, flow = self._work, self._flow
        named = {*work.groups(flow).plan().groups}
        here, there = (sorted(named & work.context.groups(alias).active()) for alias in (flow.source, flow.target))
        if here:
            return _open(
                CONSUMERS, f"on {flow.source}: {', '.join(here)}", f"stop them there, start them on {flow.target}"
            )
        return _ok(CONSUMERS, f"{len(there)} run on {flow.target}, {len(named) - len(there)} run nowhere")

    def _check_producers(self, _: Operation) -> ChecklistLine:
        if self._checks[CONSUMERS].state != "ok":
            return _waiting(PRODUCERS, "the consumers")
        work, flow = self._work, self._flow
        stop = "stop the producers there, and give it again"
        ends = work.ends(flow)
        work.wait(_QUIET_S)
        if (now := work.ends(flow)) != ends:
            grown = sorted(source.topic for source, end in now.items() if end != ends.get(source))
            return _open(PRODUCERS, f"{flow.source} still grows: {', '.join(dict.fromkeys(grown))}", stop)
        if blocked := work.open_transactions(flow, ends):
            said = (f"{one.topic}-{one.partition}: {one.describe(work.now())}" for one in blocked[:3])
            return _open(PRODUCERS, "; ".join(said), blocked[0].fix)
        work.land_up_to(flow, ends)
        work.ensure_all_sent(flow)
        found = work.verify(flow)
        proof = ProofSummary.of(found)
        if not found.equal:
            self._mirrored = False
            return _open(PRODUCERS, "; ".join(proof.differences[:3]), f"mirrorlake verify --flow '{flow.name}'")
        if work.ends(flow) != ends or work.open_transactions(flow, ends):
            return _open(PRODUCERS, f"{flow.source} grew while it was compared", stop)
        self._mirrored = True
        where = ", ".join(f"{row['topic']}-{row['partition']}@{row['position']}" for row in positions_to_json(ends)[:5])
        return _ok(PRODUCERS, f"all up to {where}: {proof}")


def _describe_commit(operation: Operation) -> str:
    return f"cutover {operation.id}: committed"


def _ok(name: str, said: str) -> ChecklistLine:
    return ChecklistLine(name=name, state="ok", said=said)


def _open(name: str, said: str, then: str) -> ChecklistLine:
    return ChecklistLine(name=name, state="open", said=said, next=then)


def _waiting(name: str, what: str) -> ChecklistLine:
    return ChecklistLine(name=name, state="waits", said=f"{what} come first")
