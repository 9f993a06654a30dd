"""The hop into a target, which holds the records of a relay, as the rules changed them, at the mapped offsets.

Records that rules changed are compared with what the rules make of the relay's; of those that older rules changed, only the
presence is checked. Where a remote topic holds records that no flow wrote, they are neither extra nor verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mirrorlake.lake import RangeProof
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ranges import UNBOUNDED, OffsetRange, Ranges
from mirrorlake.model.remotes import known_id
from mirrorlake.model.verify import Difference
from mirrorlake.rules import View
from mirrorlake.verify.cut import feeds_into, feeds_within
from mirrorlake.verify.feeds import Feed, FeedKey, FetchedPart
from mirrorlake.verify.flow_at_cut import FlowAtCut
from mirrorlake.verify.hop import DueFeed, HopEnds, upstream_of
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.target_end import TargetEnd, compacting_topics
from mirrorlake.verify.target_ranges import ranges_to_fetch


def target_hop(
    end: TargetEnd,
    stands: Sequence[FlowAtCut],
    sources: Mapping[str, SourceEnd],
    views: Mapping[str, View],
    scope: Scope,
) -> HopEnds:
    cut, names = end.cut, {stand.flow.name for stand in stands}
    mine = {piece.target for piece in end.summaries if piece.key.flow in names}
    states = end.admin.describe({tp.topic for tp in mine})
    ids = {name: known_id(state.topic_id) for name, state in states.items()}
    last_ends = end.last_ends
    there = sorted(tp for tp in mine if tp.topic in states and tp.partition < states[tp.topic].partitions)
    held = {
        tp: OffsetRange(first, cut.ends.get(tp, last_ends[tp]))
        for tp, first in end.admin.log_start_offsets(there).items()
    }

    def source_of(key: FeedKey) -> SourceEnd:
        return sources[cut.flows[str(key.flow)].source]

    def removed(key: FeedKey) -> Ranges:
        """Return the offsets that the relay no longer holds; each is explained elsewhere."""
        return source_of(key).removed.get(key.source, Ranges())

    spans = {FeedKey(stand.flow.name, s): due for stand in stands for s, due in stand.due.items()}
    feeds = {feed.key: feed for feed in feeds_within(cut, spans)}
    proofs = {
        FeedKey(stand.flow.name, s): replace(one, target_topic_id=ids.get(str(one.target_topic)))
        for stand in stands
        for s in stand.bounds
        if FeedKey(stand.flow.name, s) in spans
        for one in [stand.proof(s)]
    }
    return HopEnds(
        admin=end.admin,
        options=end.options,
        due={key: _due_feed(due, feeds.get(key), held, removed(key), proofs[key]) for key, due in spans.items()},
        ranges=ranges_to_fetch(cut, feeds.values(), held, last_ends, scope),
        parts=_settings_of_parts(end, ids),
        feeds_into=lambda chosen: [replace(feed, removed=removed(feed.key)) for feed in feeds_into(cut, chosen, views)],
        fed_by=lambda key: source_of(key).relay,
        ends={tp: span.end for tp, span in held.items()},
        differences=[
            Difference.at(tp, -1, where="target", problem="missing") for tp in sorted(mine) if tp.topic not in states
        ],
    )


def _settings_of_parts(end: TargetEnd, ids: Mapping[str, str]) -> Callable[[TopicPartition, OffsetRange], FetchedPart]:
    """Return how partitions of the present topics are compared; `ids` are their ids."""
    shared = end.sources_of_shared()
    compacting = compacting_topics(end.admin, ids)
    return lambda tp, span: FetchedPart(
        span=span,
        own=shared.get(tp.topic),
        compacts=tp.topic in compacting,
    )


def _due_feed(
    due: Ranges,
    feed: Feed | None,
    held: Mapping[TopicPartition, OffsetRange],
    removed: Ranges,
    proof: RangeProof,
) -> DueFeed:
    if feed is None:
        return DueFeed(due=due, feed=Feed.identity(proof.partition, Ranges()), gone=Ranges(), proof=proof)
    there = {way.tp: held[way.tp] for way in feed.targets if way.tp in held}
    left = upstream_of(feed, {tp: OffsetRange(0, span.first) for tp, span in there.items()})
    # A missing topic is a difference, and nothing of it is proven.
    ends = {way.tp: there[way.tp].end if way.tp in there else 0 for way in feed.targets}
    late = upstream_of(feed, {tp: OffsetRange(end, UNBOUNDED) for tp, end in ends.items()})
    return DueFeed(due=due, feed=feed, gone=left | removed, proof=proof, end=late.first if late else UNBOUNDED)
