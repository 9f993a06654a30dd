"""Fail a flow back: what came since goes home, groups return, what never arrived is settled, and the flow runs again.

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
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Literal

import msgspec

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import FailoverRefused, UsageError
from mirrorlake.failover.desk import Desk, as_rows
from mirrorlake.failover.failover import GROUPS, PROVE, fence_of, positions_of
from mirrorlake.failover.groups_back import plan_groups_back
from mirrorlake.failover.journal import DONE, FAILBACK, Operation, failed_over
from mirrorlake.failover.records import TailRecord, records_table
from mirrorlake.failover.report import GroupPlaced, ProofTaken, StepTaken, groups_table, steps_table
from mirrorlake.failover.tail import (
    TailPart,
    WithoutTail,
    count_by_topic,
    keep_tail,
    kept_tail,
    shown_tail,
)
from mirrorlake.groups import apply_groups
from mirrorlake.lake import landed_positions, micros
from mirrorlake.model.control import Subject
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.plan import Change
from mirrorlake.offsets import known_maps
from mirrorlake.render import Badge, JsonShown, Sheet, Table, badge, document, plural, table
from mirrorlake.topics import settings_in_force

UNFENCE, LAND, TAIL, CHOICE, SETTLE, BACK = "unfence", "land", "tail", "choice", "settle", "back"
RESUME = "resume"

TailChoice = Literal["restore", "drop", "keep"]
TAIL_CHOICES: tuple[TailChoice, ...] = ("restore", "drop", "keep")
_MEANS: Mapping[TailChoice, str] = {
    "restore": "it is sent to the target, after what stands there",
    "drop": "it stays in the table divergent and on the source; groups that stand before it go on after it",
    "keep": "it stays in the table divergent and on the source, where groups read it; the target never gets it",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FailbackReport(JsonShown):
    """What a failback did (`done`) or would do (`planned`).

    `tail` are the records of the source that never arrived on the target, by partition; `records` the first of them. `back` is
    how many records were sent to the source, by flow.
    """

    flow: str
    source: str
    target: str
    state: Literal["planned", "done"]
    id: str = ""
    failover: str = ""
    is_repeat: bool = False
    began_at: datetime | None = None
    ended_at: datetime | None = None
    refusals: tuple[str, ...] = ()
    steps: tuple[StepTaken, ...] = ()
    tail: tuple[TailPart, ...] = ()
    records: tuple[TailRecord, ...] = ()
    choice: TailChoice | None = None
    back: Mapping[str, int] = field(default_factory=dict)
    proof: ProofTaken | None = None
    groups: tuple[GroupPlaced, ...] = ()
    unfenced: tuple[str, ...] = ()
    json_also: ClassVar[tuple[str, ...]] = ("tail_records", "held")

    @property
    def tail_records(self) -> int:
        """How many records of the source never arrived on the target."""
        return sum(part.records for part in self.tail)

    @property
    def held(self) -> int:
        """Positions of groups that were left as they are, each with its reason."""
        return sum(one.action == "hold" for one in self.groups)

    def sheet(self) -> Sheet:
        """Show the divergent tail first, then what went back, the groups, and the steps."""
        parts: list[str | Table] = [f"refused: {reason}" for reason in self.refusals]
        if self.is_repeat:
            parts.append(f"{self.flow} was failed back before; nothing was done again")
        if self.tail:
            chosen = f"{self.choice}: {_MEANS[self.choice]}" if self.choice else "not settled yet (--tail)"
            parts += [
                f"divergent tail, {chosen}",
                _tail_table(self.tail),
                records_table(f"the first {len(self.records)} of them", self.records),
            ]
        parts += [f"{name}: {plural(count, 'record')} went back" for name, count in self.back.items()]
        parts += [str(self.proof)] if self.proof is not None else []
        parts += [groups_table(self.groups)] if self.groups else []
        parts += [f"fence taken down: {line}" for line in self.unfenced]
        return Sheet(
            title=f"failback {self.flow}",
            badge=self._badge(),
            facts=(f"{plural(self.tail_records, 'record')} never arrived", f"{plural(len(self.groups), 'position')}"),
            parts=(*parts, steps_table(self.steps)),
        )

    def _badge(self) -> Badge:
        if self.refusals:
            return badge("refused")
        if self.state == "planned":
            return badge("nothing was changed", "note")
        return badge("failed back", "warn" if self.held else "good")


def _tail_table(parts: Sequence[TailPart]) -> Table:
    rows = [(p.topic, str(p.generation), str(p.partition), str(p.first), str(p.end), p.records) for p in parts]
    return table("never arrived", ["topic", "generation", "partition", "first offset", "next offset", "records"], rows)


class Failback:
    """One failback of one flow; `run` goes on where an earlier one was killed.

    Args:
        desk: what it works with.
        tail: what becomes of records that never arrived; without a choice, a failback that finds some stops there.
        groups: only these consumer groups.
        unproven: place groups without any verification.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        tail: TailChoice | None,
        groups: Collection[str] | None,
        unproven: bool,
    ) -> None:
        self._desk = desk
        self._flow = desk.flow
        self._choice = tail
        self._only = groups
        self._unproven = unproven

    def run(self, *, dry_run: bool = False) -> FailbackReport:
        """Fail back, or with `dry_run` only say what would be done.

        Raises:
            FailoverRefused: it is not safe, or the tail waits for a choice; all reasons.
            UsageError: the flow was not failed over.
            ClusterError: the source or the target does not answer.
        """
        desk, flow = self._desk, self._flow
        operations = desk.journal.operations()
        over = failed_over(operations)
        if over is None:
            return self._again(operations)
        operation = next((one for one in reversed(operations) if one.command == FAILBACK and not one.is_done), None)
        desk.clusters.admin(flow.source).broker_count()
        refusals, plan = self._refusals(over, operation)
        if dry_run:
            return self._planned(over, operation, plan, refusals)
        if refusals:
            raise self._refused(refusals)
        if operation is None:
            operation = desk.journal.begin(FAILBACK, before={"failover": over.id, "tail": self._choice})
            desk.seam("begin", "written")
        for step, carry_out in self._steps().items():
            if operation.step(step) is None:
                operation = carry_out(operation, over)
        report = self._report(operation, over)
        desk.write(operation, DONE, after=document(replace(report, records=())))
        return report

    def _steps(self) -> Mapping[str, Callable[[Operation, Operation], Operation]]:
        return {
            UNFENCE: self._unfence,
            LAND: self._land,
            TAIL: self._keep_tail,
            SETTLE: self._settle,
            BACK: self._bring_back,
            PROVE: self._prove,
            GROUPS: self._groups,
            RESUME: self._resume,
        }

    def _again(self, operations: Sequence[Operation]) -> FailbackReport:
        done = next((one.step(DONE) for one in reversed(operations) if one.command == FAILBACK and one.is_done), None)
        if done is None:
            raise UsageError(
                f"{self._flow.name} was not failed over",
                consequence="there is nothing to fail back",
                remedy=f"mirrorlake failover --flow '{self._flow.name}'",
                flow=self._flow.name,
            )
        report = msgspec.convert(done.after, FailbackReport)
        return replace(report, records=kept_tail(self._desk.lake, report.failover), is_repeat=True)

    # -- what forbids it ------------------------------------------------------------------------------------------

    def _refusals(self, over: Operation, operation: Operation | None) -> tuple[list[str], GroupPlan]:
        desk, flow = self._desk, self._flow
        found = []
        for alias in (flow.source, flow.target):
            if (pause := desk.control.state().of_cluster(alias)) is not None:
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
                    for group in sorted(named & desk.clusters.groups(alias).active())
                ]
        if operation is None or operation.step(BACK) is None:
            found += self._no_way_back(over)
        return found, plan

    def _no_way_back(self, over: Operation) -> list[str]:
        """Say why what was written on the target since could not go home, or would not go alone."""
        flow = self._flow
        if not self._reverse():
            written = ", ".join(self._written_since())
            lines = f"add these lines to `flows`, and run `mirrorlake apply`: {self._lines(over)}"
            return (
                [f"{written} on {flow.target} was written to since, and no flow leads to {flow.source}; {lines}"]
                if written
                else []
            )
        if not flow.adds_hops or (over.steps[0].after or {}).get("adds_hops"):
            return []
        # What the flow brought before the settings had a way back tells nobody where it has been.
        target, mapped = self._desk.clusters.admin(flow.target), self._mapped_ends()
        late = []
        for each in self._reverse():
            begins = each.start.timestamp_ms
            starts = target.earliest(mapped) if begins is None else target.at_time(mapped, begins)
            late += [
                f"{each.name} begins at {tp}@{starts[tp]}" for tp, end in sorted(mapped.items()) if starts[tp] < end
            ]
        why = f"records of {flow.name} would be sent back to {flow.source}, where they are"
        return [f"{why}: {'; '.join(late[:5])}; give it the start {self._lines(over)}"] if late else []

    def _refused(self, reasons: Sequence[str]) -> FailoverRefused:
        return FailoverRefused(
            f"{self._flow.name} is not failed back: {'; '.join(reasons)}",
            consequence="no group was placed, and the flow stays paused",
            remedy=f"settle it, then mirrorlake failback --flow '{self._flow.name}' again; it goes on where it stopped",
            flow=self._flow.name,
            reasons=tuple(reasons),
        )

    def _reverse(self) -> tuple[FlowConfig, ...]:
        """List the flows of the settings that lead from the target to the source."""
        flow = self._flow
        return tuple(each for each in self._desk.clusters.config.flows_to(flow.source) if each.source == flow.target)

    def _written_since(self) -> list[str]:
        """List the topics on the target that applications wrote to since the failover."""
        flow, target = self._flow, self._desk.clusters.admin(self._flow.target)
        remotes = {flow.remote_topic(topic): topic for topic in self._desk.topics(flow)}
        mapped = self._mapped_ends()
        found = []
        with self._desk.reader(flow.target) as reader:
            for name in sorted({*remotes, *(remotes.values() if flow.policy.kind == "default" else ())}):
                for state in target.describe([name]).values():
                    starts = {p: mapped.get(TopicPartition(name, p), 0) for p in range(state.partitions)}
                    if any(next(iter(reader.read(name, p, start)), None) for p, start in starts.items()):
                        found.append(name)
        return found

    def _mapped_ends(self) -> dict[TopicPartition, int]:
        """Read up to where the flow itself has written each target partition."""
        maps = known_maps(self._desk.lake, [self._flow], self._desk.clusters)
        return {
            TopicPartition(row.topic, row.partition): int(row.end) for row in maps.ask(_MAPPED, flow=self._flow.name)
        }

    def _lines(self, over: Operation) -> str:
        flow = self._flow
        entry = f"{{source: {flow.target}, target: {flow.source}, topics: {list(flow.topics.expressions)}"
        if flow.policy.kind == "identity":
            # What the flow brought before carries no header that says where it has been.
            entry += f", policy: identity, start: {{timestamp: {over.began_at.isoformat(timespec='seconds')}}}"
        return f"- {entry}}}"

    # -- steps ----------------------------------------------------------------------------------------------------

    def _unfence(self, operation: Operation, over: Operation) -> Operation:
        admin = self._desk.clusters.admin(self._flow.source)
        undone = [_undo(change) for change in fence_of(over)]
        for change in undone:
            admin.apply(change)
        return self._desk.write(operation, UNFENCE, after=[*map(str, undone)])

    def _land(self, operation: Operation, _: Operation) -> Operation:
        ends = self._desk.ends(self._flow)
        landed = self._desk.land_to(self._flow, ends)
        return self._desk.write(operation, LAND, after={"ends": as_rows(ends), "landed": landed})

    def _keep_tail(self, operation: Operation, over: Operation) -> Operation:
        desk, flow = self._desk, self._flow
        parts = keep_tail(
            desk.lake,
            flow.source,
            self._carried(),
            self._arrived(over),
            flow=flow.name,
            failover=over.id,
            been_on=self._been_on,
            now=desk.now(),
        )
        # No content of a record: an erasure would not find it in `audit`.
        return desk.write(operation, TAIL, after={"parts": document(parts)})

    def _settle(self, operation: Operation, _: Operation) -> Operation:
        desk, flow, parts = self._desk, self._flow, self._tail(operation)
        chosen = operation.step(CHOICE)
        if parts and chosen is None:
            if self._choice is None:
                raise self._refused([_ask_for(parts, flow.target)])
            # Written first: after a death between the two, another choice would say what is not so.
            operation = desk.write(operation, CHOICE, after=self._choice)
            chosen = operation.step(CHOICE)
        choice = chosen.after if parts and chosen is not None else None
        sent = 0
        if choice == "restore":
            sent = desk.hands.drain(flow)
        elif choice is not None:
            bounds = {part.source: (part.first, part.end) for part in parts}
            reason = f"failback {operation.id}: {choice}"
            desk.hands.drain(flow, through=partial(WithoutTail, bounds=bounds, reason=reason))
        return desk.write(operation, SETTLE, after={"choice": choice, "sent": sent})

    def _bring_back(self, operation: Operation, over: Operation) -> Operation:
        desk, came = self._desk, {}
        for each in self._reverse():
            desk.land_to(each, desk.ends(each))
            held = landed_positions(desk.lake, each.source).reached
            desk.send_to_end(each)
            if behind := desk.behind(each, desk.sent(each), held):
                raise self._refused([f"{each.name} could not send all of {source}" for source, _ in behind[:5]])
            maps = known_maps(desk.lake, [each], desk.clusters)
            [row] = maps.ask(_SINCE, flow=each.name, since=micros(over.began_at))
            came[each.name] = int(row.records or 0)
        return desk.write(operation, BACK, after=came)

    def _prove(self, operation: Operation, _: Operation) -> Operation:
        if self._unproven:
            return self._desk.write(operation, PROVE, after=document(ProofTaken(is_skipped=True)))
        found = []
        for each in (self._flow, *self._reverse()):
            # What is landed of a paused flow meanwhile is sent when it runs again.
            stops_at = self._desk.sent(each) if each is self._flow else None
            one = ProofTaken.of(self._desk.hands.verify(each, lost=()), stops_at=stops_at)
            if one.differences:
                raise self._refused([f"{each.name}: {'; '.join(one.differences[:5])} (--unproven goes on)"])
            found.append(one)
        proof = ProofTaken(
            verified=sum(one.verified for one in found), not_compared=sum(one.not_compared for one in found)
        )
        return self._desk.write(operation, PROVE, after=document(proof))

    def _groups(self, operation: Operation, _: Operation) -> Operation:
        desk, flow = self._desk, self._flow
        placed: list[GroupPlaced] = []
        for each in self._reverse():
            done = desk.hands.groups(each, recorded=False, only=self._only).apply()
            placed += [GroupPlaced.of(one) for one in done]
        if not flow.adds_hops:
            done = apply_groups(self._skipping(self._plan_back(), operation), target=desk.clusters.groups(flow.source))
            placed += [_home(GroupPlaced.of(one), flow) for one in done]
        if live := sorted({one.group for one in placed if "has got members" in one.reason}):
            raise self._refused([f"group {group} has got members: stop them" for group in live])
        return desk.write(operation, GROUPS, after=document(placed))

    def _resume(self, operation: Operation, _: Operation) -> Operation:
        desk, flow = self._desk, self._flow
        subject = Subject(kind="flow", name=flow.name)
        settings_in_force.resume_parked(desk.clusters.config, desk.control, subject, reason=f"failback {operation.id}")
        settings_in_force.resume(desk.control, subject, reason=f"failback {operation.id}")
        return desk.write(operation, RESUME)

    @property
    def _been_on(self) -> str | None:
        return self._flow.target if self._flow.adds_hops else None

    # -- looks ----------------------------------------------------------------------------------------------------

    def _arrived(self, over: Operation) -> dict[SourcePartition, int]:
        """Say up to where records have arrived on the target: the failover's cut, or past it where somebody resumed the flow."""
        cut, sent = positions_of(over), self._desk.sent(self._flow)
        return {source: max(cut.get(source, 0), sent.get(source, 0)) for source in {*cut, *sent}}

    def _carried(self) -> list[str]:
        return self._desk.topics(self._flow)

    def _tail(self, operation: Operation | None) -> tuple[TailPart, ...]:
        kept = operation.step(TAIL) if operation is not None else None
        return () if kept is None else msgspec.convert(kept.after["parts"], tuple[TailPart, ...])

    def _plan_back(self) -> GroupPlan:
        return plan_groups_back(self._desk.lake, self._flow, self._desk.clusters, only=self._only)

    def _plan_groups(self) -> GroupPlan:
        found = [] if self._flow.adds_hops else [*self._plan_back()]
        for each in self._reverse():
            found += self._desk.hands.groups(each, recorded=False, only=self._only).plan()
        return GroupPlan(self._flow.name, tuple(found))

    def _skipping(self, plan: GroupPlan, operation: Operation) -> GroupPlan:
        """Move groups that stand right before a dropped tail past it; what else a group has not read is never skipped."""
        settled = operation.step(SETTLE)
        if settled is None or settled.after["choice"] != "drop":
            return plan
        ends = {TopicPartition(part.topic, part.partition): (part.first, part.end) for part in self._tail(operation)}
        rows = []
        for one in plan:
            to, (first, end) = one.resume.downstream_offset, ends.get(one.resume.target, (0, 0))
            # Between the last record that arrived and the tail nothing but markers and withheld records may stand.
            stands_before = to is not None and to <= first and not self._unread(one.resume.target, to, first)
            if stands_before and one.action in ("move", "in_step"):
                resume = replace(one.resume, downstream_offset=end, reason="it goes on after the dropped tail")
                one = replace(one, resume=resume, action="move", reason=resume.reason)
            rows.append(one)
        return GroupPlan(plan.flow, tuple(rows))

    def _unread(self, tp: TopicPartition, at: int, until: int) -> bool:
        """Tell whether the source holds a record between two offsets."""
        if at >= until:
            return False
        with closing(self._desk.reader(self._flow.source)) as reader:
            record = next(iter(reader.read(tp.topic, tp.partition, at)), None)
        return record is not None and record.offset < until

    # -- the report -----------------------------------------------------------------------------------------------

    def _planned(
        self, over: Operation, operation: Operation | None, plan: GroupPlan, refusals: Sequence[str]
    ) -> FailbackReport:
        flow, desk = self._flow, self._desk
        cut = self._arrived(over)
        ends = desk.ends(flow)
        # Not landed yet: offsets, of which some may be markers.
        parts = tuple(
            TailPart(
                topic=s.topic,
                generation=s.generation,
                partition=s.partition,
                first=cut.get(s, 0),
                end=end,
                records=end - cut.get(s, 0),
            )
            for s, end in sorted(ends.items())
            if end > cut.get(s, 0)
        )
        return FailbackReport(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            state="planned",
            failover=over.id,
            refusals=tuple(refusals),
            tail=parts,
            records=shown_tail(desk.lake, flow.source, self._carried(), cut, been_on=self._been_on),
            choice=self._choice,
            groups=tuple(_home(GroupPlaced.of(one), flow) for one in plan),
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
            ended_at=self._desk.now(),
            steps=_steps_of(operation),
            tail=self._tail(operation),
            records=kept_tail(self._desk.lake, over.id),
            choice=after(SETTLE)["choice"],
            back=after(BACK),
            proof=msgspec.convert(after(PROVE), ProofTaken),
            groups=msgspec.convert(after(GROUPS), tuple[GroupPlaced, ...]),
            unfenced=tuple(after(UNFENCE)),
        )


