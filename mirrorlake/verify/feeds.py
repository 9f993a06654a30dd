"""Both ends of a comparison: feeds of records in upstream order, and the partitions in which the other end holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.rules import View
from mirrorlake.verify.content import Flags, Offsets
from mirrorlake.verify.offset_columns import OffsetColumns, join_columns


class FeedKey(NamedTuple):
    """A feed: the flow that sent the records, None between a source and its relay, and the source partition."""

    flow: str | None
    source: SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTarget:
    """A fetched partition that a feed leads to, and the view of the rules that applied.

    `version` names the rules. Without a `view` they are not those of the settings, and only the presence is compared.
    """

    tp: TopicPartition
    version: str | None = None
    view: View | None = None

    @property
    def is_comparable(self) -> bool:
        return self.version is None or self.view is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Records of one source partition and where the other end holds them; the labels of `offsets` are indexes of `targets`.

    `removed` are offsets that left the relay, explained elsewhere.
    """

    key: FeedKey
    offsets: OffsetColumns
    targets: tuple[FeedTarget, ...]
    removed: Ranges = field(default_factory=Ranges)

    @classmethod
    def identity(cls, source: SourcePartition, ranges: Ranges, removed: Ranges | None = None) -> Feed:
        return cls(
            key=FeedKey(None, source),
            offsets=OffsetColumns.identity(ranges),
            targets=(FeedTarget(tp=source.tp),),
            removed=removed or Ranges(),
        )

    @property
    def source(self) -> SourcePartition:
        return self.key.source

    @property
    def span(self) -> OffsetRange:
        if not len(self.offsets):
            return OffsetRange(0, 0)
        last = self.offsets.upstream + self.offsets.lengths
        return OffsetRange(int(self.offsets.upstream[0]), int(last.max()))

    def to(self, tp: TopicPartition) -> OffsetColumns:
        return self.offsets.where(np.array([way.tp == tp for way in self.targets], np.bool_)[self.offsets.labels])

    def within(self, spans: Mapping[TopicPartition, OffsetRange]) -> Feed:
        parts = (self.to(tp).downstream_within(*span) for tp, span in spans.items())
        return replace(self, offsets=join_columns(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPart:
    """A fetched partition: its offsets and settings.

    `own` are aliases: only records whose last hop names one of them count; None counts all (the target writes none itself).
    `compacts` tells that its log may be compacted.
    """

    span: OffsetRange
    own: frozenset[str] | None = None
    compacts: bool = False


class ReadHorizons:
    """How far feeds must be read before a fetched partition can be compared up to an offset."""

    def __init__(self, feeds: Sequence[Feed], tp: TopicPartition) -> None:
        self._feeds = feeds
        self._columns: dict[int, tuple[Offsets, Offsets, Offsets, Offsets]] = {}
        for number, feed in enumerate(feeds):
            places = feed.to(tp)
            if len(places):
                order = np.argsort(places.downstream, kind="stable")
                upstream, lengths = places.upstream[order], places.lengths[order]
                reached = np.maximum.accumulate(upstream + lengths - 1)
                self._columns[number] = places.downstream[order], upstream, lengths, reached

    @property
    def feeds(self) -> Iterable[int]:
        return self._columns.keys()

    def up_to(self, horizon: int) -> Iterator[tuple[int, int]]:
        """Yield each feed with a record before a downstream offset, and the upstream offset that it must be read past."""
        for feed, (downstream, upstream, lengths, reached) in self._columns.items():
            at = int(np.searchsorted(downstream, horizon)) - 1
            if at >= 0:
                here = int(upstream[at] + min(int(lengths[at]), horizon - int(downstream[at])) - 1)
                yield feed, max(here, int(reached[at - 1]) if at else 0)

    def removed(self, offsets: Offsets) -> Flags:
        """Flag the downstream offsets whose records left the relay."""
        flags = np.zeros(len(offsets), np.bool_)
        for number, (downstream, upstream, lengths, _) in self._columns.items():
            gone = self._feeds[number].removed
            if not gone:
                continue
            at = np.searchsorted(downstream, offsets, side="right") - 1
            held = (at >= 0) & (offsets < downstream[at] + lengths[at])
            flags |= held & gone.contains(upstream[at] + offsets - downstream[at])
        return flags
