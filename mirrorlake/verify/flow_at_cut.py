"""A flow at the cut: what was landed, sent, withheld and proven of it, and what is to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lake import RELAY_TARGET, SOURCE_TARGET, ProvenRange, RangeProof
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.remotes import known_id
from mirrorlake.verify.completeness import (
    SendBounds,
    WithheldCount,
    count_withheld,
    find_first_offsets,
    find_send_bounds,
)
from mirrorlake.verify.direct import SourceFeed, build_source_feeds, find_before_landing
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRanges
from mirrorlake.verify.relays import LandedCount
from mirrorlake.verify.scope import KnownRanges, Scope
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.target_end import FeedSummary, TargetEnd
from mirrorlake.verify.unit import Fetching

# The fetching of one source, chosen when it is read.
ChooseFetching = Callable[[str], Fetching]


@dataclass(frozen=True, kw_only=True)
class FlowAtCut:
    """A flow at the cut.

    `due` are the offsets to compare with the relay, those in `directly` are compared with the source; `unproven` are due without
    regard to the scope. `before_landing` counts offsets that the source holds from before it was landed.
    """

    flow: FlowConfig
    source: SourceEnd
    target: TargetEnd
    bounds: Mapping[SourcePartition, SendBounds]
    feeds: Sequence[FeedSummary]
    withheld: Mapping[SourcePartition, WithheldCount]
    due: Mapping[SourcePartition, OffsetRanges]
    unproven: Mapping[SourcePartition, OffsetRanges]
    directly: Mapping[SourcePartition, SourceFeed]
    before_landing: int

    @cached_property
    def landed(self) -> dict[SourcePartition, LandedCount]:
        """The records that were landed."""
        return {s: held for s, held in self.source.relay.landed.items() if self.flow.carries(s.topic)}

    @cached_property
    def sent(self) -> Counter[SourcePartition]:
        """Count the records that were sent."""
        counts: Counter[SourcePartition] = Counter()
        for piece in self.feeds:
            counts[piece.key.source] += piece.records
        return counts

    def proof(self, source: SourcePartition, *, kind: str = RELAY_TARGET) -> RangeProof:
        """Return the row of `proofs` of a source partition, without its range and result."""
        return RangeProof(
            kind=kind,
            source=self.flow.source,
            flow=self.flow.name,
            partition=source,
            first_upstream=0,
            last_upstream=-1,
            begins_at=self.bounds[source].begins,
            how="",
            records=0,
            target_topic=self.flow.remote_topic(source.topic),
            relay_version=None if kind == SOURCE_TARGET else self.source.relay.version,
            source_topic_id=self.source.ids.get(source.topic),
            upstream_end=self.target.cut.maps.positions[self.flow.name].get(source),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutReader:
    """Read flows at the cut; with `direct` all that a source still holds is compared with the target."""

    context: Context
    scope: Scope
    direct: bool
    fetching_at: ChooseFetching

    def read(self, flow: FlowConfig, ranges: Sequence[ProvenRange], source: SourceEnd, target: TargetEnd) -> FlowAtCut:
        """Read one flow, of which `ranges` are proven."""
        mine = [piece for piece in target.summaries if piece.key.flow == flow.name]
        kept = count_withheld(target.cut, flow.name)
        # A source partition may have left the relay altogether.
        known = {s for s in source.relay.landed if flow.carries(s.topic)} | {piece.key.source for piece in mine}
        bounds = find_send_bounds(flow, self.context.lake, target.cut, known, mine, kept)
        ids = _target_ids(flow, known, target)

        def unproven(*kinds: str) -> tuple[KnownRanges, dict[SourcePartition, OffsetRanges]]:
            proven = KnownRanges.of(ranges, kinds, sources=source.ids, targets=ids)
            left = {s: proven.unproven(s, one.span, self.scope) for s, one in bounds.items()}
            return proven, {s: self.scope.of(flow.source, s, spans) for s, spans in left.items()}

        proven, due = unproven(RELAY_TARGET, SOURCE_TARGET)
        left = {s: one.span - proven.proven.get(s, OffsetRanges()) for s, one in bounds.items()}
        firsts = find_first_offsets(mine, kept)
        wanted = unproven(SOURCE_TARGET)[1] if self.direct else _left_relay(source, due)
        directly, before_landing = self._choose_source_feeds(flow, wanted, firsts, source, target)
        for s, feed in directly.items():
            due[s] -= feed.due
            left[s] += feed.due
        return FlowAtCut(
            flow=flow,
            source=source,
            target=target,
            bounds=bounds,
            feeds=mine,
            withheld=kept,
            due={s: spans for s, spans in due.items() if spans},
            unproven=left,
            directly=directly,
            before_landing=before_landing,
        )

    def _choose_source_feeds(
        self,
        flow: FlowConfig,
        wanted: Mapping[SourcePartition, OffsetRanges],
        firsts: Mapping[SourcePartition, int],
        source: SourceEnd,
        target: TargetEnd,
    ) -> tuple[dict[SourcePartition, SourceFeed], int]:
        """Build feeds that read the source itself, and count its records from before the landing."""
        if not source.is_asked:
            return {}, 0
        removed, landed = source.removed, source.relay.landed
        # Records that left the relay before the flow began were never its own.
        early = {s: removed.get(s, OffsetRanges()) & OffsetRanges([(0, firsts.get(s, UNBOUNDED))]) for s in wanted}
        wanted = {s: left for s, spans in wanted.items() if (left := spans - early[s])}
        if not wanted:
            return {}, 0
        held, before = source.available_ranges(wanted), 0
        for s in held.keys() & landed.keys():
            there, left = wanted[s] & OffsetRanges([held[s]]), removed.get(s, OffsetRanges())
            past = find_before_landing(s, landed[s].first, left, there, sent_from=firsts.get(s, UNBOUNDED))
            wanted[s] -= past
            before += past.size
        feeds = build_source_feeds(
            flow,
            wanted,
            available=held,
            cut=target.cut,
            source=source,
            fetching=self.fetching_at(flow.source),
            options=self.context.reader_options(flow.source),
        )
        return feeds, before


def _target_ids(flow: FlowConfig, known: Iterable[SourcePartition], target: TargetEnd) -> dict[str, str]:
    remotes = {flow.remote_topic(topic) for topic in {s.topic for s in known}}
    return {name: known_id(state.topic_id) for name, state in target.admin.describe(remotes).items()}


def _left_relay(source: SourceEnd, due: Mapping[SourcePartition, OffsetRanges]) -> dict[SourcePartition, OffsetRanges]:
    """Return the due offsets up to the last one that left the relay without an erasure."""
    nothing = OffsetRanges()
    expired = {s: source.removed.get(s, nothing) - source.erased.get(s, nothing) for s in due}
    return {s: spans & OffsetRanges([(0, expired[s].end)]) for s, spans in due.items() if expired[s]}
