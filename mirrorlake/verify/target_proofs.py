"""Build proofs of a comparison with a target: rows of the table `proofs`, and counts of verified records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from mirrorlake.lake import RangeProof
from mirrorlake.model.flow import TopicPartition
from mirrorlake.verify.comparison_results import provable_ranges
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange, OffsetRanges
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.target_ranges import DueOffsets
from mirrorlake.verify.target_side import FeedKey, TargetResult, TargetSide
from mirrorlake.verify.unit import UnitResult


def count_verified(hop: TargetResult, result: UnitResult, places: Mapping[FeedKey, DueOffsets]) -> None:
    """Count the due records that were found equal, without proven records that were read again."""
    spans = dict(zip(result.unit.partitions, (one.span for one in result.unit.fetched), strict=True))
    for number, feed in enumerate(result.unit.feeds):
        if feed.key in places:
            due = sum(places[feed.key].on(tp).downstream_within(*span).records for tp, span in spans.items())
            hop.verified[feed.key] += max(0, result.matched[number] - (feed.offsets.records - due))


def build_proofs(
    side: TargetSide,
    result: UnitResult,
    places: Mapping[FeedKey, DueOffsets],
    held: Mapping[TopicPartition, OffsetRange],
    ids: Mapping[str, str],
    scope: Scope,
) -> Iterable[RangeProof]:
    """Yield the proofs and differences of each feed of one unit."""
    for number, feed in enumerate(result.unit.feeds):
        if feed.key not in side.due or not len(feed.offsets):
            continue
        doubts, span = result.suspects[number], feed.span
        gone, beyond = _find_missing(places[feed.key], held)
        mine = side.due[feed.key] & OffsetRanges([_grown(side.due[feed.key], span)])
        proven = provable_ranges(mine, suspects=doubts.offsets, end=min(doubts.end, beyond), gone=gone + feed.removed)
        ways = [one for one in result.proven if one.feed == number]
        is_whole = len(proven) == 1 and not doubts.offsets and doubts.end == UNBOUNDED
        for part in proven:
            if not ways:
                yield _proof(side, feed.key, part, ids, how="full" if scope.sample is None else "sampled")
            for one in ways:
                inside = feed.offsets.where(
                    np.array([(w.target, w.version) == (one.target, one.version) for w in feed.targets])[
                        feed.offsets.labels
                    ]
                ).upstream_within(OffsetRanges([part]))
                how = "sampled" if scope.sample is not None else "full" if one.is_comparable else "present"
                yield _proof(
                    side,
                    feed.key,
                    part,
                    ids,
                    how=how,
                    records=one.records if is_whole else inside.records,
                    topic=result.unit.partitions[one.target].topic,
                    partition=result.unit.partitions[one.target].partition,
                    first=one.first if is_whole else None,
                    last=one.last if is_whole else None,
                    digest=one.digest if is_whole and one.is_comparable else None,
                    view=one.version,
                )
        for differing in doubts.ranges(span.end):
            yield _proof(side, feed.key, differing, ids, how="different")


def _grown(due: OffsetRanges, span: OffsetRange) -> OffsetRange:
    """Extend a range by adjoining due offsets that have no record on the target."""
    touched = [one for one in due if one.first < span.end and one.end > span.first]
    return (
        OffsetRange(min(one.first for one in touched), max(one.end for one in touched))
        if touched
        else OffsetRange(0, 0)
    )


def _find_missing(due: DueOffsets, held: Mapping[TopicPartition, OffsetRange]) -> tuple[OffsetRanges, int]:
    """Return the upstream offsets that left the target, and the first one past the cut."""
    gone: list[tuple[int, int]] = []
    beyond = UNBOUNDED
    for tp in due.targets:
        if tp not in held:
            # A missing topic is a difference, and nothing of it is proven.
            beyond = min(beyond, int(due.on(tp).upstream[0]))
            continue
        span = held[tp]
        left = due.on(tp).downstream_within(0, span.first)
        if len(left):
            gone.append((int(left.upstream[0]), int((left.upstream + left.lengths).max())))
        late = due.on(tp).downstream_within(span.end, UNBOUNDED)
        if len(late):
            beyond = min(beyond, int(late.upstream[0]))
    return OffsetRanges(gone), beyond


def proofs_without_records(
    side: TargetSide,
    places: Mapping[FeedKey, DueOffsets],
    held: Mapping[TopicPartition, OffsetRange],
    ids: Mapping[str, str],
) -> Iterable[RangeProof]:
    """Yield proofs of due offsets without a target record, and of offsets that left the target."""
    for key, due in side.due.items():
        removed = side.removed_of(key)
        if key not in places:
            for span in due:
                yield _proof(side, key, span, ids, how="full")
            continue
        gone, beyond = _find_missing(places[key], held)
        for span in (gone + removed) & due & OffsetRanges([(0, beyond)]):
            yield _proof(side, key, span, ids, how="gone")
        spans = places[key].offsets
        for span in due:
            if not spans.upstream_within(OffsetRanges([span])).records:
                yield _proof(side, key, span, ids, how="full")


def _proof(
    side: TargetSide,
    key: FeedKey,
    span: OffsetRange,
    ids: Mapping[str, str],
    *,
    how: str,
    records: int = 0,
    topic: str = "",
    partition: int | None = None,
    first: int | None = None,
    last: int | None = None,
    digest: str | None = None,
    view: str | None = None,
) -> RangeProof:
    alias = side.source(key.flow)
    topic = topic or side.cut.flows[key.flow].remote_topic(key.source.topic)
    return RangeProof(
        kind=side.kind,
        source=alias,
        flow=key.flow,
        partition=key.source,
        first_upstream=span.first,
        last_upstream=span.end - 1,
        begins_at=side.begins[key],
        how=how,
        records=records,
        digest=digest,
        target_topic=topic,
        target_partition=partition,
        first_downstream=first,
        last_downstream=last,
        view=view,
        relay_version=None if side.directly else side.relays[alias].version,
        source_topic_id=side.source_ids[alias].get(key.source.topic),
        target_topic_id=ids.get(topic),
    )
