"""The divergent tail: records of the old source that never arrived on the target before it was failed over.

Law E (accounted for): they are landed as all records are, and then sent, or stepped over with a row of `withheld` for each. None is
decided about without a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from mirrorlake.failover.failback_report import MEANS, TailChoice, TailRecord, not_failed_back
from mirrorlake.failover.failover import positions_of
from mirrorlake.failover.operation_context import OperationContext, drain_flow
from mirrorlake.lake import RelayPart
from mirrorlake.model.flow import RecordRange, SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.late_times import moment_of
from mirrorlake.model.loops.hops import hops
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.withheld import FILTERED, Withheld
from mirrorlake.procedure import Operation, Refusal, Step
from mirrorlake.render import document, headers, plural
from mirrorlake.rules import View, Viewed

TAIL, CHOICE, RESOLVE = "tail", "choice", "settle"
RULE = "failback"
"""The rule under which records of a tail are withheld."""

_BATCH_SIZE = 20_000
_MAX_SHOWN = 20


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
        """Find the ranges of the landed records that did not arrive on the target."""
        work, positions = self._work, dict(self._arrived())
        found = dict[SourcePartition, RecordRange]()
        while True:
            part = RelayPart(positions)
            rows = work.lake.query(
                _TAIL,
                relay=self._flow.source,
                part=part,
                tables={"known": part.known()},
                topics=work.topics(self._flow),
                most=_BATCH_SIZE,
            )
            if not rows:
                return {"parts": document([found[source] for source in sorted(found)])}
            for row in rows:
                source = SourcePartition(row.topic, row.generation, row.partition)
                positions[source] = row.offset + 1
                if not self._came_from_target((one["key"], one["value"]) for one in row.headers or ()):
                    known = found.get(source) or RecordRange(**asdict(source), first=row.offset, end=0, records=0)
                    found[source] = replace(known, end=row.offset + 1, records=known.records + 1)

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
        """Return the ranges that are not landed yet, and their first records."""
        cut = self._arrived()
        firsts = {s: (cut.get(s, 0), end) for s, end in sorted(self._work.ends(self._flow).items())}
        firsts = {s: span for s, span in firsts.items() if span[0] < span[1]}
        # Offsets, because records that are not landed cannot be told from markers.
        parts = (
            RecordRange(**asdict(s), first=first, end=end, records=end - first) for s, (first, end) in firsts.items()
        )
        return tuple(parts), tuple(islice(self._read_unarrived(firsts), _MAX_SHOWN))

    def _read_unarrived(self, spans: Mapping[SourcePartition, tuple[int, int]]) -> Iterator[TailRecord]:
        with closing(self._work.context.reader(self._flow.source)) as reader:
            for s, (first, _) in spans.items():
                for one in islice(reader.read(s.topic, s.partition, first), _BATCH_SIZE):
                    if not self._came_from_target(one.headers):
                        yield TailRecord(
                            **asdict(s),
                            offset=one.offset,
                            timestamp=None if one.timestamp_ms < 0 else moment_of(one.timestamp_ms),
                            key=one.key,
                            value=one.value,
                            headers=headers(one.headers),
                        )

    def _came_from_target(self, pairs: Iterable[tuple[str, bytes | None]]) -> bool:
        """Return whether clusters that mirror each other brought a record from the target."""
        return self._flow.adds_hops and any(hop.source == self._flow.target for hop in hops(pairs))

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


@dataclass(frozen=True)
class SkipTailView:
    """A view that withholds a divergent tail, and passes all other records through the flow's own view.

    Picklable, because it runs in Spark's workers. `bounds` are first offset and end of the tail, by source partition.
    """

    inner: View | None
    bounds: Mapping[SourcePartition, tuple[int, int]]
    reason: str

    @property
    def version(self) -> str:
        """The fingerprint of the flow's own view, which sent records go through."""
        return "" if self.inner is None else self.inner.version

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        first, end = self.bounds.get(source, (0, 0))
        # The flow's view comes first, because it accounts for records that came from the target.
        viewed = Viewed(records=records) if self.inner is None else self.inner(source, records)
        offsets = viewed.records.column("offset").to_numpy(zero_copy_only=False)
        is_tail = (offsets >= first) & (offsets < end)
        if not is_tail.any():
            return viewed
        ranges = Ranges.of(offsets[is_tail])
        tail = Withheld(source=source, kind=FILTERED, rule=RULE, version="", ranges=ranges, reason=self.reason)
        goes = np.logical_not(is_tail)
        return Viewed(
            records=viewed.records.filter(pa.array(goes)),
            withheld=(*viewed.withheld, tail),
            partitions=None if viewed.partitions is None else viewed.partitions[goes],
        )


_TAIL = """
    SELECT r.topic, r.generation, r.partition, r.`offset`, r.headers
    FROM {relay} AS r LEFT JOIN {known} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE r.`offset` >= coalesce(k.position, 0) AND array_contains(:topics, r.topic)
    ORDER BY r.topic, r.generation, r.partition, r.`offset` LIMIT :most
"""
