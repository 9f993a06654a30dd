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
    sending: Sequence[HopResult],
    *,
    lost: Sequence[LostRecords],
    pending: Mapping[SourcePartition, PendingRecords],
    scope: Scope,
) -> VerifyReport:
    """Report on a flow.

    Args:
        at_cut: what was landed, sent and proven of it at the cut.
        landing: the result between its source and the relay.
        sending: the results between the relay and its target, and between the source and its target.
        lost: records that its ledger says are done and that no run holds.
        pending: records that it has not come to.
        scope: what was to be compared.
    """
    flow, sent, before = at_cut.flow, at_cut.sent, _count_proven_before(at_cut, scope)
    places: dict[SourcePartition, set[tuple[str, int]]] = {s: {(s.topic, s.partition)} for s in at_cut.landed}
    for piece in at_cut.feeds:
        places.setdefault(piece.key.source, set()).add((piece.target.topic, piece.target.partition))
    remotes = {flow.remote_topic(s.topic) for s in places}
    differences = [d for d in landing.differences if flow.carries(d.topic)]
    differences += [d for hop in sending for d in hop.differences if d.topic in remotes]
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
        verified = before[s] + sum(hop.verified[FeedKey(flow.name, s)] for hop in sending)
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
        for tp in sorted(at_cut.source.leaderless)
        if flow.carries(tp.topic)
    )
    return VerifyReport(
        flow=flow.name,
        equal=not found and not left_out,
        partitions=tuple(partitions),
        differences=tuple(found),
        explained=_count_explained(at_cut),
        left_out=left_out,
        direct=sum(hop.verified[FeedKey(flow.name, s)] for hop in sending[1:] for s in places if not places[s] & wrong),
    )


def _count_explained(at_cut: FlowAtCut) -> tuple[Explained, ...]:
    """Count the offsets of a flow that hold no record, by where and why."""
    counts: Counter[tuple[str, str]] = Counter()
    for topic, kinds in at_cut.source.explained.items():
        if at_cut.flow.carries(topic):
            counts += kinds
    mine = (one.records for one in at_cut.target.tombstones if one.flow == at_cut.flow.name)
    counts["target", "tombstone"] += sum(mine)
    counts["source", "before_landing"] = at_cut.before_landing
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
