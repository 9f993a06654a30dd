"""The hop between a source and its relay: the relay holds what the source returns to a `read_committed` consumer.

What the source no longer holds cannot be compared any more; it is said to be gone, once, and not asked for again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import SOURCE_RELAY, RangeProof
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.verify import Difference
from mirrorlake.verify.feeds import Feed, FeedKey, FetchedPart
from mirrorlake.verify.hop import DueFeed, HopEnds, HopResult
from mirrorlake.verify.scope import KnownRanges, Scope
from mirrorlake.verify.source_end import SourceEnd, read_log_ranges


def source_hop(
    end: SourceEnd,
    topics: Collection[str],
    known: KnownRanges,
    scope: Scope,
    admin: ClusterAdmin,
    options: Mapping[str, Any],
) -> HopEnds:
    with_leader = (s for s in end.relay.landed if s.tp not in end.leaderless)
    landed = {s: end.relay.landed[s] for s in with_leader if s.topic in topics}
    there = read_log_ranges(admin, end.ids, landed)
    sources = {s.tp: s for s in there}
    due, ranges = {}, {}
    for s, held in landed.items():
        spans = scope.of(end.alias, s, known.unproven(s, Ranges([held.span]), scope))
        available = Ranges([there[s]] if s in there else [])
        due[FeedKey(None, s)] = DueFeed(
            due=spans, feed=_feed(end, s, spans), gone=spans - available, proof=_proof(end, s)
        )
        if s in there:
            ranges[s.tp] = spans & available
    return HopEnds(
        admin=admin,
        options=options,
        due=due,
        ranges=ranges,
        parts=lambda tp, span: FetchedPart(span=span, compacts=end.compacts(tp.topic)),
        feeds_into=lambda chosen: [_feed(end, sources[tp], Ranges([span])) for tp, span in chosen.items()],
        fed_by=lambda _: end.relay,
        relay=end.relay,
    )


def compare_dense_offsets(end: SourceEnd, topics: Collection[str], known: KnownRanges, scope: Scope) -> HopResult:
    """Check the relay of a lake cluster: it is the source itself, and its offsets are 0, 1, 2, ..."""
    found = HopResult()
    for source, held in end.relay.landed.items():
        if source.topic not in topics:
            continue
        whole = Ranges([(0, held.last + 1)])
        gone = end.removed.get(source, Ranges()) & whole
        if held.records + gone.count != whole.count:
            found.differences.append(Difference.at(source, held.first, where="relay", problem="missing"))
            continue
        due = scope.of(end.alias, source, known.unproven(source, whole, scope))
        one = DueFeed(due=due, feed=_feed(end, source, due), gone=gone, proof=_proof(end, source))
        found.proofs += [one.prove(span, how="full", records=span.end - span.first) for span in due]
    return found


def _feed(end: SourceEnd, source: SourcePartition, spans: Ranges) -> Feed:
    return Feed.identity(source, spans, end.removed.get(source, Ranges()))


def _proof(end: SourceEnd, source: SourcePartition) -> RangeProof:
    held = end.relay.landed[source]
    return RangeProof(
        kind=SOURCE_RELAY,
        source=end.alias,
        partition=source,
        first_upstream=0,
        last_upstream=-1,
        begins_at=held.first,
        how="",
        records=0,
        relay_version=end.relay.version,
        source_topic_id=end.ids.get(source.topic),
        upstream_end=held.last + 1,
    )
