"""Resolve the divergent tail of a failback by a person's choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from mirrorlake.failover.failback_report import MEANS, TailChoice, not_failed_back
from mirrorlake.failover.failover import positions_of
from mirrorlake.failover.operation_context import OperationContext, drain_flow
from mirrorlake.failover.tail import (
    SkipTailView,
    TailRecord,
    find_tail,
    read_unarrived,
)
from mirrorlake.model.flow import RecordRange, SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.procedure import Operation, Refusal, Step
from mirrorlake.render import document, plural

TAIL, CHOICE, RESOLVE = "tail", "choice", "settle"


class DivergentTail:
    """The records of a flow's source that never arrived on the target; `over` is the failover that left them.

    `choice` is what to do with them; None if nobody has chosen yet.
    """

    def __init__(self, work: OperationContext, over: Operation, choice: TailChoice | None) -> None:
        self._work = work
        self._flow = work.flow
        self._over = over
        self._choice = choice

    def steps(self) -> tuple[Step, ...]:
        return (
            Step(TAIL, self._find),
            # Written first, so that a restart cannot record another choice than the one carried out.
            Step(CHOICE, self._choose, is_needed=lambda operation: bool(tail_of(operation))),
            Step(RESOLVE, self._resolve),
        )

    def _find(self, _: Operation) -> Any:
        work, flow = self._work, self._flow
        been_on = flow.target if flow.adds_hops else None
        parts = find_tail(work.lake, flow.source, work.topics(flow), self._arrived(), been_on=been_on)
        return {"parts": document(parts)}

    def _choose(self, operation: Operation) -> Any:
        if self._choice is None:
            question = _ask_for_choice(tail_of(operation), self._flow.target)
            raise not_failed_back(self._flow, [Refusal(question)])
        return self._choice

    def _resolve(self, operation: Operation) -> Any:
        work, flow, parts = self._work, self._flow, tail_of(operation)
        choice, sent = operation.after(CHOICE) if parts else None, 0
        if choice == "restore":
            sent = drain_flow(work.context, flow)
        elif choice is not None:
            bounds = {part.source: (part.first, part.end) for part in parts}
            reason = f"failback {operation.id}: {choice}"
            drain_flow(work.context, flow, through=partial(SkipTailView, bounds=bounds, reason=reason))
        return {"choice": choice, "sent": sent}

    def preview(self) -> tuple[tuple[RecordRange, ...], tuple[TailRecord, ...]]:
        work, flow, cut = self._work, self._flow, self._arrived()
        ends = work.ends(flow)
        # Offsets, because records that are not landed cannot be told from markers.
        parts = tuple(
            RecordRange(
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
        return parts, read_unarrived(work.context, flow, ends, cut)

    def move_past_dropped(self, plan: GroupPlan, operation: Operation) -> GroupPlan:
        """Move groups that are right before a dropped tail past it; no other unread record is skipped."""
        if operation.after(RESOLVE, {}).get("choice") != "drop":
            return plan
        ends = {TopicPartition(part.topic, part.partition): (part.first, part.end) for part in tail_of(operation)}
        rows = []
        for one in plan:
            to, (first, end) = one.resume.downstream_offset, ends.get(one.resume.target, (0, 0))
            # Only markers and withheld records may lie between the last record that arrived and the tail.
            stands_before = to is not None and to <= first and not self._unread(one.resume.target, to, first)
            if stands_before and one.action in ("move", "in_step"):
                resume = replace(one.resume, downstream_offset=end, reason="it goes on after the dropped tail")
                one = replace(one, resume=resume, action="move", reason=resume.reason)
            rows.append(one)
        return replace(plan, positions=tuple(rows))

    def _unread(self, tp: TopicPartition, at: int, until: int) -> bool:
        if at >= until:
            return False
        with closing(self._work.context.reader(self._flow.source)) as reader:
            record = next(iter(reader.read(tp.topic, tp.partition, at)), None)
        return record is not None and record.offset < until

    def _arrived(self) -> dict[SourcePartition, int]:
        """Return the positions that arrived on the target: the failover's, or later ones if the flow was resumed."""
        cut, sent = positions_of(self._over), self._work.sent(self._flow)
        return {source: max(cut.get(source, 0), sent.get(source, 0)) for source in {*cut, *sent}}


def tail_of(operation: Operation) -> tuple[RecordRange, ...]:
    return msgspec.convert(operation.after(TAIL, {}).get("parts", ()), tuple[RecordRange, ...])


def _ask_for_choice(parts: Sequence[RecordRange], target: str) -> str:
    records = Counter[str]()
    for part in parts:
        records[part.topic] += part.records
    counts = ", ".join(f"{plural(count, 'record')} of {topic}" for topic, count in sorted(records.items()))
    ways = "; ".join(f"--tail {name}: {means}" for name, means in MEANS.items())
    return f"{counts} never arrived on {target} (--dry-run shows the first). Choose: {ways}"
