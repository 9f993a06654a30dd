"""A target and the flows into it, with their mapped ranges by feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from mirrorlake.lake import RELAY_TARGET, SOURCE_TARGET, Tombstones
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.rules import View
from mirrorlake.verify.comparison_results import HopResult
from mirrorlake.verify.cut import FixedCut
from mirrorlake.verify.direct import SourceFeed
from mirrorlake.verify.offset_ranges import OffsetRanges
from mirrorlake.verify.relays import Relay, Relays


class FeedKey(NamedTuple):
    """A feed of a target: the flow, and its source partition."""

    flow: str
    source: SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSummary:
    """Mapped records of one flow between two partitions: count, and first offset on both sides; `end` is downstream."""

    key: FeedKey
    target: TopicPartition
    records: int
    first_upstream: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSide:
    """A target and the flows into it; `due` holds the offsets to prove of each feed of the `chosen` flows, from `begins`.

    Feeds in `directly` are read from their sources.
    """

    alias: str
    cut: FixedCut
    relays: Relays
    views: Mapping[str, View]
    summaries: Sequence[FeedSummary]
    due: Mapping[FeedKey, OffsetRanges]
    begins: Mapping[FeedKey, int]
    chosen: frozenset[str]
    removed: Mapping[str, Mapping[SourcePartition, OffsetRanges]]
    source_ids: Mapping[str, Mapping[str, str]]
    tombstones: Sequence[Tombstones] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    directly: Mapping[FeedKey, SourceFeed] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the proofs."""
        return SOURCE_TARGET if self.directly else RELAY_TARGET

    def relay_of(self, key: FeedKey) -> Relay:
        """Return the origin of a feed's rows: the source itself, or its relay."""
        return self.directly.get(key) or self.relays[self.source(key.flow)]

    def removed_of(self, key: FeedKey) -> OffsetRanges:
        """Return the offsets that neither relay nor source holds any more; each is explained elsewhere."""
        removed = self.removed.get(self.source(key.flow), {}).get(key.source, OffsetRanges())
        one = self.directly.get(key)
        return removed if one is None else removed - (OffsetRanges([one.available]) - one.erased)

    def source(self, flow: str) -> str:
        """Return the alias of a flow's source."""
        return self.cut.flows[flow].source


@dataclass(slots=True)
class TargetResult(HopResult):
    """The result of the second hop; `verified` counts the due records of each feed that were found equal.

    `directly` counts those compared with the source itself.
    """

    verified: Counter[FeedKey] = field(default_factory=Counter)
    directly: Counter[FeedKey] = field(default_factory=Counter)

    def join_direct(self, other: TargetResult) -> None:
        """Add the result of a comparison with the source."""
        self.differences += other.differences
        self.proofs += other.proofs
        self.explained += other.explained
        self.beyond += other.beyond
        self.verified += other.verified
        self.directly += other.verified


def summarize_feeds(cut: FixedCut, remotes: Iterable[str]) -> list[FeedSummary]:
    """Sum up the mapped ranges into some remote topics."""
    rows = cut.maps.ask(
        "SELECT flow, source_topic, generation, source_partition, target_topic, target_partition, "
        "sum(record_count) AS records, min(first_upstream) AS first_upstream, min(first_downstream) AS first, "
        "max(first_downstream + record_count) AS end_at FROM {runs} WHERE array_contains(:remotes, target_topic) "
        "GROUP BY flow, source_topic, generation, source_partition, target_topic, target_partition",
        remotes=sorted(remotes),
    )
    return [
        FeedSummary(
            key=FeedKey(row.flow, SourcePartition(row.source_topic, row.generation, row.source_partition)),
            target=TopicPartition(row.target_topic, row.target_partition),
            records=int(row.records),
            first_upstream=int(row.first_upstream),
            first=int(row.first),
            end=int(row.end_at),
        )
        for row in rows
    ]


def find_last_ends(side: TargetSide) -> dict[TopicPartition, int]:
    """Return the end of the last mapped record of any flow, by target partition."""
    found: dict[TopicPartition, int] = {}
    for piece in side.summaries:
        found[piece.target] = max(found.get(piece.target, 0), piece.end)
    return found


def by_feed(runs: pa.Table) -> Iterable[tuple[FeedKey, pa.Table]]:
    """Split mapped ranges by flow and source partition."""
    names = ("flow", "source_topic", "generation", "source_partition")
    columns = [runs.column(name).to_pylist() for name in names]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        rows.setdefault(key, []).append(row)
    for (flow, *source), at in rows.items():
        yield FeedKey(flow, SourcePartition(*source)), runs.take(pa.array(at))


def targets_of(runs: pa.Table) -> Iterable[tuple[str, int]]:
    """Return the target topic and partition of each mapped range."""
    return zip(runs.column("target_topic").to_pylist(), runs.column("target_partition").to_pylist(), strict=True)
