"""Choose the downstream offsets to fetch from a target: due ones and their surroundings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.model.flow import TopicPartition
from mirrorlake.verify.cut import runs_within
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange, OffsetRanges
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.target_side import FeedKey, TargetSide, by_feed, find_last_ends, targets_of

# Reading this many proven records again costs less than another pass.
_NEAR = 50_000


@dataclass(frozen=True, slots=True)
class DueOffsets:
    """The mapped offsets of a feed that are due; labels are indexes of `targets`."""

    offsets: OffsetColumns
    targets: tuple[TopicPartition, ...]

    def on(self, tp: TopicPartition) -> OffsetColumns:
        """Return the part on one target partition."""
        if tp not in self.targets:
            return OffsetColumns.identity(())
        return self.offsets.where(self.offsets.labels == self.targets.index(tp))


def find_due_offsets(side: TargetSide) -> dict[FeedKey, DueOffsets]:
    """Return the target offsets of each feed's due records."""
    found = runs_within(side.cut, ((key.flow, key.source, spans) for key, spans in side.due.items()))
    if found is None:
        return {}
    places = {}
    for key, runs in by_feed(found):
        targets = tuple(sorted({TopicPartition(*pair) for pair in targets_of(runs)}))
        numbers = {target: number for number, target in enumerate(targets)}
        labels = np.array([numbers[TopicPartition(*pair)] for pair in targets_of(runs)], np.int64)
        places[key] = DueOffsets(OffsetColumns.from_runs(runs, labels).upstream_within(side.due[key]), targets)
    return places


def ranges_to_fetch(
    side: TargetSide, places: Mapping[FeedKey, DueOffsets], held: Mapping[TopicPartition, OffsetRange], scope: Scope
) -> dict[TopicPartition, OffsetRanges]:
    """Return the downstream offsets to fetch: all due ones, up to the nearest proven records."""
    near: dict[TopicPartition, list[OffsetRange]] = {tp: [] for tp in held}
    for due in places.values():
        for tp in due.targets:
            if tp in held:
                near[tp] += _stretched(due.on(tp).downstream_within(*held[tp]))
    wanted = {tp: OffsetRanges(_joined(spans)) for tp, spans in near.items()}
    last_ends = find_last_ends(side)
    bounds = _neighbours(side, {tp: spans for tp, spans in wanted.items() if spans})
    ranges = {}
    for tp, spans in wanted.items():
        found = []
        for span in spans:
            before, after = bounds[tp, span]
            found.append((max(held[tp].first, before), min(held[tp].end, after)))
        if scope.is_whole and (not spans or bounds[tp, tuple(spans)[-1]][1] < UNBOUNDED):
            # No record may follow the last record of the flows, so the rest is fetched, too.
            found.append((max(held[tp].first, last_ends[tp]), held[tp].end))
        ranges[tp] = OffsetRanges(found)
    return ranges


def _stretched(places: OffsetColumns) -> Iterable[OffsetRange]:
    """Join ranges that adjoin on the target, so that they are few."""
    order = np.argsort(places.downstream, kind="stable")
    first, lengths = places.downstream[order], places.lengths[order]
    if not len(first):
        return ()
    breaks = np.flatnonzero(first[1:] > (first + lengths)[:-1] + _NEAR) + 1
    starts, ends = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(first)]]) - 1
    return [
        OffsetRange(int(first[start]), int(first[end] + lengths[end])) for start, end in zip(starts, ends, strict=True)
    ]


def _joined(spans: Iterable[OffsetRange]) -> Iterable[OffsetRange]:
    found: list[OffsetRange] = []
    for span in sorted(spans):
        if found and span.first <= found[-1].end + _NEAR:
            found[-1] = OffsetRange(found[-1].first, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _neighbours(
    side: TargetSide, wanted: Mapping[TopicPartition, OffsetRanges]
) -> dict[tuple[TopicPartition, OffsetRange], tuple[int, int]]:
    """Return for each range the end of the records before it and the start of those after it."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "first": span.first, "end_at": span.end}
        for tp, spans in wanted.items()
        for span in spans
    ]
    if not rows:
        return {}
    kinds = [("topic", pa.string()), ("partition", pa.int32()), ("first", pa.int64()), ("end_at", pa.int64())]
    found = side.cut.maps.ask(
        "SELECT w.topic, w.partition, w.first, w.end_at, "
        "max(CASE WHEN r.first_downstream < w.first "
        "THEN least(r.first_downstream + r.record_count, w.first) END) AS before, "
        "min(CASE WHEN r.first_downstream + r.record_count > w.end_at "
        "THEN greatest(r.first_downstream, w.end_at) END) AS after "
        "FROM {wanted} AS w JOIN {runs} AS r ON r.target_topic = w.topic AND r.target_partition = w.partition "
        "GROUP BY w.topic, w.partition, w.first, w.end_at",
        tables={"wanted": pa.Table.from_pylist(rows, schema=pa.schema(kinds))},
    )
    return {
        (TopicPartition(row.topic, row.partition), OffsetRange(row.first, row.end_at)): (
            int(row.first if row.before is None else row.before),
            int(UNBOUNDED if row.after is None else row.after),
        )
        for row in found
    }
