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

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import msgspec

from mirrorlake.errors import FailoverRefused, UsageError
from mirrorlake.failover.failover import GROUPS
from mirrorlake.failover.groups_back import plan_groups_back
from mirrorlake.failover.journal import CUTOVER, DONE, Operation, failed_over
from mirrorlake.failover.operation_context import OperationContext, positions_to_json
from mirrorlake.failover.report import PlacedGroup, ProofSummary, TopicEndpoints, endpoints_table, groups_table
from mirrorlake.groups import apply_groups
from mirrorlake.model.control import Subject
from mirrorlake.model.plan import Plan
from mirrorlake.render import JsonDisplayable, Mood, Sheet, badge, document, plural, table
from mirrorlake.topics import settings_in_force

TOPICS, PROVEN, CONSUMERS, PRODUCERS, BACK = "topics", "proven", "consumers", "producers", "back"
# A source that has not grown for this long counts as quiet; the commit checks again.
QUIET_S = 5.0
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


class Cutover:
    """One cutover of one flow.

    Args:
        work: what it works with.
        plan: plans what `apply` would change for the flow.
        still_s: how long the source may not grow to be held to be still.
    """

    def __init__(self, work: OperationContext, *, plan: Callable[[], Plan], quiet_s: float = QUIET_S) -> None:
        self._work = work
        self._flow = work.flow
        self._plan = plan
        self._still_s = quiet_s

    def run(self, *, commit: bool = False) -> CutoverReport:
        """Check every line, do what is possible, and with `commit` complete the cutover.

        Raises:
            FailoverRefused: the commit is asked for and a line is open.
            UsageError: the flow comes from a lake cluster.
            ClusterError: a cluster does not answer.
        """
        work, flow = self._work, self._flow
        if work.context.config.cluster(flow.source).is_lake:
            raise UsageError(f"{flow.name} comes from a lake cluster", remedy="name a flow between Kafka clusters")
        operations = work.journal.operations()
        if failed_over(operations) is not None:
            raise self._refused("it was failed over", f"mirrorlake failback --flow '{flow.name}' first")
        last = next((one for one in reversed(operations) if one.command == CUTOVER), None)
        if last is not None and (done := last.step(DONE)) is not None and last.step(BACK) is None:
            return replace(msgspec.convert(done.after, CutoverReport), is_repeat=True)
        # A cutover that was killed after the consumers returned is over, too.
        is_open = last is not None and not last.is_done and last.step(BACK) is None
        operation = last if last is not None and is_open else work.journal.begin(CUTOVER)
        checks, mirrored = self._checks(operation)
        report = CutoverReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state="open" if any(one.state != "ok" for one in checks) else "ready",
            id=operation.id,
            began_at=operation.began_at,
            checks=tuple(checks),
            mirrored=mirrored,
            topics=tuple(TopicEndpoints.of(topic, flow, work.context.config.flows) for topic in work.topics(flow)),
        )
        return self._commit(operation, report) if commit else report

    def back(self) -> CutoverReport:
        """Return the consumers: each group resumes at the source after what it has read on the target (law A).

        Raises:
            FailoverRefused: it was committed, or a group has members on either side.
            UsageError: no cutover is under way.
        """
        work, flow = self._work, self._flow
        operation = work.journal.last(CUTOVER)
        if operation is None or operation.step(BACK) is not None:
            raise UsageError(f"no cutover of {flow.name} is under way", remedy="mirrorlake cutover begins one")
        if operation.is_done:
            raise self._refused("it was committed", f"mirrorlake failover and failback move {flow.name} from here on")
        if flow.adds_hops:
            back = next(
                (each.name for each in work.context.config.flows_to(flow.source) if each.source == flow.target), ""
            )
            raise self._refused("both clusters mirror each other", f"mirrorlake groups --flow '{back}' --apply does it")
        plan = plan_groups_back(work.context, flow)
        named = {one.group for one in plan}
        live = sorted(named & {*work.context.groups(flow.source).active(), *work.context.groups(flow.target).active()})
        if live:
            raise self._refused(
                f"these groups have members: {', '.join(live)}", "stop them, then give the command again"
            )
        done = apply_groups(plan, target=work.context.groups(flow.source), where=flow.source)
        placed = tuple(PlacedGroup.of(one) for one in done)
        paused = Subject(kind="flow", name=flow.name)
        if (held := work.control.state().pauses.get(paused)) is not None and held.reason == _describe_commit(operation):
            # The pause of a killed commit is removed; another person's pause stays.
            settings_in_force.resume(work.control, paused, reason=f"cutover {operation.id}: taken back")
        report = CutoverReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state="back",
            id=operation.id,
            began_at=operation.began_at,
            ended_at=work.now(),
            groups=placed,
        )
        operation = work.write(operation, BACK, after=document(placed))
        work.write(operation, DONE, after=document(report))
        return report

    def _refused(self, why: str, remedy: str) -> FailoverRefused:
        name = self._flow.name
        return FailoverRefused(
            f"the cutover of {name} does not go on: {why}",
            consequence="nothing was changed",
            remedy=remedy,
            flow=name,
            reasons=(why,),
        )

    # -- the checklist --------------------------------------------------------------------------------------------

    def _checks(self, operation: Operation) -> tuple[list[ChecklistLine], bool | None]:
        found = [self._topics(), self._groups(was_placed=operation.step(GROUPS) is not None)]
        found.append(self._proven() if found[0].state == "ok" else _waiting_line(PROVEN, "the topics"))
        found.append(self._consumers())
        mirrored = None
        if found[-1].state == "ok":
            check, mirrored = self._producers()
            found.append(check)
        else:
            found.append(_waiting_line(PRODUCERS, "the consumers"))
        for one in found:
            if one.state == "ok" and operation.step(one.name) is None:
                operation = self._work.write(operation, one.name, after={"said": one.said})
        return found, mirrored

    def _topics(self) -> ChecklistLine:
        flow = self._flow
        plan = Plan(tuple(change for change in self._plan().changes if change.where == flow.target))
        if plan:
            changes = "; ".join(str(change) for change in plan.changes[:3])
            said = f"{plural(len(plan), 'change')}: {changes}"
            return ChecklistLine(name=TOPICS, state="open", said=said, next=f"mirrorlake apply --flow '{flow.name}'")
        left = "" if flow.sync.acls else "; ACLs are not kept in step (sync.acls)"
        return ChecklistLine(
            name=TOPICS, state="ok", said=f"{plural(len(self._work.topics(flow)), 'topic')} as planned{left}"
        )

    def _groups(self, *, was_placed: bool) -> ChecklistLine:
        work, flow = self._work, self._flow
        plan = work.groups(flow).apply()
        live = work.context.groups(flow.target).active()
        # After all groups were placed, a group past its position has read on, and need not run all the time.
        held = [one for one in plan.held if one.group not in live and not (was_placed and one.is_past)]
        if held:
            said = "; ".join(sorted({f"{one.group}: {one.reason}" for one in held})[:3])
            return ChecklistLine(name=GROUPS, state="open", said=said, next=f"mirrorlake groups --flow '{flow.name}'")
        return ChecklistLine(name=GROUPS, state="ok", said=plural(len(plan), "position"))

    def _proven(self) -> ChecklistLine:
        found = self._work.verify(self._flow)
        waiting = [one for one in found.differences if one.problem == "not_republished"]
        if len(waiting) < len(found.differences):
            said = (
                f"{plural(len(found.differences), 'difference')}: {'; '.join(ProofSummary.of(found).differences[:3])}"
            )
            return ChecklistLine(
                name=PROVEN, state="open", said=said, next=f"mirrorlake verify --flow '{self._flow.name}'"
            )
        return ChecklistLine(name=PROVEN, state="ok", said=str(ProofSummary.of(found)))

    def _consumers(self) -> ChecklistLine:
        work, flow = self._work, self._flow
        named = {one.group for one in work.groups(flow).plan()}
        here = sorted(named & work.context.groups(flow.source).active())
        there = sorted(named & work.context.groups(flow.target).active())
        if here:
            said = f"on {flow.source}: {', '.join(here)}"
            return ChecklistLine(
                name=CONSUMERS, state="open", said=said, next=f"stop them there, start them on {flow.target}"
            )
        rest = len(named) - len(there)
        return ChecklistLine(name=CONSUMERS, state="ok", said=f"{len(there)} run on {flow.target}, {rest} run nowhere")

    def _producers(self) -> tuple[ChecklistLine, bool | None]:
        work, flow = self._work, self._flow
        ends = work.ends(flow)
        work.wait(self._still_s)
        if (now := work.ends(flow)) != ends:
            grown = sorted(source.topic for source, end in now.items() if end != ends.get(source))
            said = f"{flow.source} still grows: {', '.join(dict.fromkeys(grown))}"
            return ChecklistLine(
                name=PRODUCERS, state="open", said=said, next="stop the producers there, and give it again"
            ), None
        if undecided := work.in_transactions(flow, ends):
            said = f"a transaction is open on {flow.source}: {', '.join(map(str, undecided[:3]))}"
            return ChecklistLine(
                name=PRODUCERS, state="open", said=said, next="let its producer end it, or time out, and give it again"
            ), None
        work.land_up_to(flow, ends)
        work.ensure_all_sent(flow)
        found = work.verify(flow)
        if not found.equal:
            said = "; ".join(ProofSummary.of(found).differences[:3])
            return ChecklistLine(
                name=PRODUCERS, state="open", said=said, next=f"mirrorlake verify --flow '{flow.name}'"
            ), False
        if work.ends(flow) != ends or work.in_transactions(flow, ends):
            said = f"{flow.source} grew while it was compared"
            return ChecklistLine(
                name=PRODUCERS, state="open", said=said, next="stop the producers there, and give it again"
            ), None
        where = ", ".join(f"{row['topic']}-{row['partition']}@{row['position']}" for row in positions_to_json(ends)[:5])
        return ChecklistLine(name=PRODUCERS, state="ok", said=f"all up to {where}: {ProofSummary.of(found)}"), True

    def _commit(self, operation: Operation, report: CutoverReport) -> CutoverReport:
        work, flow = self._work, self._flow
        if left := [f"{one.name}: {one.said}" for one in report.checks if one.state != "ok"]:
            raise self._refused("; ".join(left), f"mirrorlake cutover --flow '{flow.name}' shows what is next")
        settings_in_force.pause(work.control, Subject(kind="flow", name=flow.name), reason=_describe_commit(operation))
        operation = work.journal.last(CUTOVER) or operation
        report = replace(report, state="committed", ended_at=work.now())
        work.write(operation, DONE, after=document(report))
        return report


def _describe_commit(operation: Operation) -> str:
    return f"cutover {operation.id}: committed"


def _waiting_line(name: str, what: str) -> ChecklistLine:
    return ChecklistLine(name=name, state="waits", said=f"{what} come first")
