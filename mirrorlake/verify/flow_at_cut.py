"""A flow at the cut: what was landed, sent, withheld and proven of it, and what is to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import RELAY_TARGET, Lake, LandedCount, ProvenRange, RangeProof
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.remotes import known_id
from mirrorlake.verify.completeness import SendBounds, WithheldCount, count_withheld, find_send_bounds
from mirrorlake.verify.scope import KnownRanges, Scope
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.target_end import FeedSummary, TargetEnd


@dataclass(frozen=True, kw_only=True)
class FlowAtCut:
    """A flow at the cut.

    `due` are the offsets to compare with the relay; `unproven` are due without regard to the scope.
    """

    flow: FlowConfig
    source: SourceEnd
    target: TargetEnd
    bounds: Mapping[SourcePartition, SendBounds]
    feeds: Sequence[FeedSummary]
    withheld: Mapping[SourcePartition, WithheldCount]
    due: Mapping[SourcePartition, Ranges]
    unproven: Mapping[SourcePartition, Ranges]

    @cached_property
    def landed(self) -> dict[SourcePartition, LandedCount]:
        return {s: held for s, held in self.source.relay.landed.items() if self.flow.carries(s.topic)}

    @cached_property
    def sent(self) -> Counter[SourcePartition]:
        counts: Counter[SourcePartition] = Counter()
        for piece in self.feeds:
            counts[piece.key.source] += piece.records
        return counts

    def proof(self, source: SourcePartition) -> RangeProof:
        """Return the row of `proofs` of a source partition, without its range and result."""
        return RangeProof(
            kind=RELAY_TARGET,
            source=self.flow.source,
            flow=self.flow.name,
            partition=source,
            first_upstream=0,
            last_upstream=-1,
            begins_at=self.bounds[source].begins,
            how="",
            records=0,
            target_topic=self.flow.remote_topic(source.topic),
            relay_version=self.source.relay.version,
            source_topic_id=self.source.ids.get(source.topic),
            upstream_end=self.target.cut.maps.positions[self.flow.name].get(source),
        )


def read_flow_at_cut(
    flow: FlowConfig,
    ranges: Sequence[ProvenRange],
    source: SourceEnd,
    target: TargetEnd,
    *,
    lake: Lake,
    scope: Scope,
) -> FlowAtCut:
    mine = [piece for piece in target.summaries if piece.key.flow == flow.name]
    kept = count_withheld(target.cut, flow.name)
    # A source partition may have left the relay altogether.
    known = {s for s in source.relay.landed if flow.carries(s.topic)} | {piece.key.source for piece in mine}
    bounds = find_send_bounds(flow, lake, target.cut, known, mine, kept)
    remotes = target.admin.describe({flow.remote_topic(s.topic) for s in known})
    targets = {name: known_id(state.topic_id) for name, state in remotes.items()}
    proven = KnownRanges.of(ranges, RELAY_TARGET, sources=source.ids, targets=targets)
    due = {s: scope.of(flow.source, s, proven.unproven(s, one.span, scope)) for s, one in bounds.items()}
    return FlowAtCut(
        flow=flow,
        source=source,
        target=target,
        bounds=bounds,
        feeds=mine,
        withheld=kept,
        due={s: spans for s, spans in due.items() if spans},
        unproven={s: one.span - proven.proven.get(s, Ranges()) for s, one in bounds.items()},
    )
