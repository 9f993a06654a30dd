"""The input of a comparison: feeds of the relay, fetched partitions, and how far feeds must be read for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules import View
from mirrorlake.verify.content import Flags, Offsets
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import OffsetRange, OffsetRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTarget:
    """A fetched partition that a feed leads to (by number), and the view of the rules that applied.

    `version` names the rules. Without a `view` they are not those of the settings, and only the presence is compared.
    """

    target: int
    version: str | None = None
    view: View | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether the content can be computed again."""
        return self.version is None or self.view is not None


@dataclass(slots=True, kw_only=True)
class RelayFeed:
    """The relay's records of one source partition; the labels of `offsets` are indexes of `targets`.

    `removed` are offsets that left the relay, explained elsewhere.
    """

    source: SourcePartition
    offsets: OffsetColumns
    targets: Sequence[FeedTarget]
    batches: Iterator[pa.RecordBatch]
    removed: OffsetRanges = field(default_factory=OffsetRanges)
    read: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPart:
    """A fetched partition: its offsets and settings.

    `own` are aliases: only records whose last hop names one of them count; None counts all (the target writes none itself).
    `compacts` tells that its log may be compacted; `tombstones` are offsets that an erasure wrote.
    """

    span: OffsetRange
    own: frozenset[str] | None = None
    compacts: bool = False
    tombstones: OffsetRanges = field(default_factory=OffsetRanges)


class ReadHorizons:
    """How far feeds must be read before a fetched partition can be compared up to an offset."""

    def __init__(self, feeds: Sequence[RelayFeed], target: int) -> None:
        self._feeds = feeds
        self._columns: dict[int, tuple[Offsets, Offsets, Offsets, Offsets]] = {}
        for number, feed in enumerate(feeds):
            labels = np.array([way.target == target for way in feed.targets], np.bool_)
            mine = labels[feed.offsets.labels] if len(feed.offsets) else np.zeros(0, np.bool_)
            if mine.any():
                places = feed.offsets.where(mine)
                order = np.argsort(places.downstream, kind="stable")
                upstream, lengths = places.upstream[order], places.lengths[order]
                reached = np.maximum.accumulate(upstream + lengths - 1)
                self._columns[number] = places.downstream[order], upstream, lengths, reached

    @property
    def feeds(self) -> Iterable[int]:
        """The indexes of the feeds that lead to the partition."""
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
            flags |= held & within(gone, upstream[at] + offsets - downstream[at])
        return flags


def within(spans: OffsetRanges, offsets: Offsets) -> Flags:
    """Flag the offsets within some ranges.

    Example:
        >>> within(OffsetRanges([(2, 4)]), np.array([1, 2, 4])).tolist()
        [False, True, False]
    """
    if not spans:
        return np.zeros(len(offsets), np.bool_)
    firsts, ends = (np.array(side) for side in zip(*spans, strict=True))
    at = np.searchsorted(firsts, offsets, side="right") - 1
    flags: Flags = (at >= 0) & (offsets < ends[at])
    return flags
