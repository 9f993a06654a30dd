"""Report on one flow: the results of both hops, lost and pending records, and earlier proofs.

Law E (accounted for): a record counts as verified if both copies agree, and as not compared otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import certainty
from mirrorlake.model.verify import (
    MAX_DIFFERENCES,
    Difference,
    Explained,
    LeftOutPartition,
    PartitionProof,
    VerifyReport,
)
from mirrorlake.verify.completeness import LostRecords, PendingRecords
from mirrorlake.verify.cut import feeds_within
from mirrorlake.verify.feeds import FeedKey
from mirrorlake.verify.flow_at_cut import FlowAtCut
from mirrorlake.verify.hop import HopResult
from mirrorlake.verify.scope import Scope


def build_flow_report(
    at_cut: FlowAtCut,
    landing: HopResult,
    sending: HopResult,
    *,
    lost: Sequence[LostRecords],
    pending: Mapping[SourcePartition, PendingRecords],
    scope: Scope,
) -> VerifyReport:
    """Report on a flow: `lost` are records that its ledger says are done and that no run holds."""
    flow, before = at_cut.flow, _count_proven_before(at_cut, scope)
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
    clean = {s for s in places if not places[s] & wrong}
    found = sorted(set(differences), key=lambda d: (d.where, d.topic, d.partition, d.offset))[:MAX_DIFFERENCES]
    left_out = tuple(
        LeftOutPartition(topic=tp.topic, partition=tp.partition, why=f"nobody leads it on {flow.source}")
        for tp in sorted(at_cut.source.leaderless)
        if flow.carries(tp.topic)
    )
    return VerifyReport(
        flow=flow.name,
        equal=not found and not left_out,
        partitions=tuple(_prove(at_cut, s, sending, pending, before, is_clean=s in clean) for s in sorted(places)),
        differences=tuple(found),
        explained=_count_explained(at_cut),
        left_out=left_out,
    )


def _prove(
    at_cut: FlowAtCut,
    source: SourcePartition,
    sending: HopResult,
    pending: Mapping[SourcePartition, PendingRecords],
    before: Counter[SourcePartition],
    *,
    is_clean: bool,
) -> PartitionProof:
    """Return the counts of a source partition; of one with a difference, none is verified."""
    held = at_cut.landed[source].records if source in at_cut.landed else 0
    withheld = at_cut.withheld[source].records if source in at_cut.withheld else 0
    verified = before[source] + sending.verified[FeedKey(at_cut.flow.name, source)]
    waiting = pending[source].records if source in pending else 0
    return PartitionProof(
        topic=source.topic,
        generation=source.generation,
        partition=source.partition,
        landed=held,
        republished=at_cut.sent[source],
        withheld=withheld,
        verified=verified if is_clean else 0,
        proven_before=before[source] if is_clean else 0,
        not_republished=waiting,
        # Records that were sent and have left the relay count, too.
        not_compared=max(0, max(held - withheld - waiting, at_cut.sent[source]) - verified),
    )


def _count_explained(at_cut: FlowAtCut) -> tuple[Explained, ...]:
    """Count the offsets of a flow that hold no record, by where and why."""
    counts: Counter[tuple[str, str]] = Counter()
    for topic, kinds in at_cut.source.explained.items():
        if at_cut.flow.carries(topic):
            counts += kinds
    return tuple(
        Explained(where=where, kind=kind, offsets=offsets, certainty=certainty(kind))
        for (where, kind), offsets in sorted((+counts).items())
    )


def _count_proven_before(at_cut: FlowAtCut, scope: Scope) -> Counter[SourcePartition]:
    """Count the records that earlier verifications proved and that this one did not read again."""
    if scope.full:
        return Counter()
    sent = at_cut.sent
    unproven = {FeedKey(at_cut.flow.name, s): spans for s, spans in at_cut.unproven.items() if sent[s]}
    missing = {feed.source: feed.offsets.records for feed in feeds_within(at_cut.target.cut, unproven)}
    return Counter({s: sent[s] - missing.get(s, 0) for s in at_cut.bounds if sent[s] > missing.get(s, 0)})
