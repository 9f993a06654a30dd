"""Report on one flow: the results of both hops, lost and pending records, and earlier proofs.

Law E (accounted for): a record counts as verified if both copies agree, and as not compared otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import ProvenRange, Tombstones
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import certainty
from mirrorlake.model.verify import (
    MAX_DIFFERENCES,
    Difference,
    Explained,
    LeftOutPartition,
    PartitionProof,
    VerifyReport,
)
from mirrorlake.verify.comparison_results import HopResult
from mirrorlake.verify.completeness import LostRecords, PendingRecords, SendBounds, WithheldCount
from mirrorlake.verify.cut import FixedCut, runs_within
from mirrorlake.verify.direct import SourceFeed
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import OffsetRanges
from mirrorlake.verify.relays import LandedCount
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.target_side import FeedKey, FeedSummary, TargetResult, by_feed


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowAtCut:
    """A flow at the cut: its landed, sent and withheld records, and its proofs."""

    flow: FlowConfig
    landed: Mapping[SourcePartition, LandedCount]
    bounds: Mapping[SourcePartition, SendBounds]
    feeds: Sequence[FeedSummary]
    withheld: Mapping[SourcePartition, WithheldCount]
    ranges: Sequence[ProvenRange]
    due: Mapping[SourcePartition, OffsetRanges]
    unproven: Mapping[SourcePartition, OffsetRanges]
    directly: Mapping[SourcePartition, SourceFeed]

    @property
    def sent(self) -> Counter[SourcePartition]:
        """Count the records that were sent."""
        counts: Counter[SourcePartition] = Counter()
        for piece in self.feeds:
            counts[piece.key.source] += piece.records
        return counts


def build_flow_report(
    at_cut: FlowAtCut,
    landing: HopResult,
    sending: TargetResult,
    *,
    lost: Sequence[LostRecords],
    pending: Mapping[SourcePartition, PendingRecords],
    before: Counter[SourcePartition],
    explained: tuple[Explained, ...],
    leaderless: Collection[TopicPartition] = (),
) -> VerifyReport:
    """Report on a flow.

    Args:
        at_cut: what was landed, sent and proven of it at the cut.
        landing: the result between its source and the relay.
        sending: the result between the relay, or the source, and its target.
        lost: records that its ledger says are done and that no run holds.
        pending: records that it has not come to.
        before: how many records were proven by earlier verifications and not read again.
        explained: what is missing, and why.
        leaderless: partitions of its source that were not asked.
    """
    flow, sent = at_cut.flow, at_cut.sent
    places: dict[SourcePartition, set[tuple[str, int]]] = {s: {(s.topic, s.partition)} for s in at_cut.landed}
    for piece in at_cut.feeds:
        places.setdefault(piece.key.source, set()).add((piece.target.topic, piece.target.partition))
    remotes = {flow.remote_topic(s.topic) for s in places}
    differences = [d for d in landing.differences if flow.carries(d.topic)]
    differences += [d for d in sending.differences if d.topic in remotes]
    differences += [one.difference for one in lost]
    wrong = {(d.topic, d.partition) for d in differences}
    differences += [
        Difference.at(s, one.first, where="relay", problem="not_republished", records=one.records)
        for s, one in pending.items()
    ]
    partitions = []
    for s in sorted(places):
        held = at_cut.landed[s].records if s in at_cut.landed else 0
        withheld = at_cut.withheld[s].records if s in at_cut.withheld else 0
        verified = before[s] + sending.verified[FeedKey(flow.name, s)]
        owing = pending[s].records if s in pending else 0
        partitions.append(
            PartitionProof(
                topic=s.topic,
                generation=s.generation,
                partition=s.partition,
                landed=held,
                republished=sent[s],
                withheld=withheld,
                verified=0 if places[s] & wrong else verified,
                proven_before=0 if places[s] & wrong else before[s],
                not_republished=owing,
                not_compared=max(0, held - withheld - verified - owing),
            )
        )
    found = sorted(set(differences), key=lambda d: (d.where, d.topic, d.partition, d.offset))[:MAX_DIFFERENCES]
    left_out = tuple(
        LeftOutPartition(topic=tp.topic, partition=tp.partition, why=f"nobody leads it on {flow.source}")
        for tp in sorted(leaderless)
        if flow.carries(tp.topic)
    )
    return VerifyReport(
        flow=flow.name,
        equal=not found and not left_out,
        partitions=tuple(partitions),
        differences=tuple(found),
        explained=explained,
        left_out=left_out,
        direct=sum(sending.directly[FeedKey(flow.name, s)] for s in places if not places[s] & wrong),
    )


def count_explained(
    flow: FlowConfig,
    kinds_by_topic: Mapping[str, Counter[tuple[str, str]]],
    tombstones: Iterable[Tombstones],
    *,
    before_landing: int = 0,
) -> tuple[Explained, ...]:
    """Count the offsets of a flow that hold no record, by where and why; `tombstones` are those on its target.

    `before_landing` counts offsets that the source holds from before it was landed.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for topic, kinds in kinds_by_topic.items():
        if flow.carries(topic):
            counts += kinds
    counts["target", "tombstone"] += sum(one.records for one in tombstones if one.flow == flow.name)
    counts["source", "before_landing"] = before_landing
    counts = +counts
    return tuple(
        Explained(where=where, kind=kind, offsets=offsets, certainty=certainty(kind))
        for (where, kind), offsets in sorted(counts.items())
    )


def count_proven_before(at_cut: FlowAtCut, cut: FixedCut, scope: Scope) -> Counter[SourcePartition]:
    """Count the records that earlier verifications proved and that this one did not read again."""
    if scope.full:
        return Counter()
    missing: Counter[SourcePartition] = Counter()
    name, sent = at_cut.flow.name, at_cut.sent
    runs = runs_within(cut, ((name, s, spans) for s, spans in at_cut.unproven.items() if sent[s]))
    for key, mine in by_feed(runs) if runs is not None else ():
        places = OffsetColumns.from_runs(mine, np.zeros(len(mine), np.int64))
        missing[key.source] = places.upstream_within(at_cut.unproven[key.source]).records
    return Counter({s: count - missing[s] for s, count in sent.items() if s in at_cut.bounds and count > missing[s]})
