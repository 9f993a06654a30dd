"""Compare chosen ranges of a relay with what one flow sent of them, such as those of a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.model.verify import MAX_DIFFERENCES, Difference, PartitionProof, VerifyReport
from mirrorlake.rules import View
from mirrorlake.verify.completeness import SendBounds, count_withheld, find_lost_and_pending
from mirrorlake.verify.cut import FixedCut, read_processed_offsets, take_cut
from mirrorlake.verify.feeds import FeedKey
from mirrorlake.verify.flow_at_cut import FlowAtCut
from mirrorlake.verify.hop import compare_hop
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.target_end import TargetEnd, summarize_feeds
from mirrorlake.verify.target_hop import target_hop


def verify_ranges(
    context: Context,
    flow: FlowConfig,
    view: View | None,
    ranges: Mapping[SourcePartition, tuple[int, int]],
    *,
    tell: Callable[[int], None],
) -> VerifyReport:
    """Compare upstream `[first, end)` ranges with the target; neither source nor records of others in the topic are asked.

    `view` is what the records went through; `tell` gets counts of compared records.
    """
    cut = take_cut(context, [flow], lost={flow.source})
    remotes = {flow.remote_topic(source.topic) for source in ranges}
    end = replace(TargetEnd.at(cut, flow.target, context), summaries=summarize_feeds(cut, remotes))
    source_end = SourceEnd(context, flow.source, is_lost=True)
    return compare_ranges(flow, view, ranges, source=source_end, target=end, tell=tell)


def compare_ranges(
    flow: FlowConfig,
    view: View | None,
    ranges: Mapping[SourcePartition, tuple[int, int]],
    *,
    source: SourceEnd,
    target: TargetEnd,
    tell: Callable[[int], None],
) -> VerifyReport:
    cut, due = target.cut, {s: Ranges([span]) for s, span in ranges.items()}
    at_cut = FlowAtCut(
        flow=flow,
        source=source,
        target=target,
        bounds={s: SendBounds(begins=first, position=end) for s, (first, end) in ranges.items()},
        feeds=target.summaries,
        withheld=count_withheld(cut, flow.name),
        due=due,
        unproven=due,
    )
    scope = Scope(full=True, between={flow.source: {s: OffsetRange(*span) for s, span in ranges.items()}})
    views = {} if view is None else {flow.name: view}
    hop = target_hop(target, [at_cut], {flow.source: source}, views, scope)
    # Records of nobody's last hop are ignored: others may write to the topic.
    alone = replace(hop, parts=lambda tp, span: replace(hop.parts(tp, span), own=frozenset()))
    found = compare_hop(alone, scope, tell)
    withheld = {s: at_cut.withheld[s].records if s in at_cut.withheld else 0 for s in ranges}
    mapped = {s: at_cut.sent[s] + withheld[s] for s in ranges}
    lost, _ = find_lost_and_pending(flow.name, source.relay, at_cut.bounds, cut, mapped, source.removed, due)
    differences = [*found.differences, *(one.difference for one in lost), *_sent_beside(flow, due, source, cut)]
    wrong = {s for s in ranges if any((d.topic, d.partition) in _places(at_cut, s) for d in differences)}
    partitions = []
    for s, (first, end) in sorted(ranges.items()):
        verified = 0 if s in wrong else found.verified[FeedKey(flow.name, s)]
        partitions.append(
            PartitionProof(
                topic=s.topic,
                generation=s.generation,
                partition=s.partition,
                landed=source.relay.count(s, OffsetRange(first, end)),
                republished=at_cut.sent[s],
                withheld=withheld[s],
                verified=verified,
                not_compared=0 if s in wrong else at_cut.sent[s] - verified,
            )
        )
    return VerifyReport(
        flow=flow.name,
        equal=not differences,
        partitions=tuple(partitions),
        differences=tuple(differences[:MAX_DIFFERENCES]),
    )


def _places(at_cut: FlowAtCut, source: SourcePartition) -> set[tuple[str, int]]:
    targets = (piece.target for piece in at_cut.feeds if piece.key.source == source)
    return {(source.topic, source.partition), *((tp.topic, tp.partition) for tp in targets)}


def _sent_beside(
    flow: FlowConfig, due: Mapping[SourcePartition, Ranges], source: SourceEnd, cut: FixedCut
) -> list[Difference]:
    """List the ranges that the flow processed past the chosen ones; those that left the relay since are explained."""
    found = []
    for s, chosen in due.items():
        processed = Ranges(read_processed_offsets(flow.name, s, cut).upstream_spans())
        for span in processed - chosen - source.removed.get(s, Ranges()):
            count = span.end - span.first
            found.append(Difference.at(s, span.first, where="target", problem="extra", records=count))
    return found
