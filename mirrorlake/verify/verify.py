"""Verify that source, relay and target hold the same records, by count and content, and name every difference.

Flows may go on running, because a fixed cut is compared (`verify/cut.py`). The table `proofs` keeps proven ranges, which are not
read again. Both ends are ordered streams, so no query runs: one process reads each record once a hop.

Law E (accounted for): a record that was not compared is never called equal. Landed records that were not republished are
differences, and so are duplicates in the relay.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

import numpy as np

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lake import SOURCE_RELAY, FixedRelay, ProofCache, ProvenRange, RangeProof
from mirrorlake.model.verify import MAX_DIFFERENCES, Difference, VerifyReport
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.rules import View
from mirrorlake.verify.completeness import find_lost_and_pending, wait_for_pending
from mirrorlake.verify.flow_at_cut import FlowAtCut, read_flow_at_cut
from mirrorlake.verify.flow_report import build_flow_report
from mirrorlake.verify.hop import HopResult, compare_hop
from mirrorlake.verify.scope import KnownRanges, Scope
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.source_hop import compare_dense_offsets, source_hop
from mirrorlake.verify.target_end import TargetEnd, summarize_feeds
from mirrorlake.verify.target_hop import target_hop

_LANDING, _SENDING = "verify: source and relay", "verify: relay and target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    reports: tuple[VerifyReport, ...]
    proofs: tuple[RangeProof, ...]


@dataclass(eq=False, repr=False)
class Verifier:
    """Compare flows at a cut; the relays were read after it.

    `sources` are those of all flows into the targets, not only of `flows`. `waits` gives a running flow time to send its
    pending records.
    """

    context: Context
    flows: Sequence[FlowConfig]
    _: KW_ONLY
    proofs: ProofCache
    sources: Mapping[str, SourceEnd]
    targets: Mapping[str, TargetEnd]
    views: Mapping[str, View]
    scope: Scope
    waits: bool = True
    tell: ProgressCallback = ignore_progress

    def run(self) -> Verification:
        ranges = {flow.name: self.proofs.read(flow) for flow in self.flows}
        for alias in {flow.source for flow in self.flows}:
            end, carried = self.sources[alias], [flow for flow in self.flows if flow.source == alias]
            topics = {source.topic for source in end.relay.landed}
            end.find_leaderless(topic for topic in topics if any(flow.carries(topic) for flow in carried))
        targets = {flow.target: self._summarized(flow.target) for flow in self.flows}
        stands = [
            read_flow_at_cut(
                flow,
                ranges[flow.name],
                self.sources[flow.source],
                targets[flow.target],
                lake=self.context.lake,
                scope=self.scope,
            )
            for flow in self.flows
        ]
        progress = _Progress(stands, self.tell)
        landing = {
            alias: self._compare_landing([stand for stand in stands if stand.source.alias == alias], ranges, progress)
            for alias in sorted({flow.source for flow in self.flows})
        }
        sending = {
            name: compare_hop(
                target_hop(
                    target, [one for one in stands if one.target is target], self.sources, self.views, self.scope
                ),
                self.scope,
                partial(progress.add, _SENDING),
            )
            for name, target in sorted(targets.items())
        }
        proofs = [proof for hop in (*landing.values(), *sending.values()) for proof in hop.proofs]
        reports = []
        for stand in stands:
            report, lost = self._report(stand, landing[stand.flow.source], sending[stand.flow.target])
            reports.append(report)
            proofs += lost
        progress.end()
        return Verification(reports=tuple(reports), proofs=tuple(proofs))

    def _summarized(self, target: str) -> TargetEnd:
        remotes = {
            flow.remote_topic(source.topic)
            for flow in self.flows
            if flow.target == target
            for source in self.sources[flow.source].relay.landed
            if flow.carries(source.topic)
        }
        end = self.targets[target]
        return replace(end, summaries=summarize_feeds(end.cut, remotes)) if remotes else end

    def _compare_landing(
        self, stands: Sequence[FlowAtCut], ranges: Mapping[str, Sequence[ProvenRange]], progress: _Progress
    ) -> HopResult:
        end = stands[0].source
        # Proofs of this hop are the same for every flow from the source.
        known = KnownRanges.of(ranges[stands[0].flow.name], SOURCE_RELAY, sources=end.ids, targets={})
        topics = {s.topic for stand in stands for s in stand.landed}
        if end.is_lake:
            found = compare_dense_offsets(end, topics, known, self.scope)
        elif end.is_lost or not topics:
            found = HopResult()
        else:
            admin, options = self.context.admin(end.alias), self.context.reader_options(end.alias)
            hop = source_hop(end, topics, known, self.scope, admin, options)
            found = compare_hop(hop, self.scope, partial(progress.add, _LANDING))
        found.differences += _list_doubled(end.relay, topics)
        return found

    def _report(
        self, stand: FlowAtCut, landing: HopResult, sending: HopResult
    ) -> tuple[VerifyReport, list[RangeProof]]:
        flow, relay, sent = stand.flow, stand.source.relay, stand.sent
        mapped = {s: sent[s] + (stand.withheld[s].records if s in stand.withheld else 0) for s in stand.bounds}
        lost, pending = find_lost_and_pending(
            flow.name, relay, stand.bounds, stand.target.cut, mapped, stand.source.removed, stand.unproven
        )
        if self.waits:
            pending = wait_for_pending(relay, pending, flow, self.context)
        report = build_flow_report(stand, landing, sending, lost=lost, pending=pending, scope=self.scope)
        return report, [
            replace(
                stand.proof(one.source),
                first_upstream=one.span.first,
                last_upstream=one.span.end - 1,
                how="different",
                upstream_end=stand.bounds[one.source].position,
            )
            for one in lost
        ]


class _Progress:
    """How many records of each hop were compared, of all that its flows have; proven ones count, as in the report."""

    def __init__(self, stands: Sequence[FlowAtCut], tell: ProgressCallback) -> None:
        landed = {(stand.flow.source, s): held.records for stand in stands for s, held in stand.landed.items()}
        self._whole = {_LANDING: sum(landed.values()), _SENDING: sum(stand.sent.total() for stand in stands)}
        self._tell = tell
        self._done: Counter[str] = Counter()
        self._lock = threading.Lock()
        for phase, whole in self._whole.items():
            tell(phase, 0, whole)

    def add(self, phase: str, records: int) -> None:
        with self._lock:
            self._done[phase] = min(self._whole[phase], self._done[phase] + records)
            self._tell(phase, self._done[phase], self._whole[phase])

    def end(self) -> None:
        for phase, whole in self._whole.items():
            self._tell(phase, whole, whole)


def _list_doubled(relay: FixedRelay, topics: Collection[str]) -> list[Difference]:
    """List the records of some topics that a relay holds more than once."""
    found: list[Difference] = []
    for source, held in sorted(relay.landed.items()):
        if source.topic not in topics or held.rows == held.records:
            continue
        offsets, copies = np.unique(relay.offsets(source, held.span), return_counts=True)
        found += [
            Difference.at(source, int(offsets[at]), where="relay", problem="doubled", records=int(copies[at]))
            for at in np.flatnonzero(copies > 1)[: max(0, MAX_DIFFERENCES - len(found))]
        ]
    return found