def _steps_of(operation: Operation | None) -> tuple[StepTaken, ...]:
    return tuple(StepTaken(name=step.name, at=step.at) for step in (operation.steps if operation is not None else ()))


def _home(placed: GroupPlaced, flow: FlowConfig) -> GroupPlaced:
    """Say where a group goes back to: the flow's source is the target of that."""
    return replace(placed, reason=placed.reason.replace("on the target", f"on {flow.source}"))


def _ask_for(parts: Sequence[TailPart], target: str) -> str:
    counts = ", ".join(f"{plural(count, 'record')} of {topic}" for topic, count in count_by_topic(parts).items())
    ways = "; ".join(f"--tail {name}: {means}" for name, means in _MEANS.items())
    return f"{counts} never arrived on {target} (table divergent). Choose: {ways}"


def _undo(change: Change) -> Change:
    """Return the change that takes another one back."""
    if change.kind == "acl":
        return replace(change, action="delete", before=change.after, after=None, reason="the flow is failed back")
    return replace(change, before=change.after, after=change.before, reason="the flow is failed back")


_SINCE = """
    SELECT sum(record_count) AS records FROM {runs} WHERE flow = :flow AND unix_micros(committed_at) >= :since
"""
_MAPPED = """
    SELECT target_topic AS topic, target_partition AS partition, max(first_downstream + record_count) AS `end`
    FROM {runs} WHERE flow = :flow GROUP BY target_topic, target_partition
"""
