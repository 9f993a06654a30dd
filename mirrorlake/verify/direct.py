"""Compare source and target without the relay: records that left the relay, and any on request.

The offset map still has each record. The comparison is that of relay and target, but a feed reads from the source what this still
holds. A compacted source lacks replaced records, and a lake cluster's relay is the source: neither is read so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import Fetched, PositionGone
from mirrorlake.lake import RelayFile
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify.cut import FixedCut, read_processed_offsets
from mirrorlake.verify.feeds import within
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange, OffsetRanges
from mirrorlake.verify.relays import ALL_COLUMNS, Relay
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.unit import ComparisonUnit, Fetching, fetch_to_end

T = TypeVar("T")

# Each feed has a consumer that fetches ahead, so fewer partitions are compared at once.
MAX_PARTITIONS = 4
_MAX_UNKNOWN = 1_000
_MAX_ATTEMPTS = 3


def find_before_landing(
    source: SourcePartition, began: int, left: OffsetRanges, available: OffsetRanges, *, sent_from: int = UNBOUNDED
) -> OffsetRanges:
    """Return the available offsets from before the landing, which `began` with the relay's first record.

    A flow's `start` may skip older records, which nobody has to send. Landing began no later than records that `left` the relay or
    were sent. A later generation of a topic is landed from its beginning.

    >>> find_before_landing(SourcePartition("orders", 1, 0), 70, OffsetRanges([(20, 30)]), OffsetRanges([(5, 99)]))
    OffsetRanges[5..19]
    """
    if source.generation > 1:
        return OffsetRanges()
    return available & OffsetRanges([(0, min(began, sent_from, left.first if left else UNBOUNDED))])


class SourceMoved(Exception):
    """A source deleted records while they were read; its available range must be read again."""


@dataclass(slots=True, kw_only=True)
class SourceFeed:
    """A feed that reads the range `available` at the cut from the source, and the rest from the relay.

    `processed` are offsets that the flow sent or withheld; `unknown` collects `due` offsets that it did not (law E). `erased`
    offsets count as if the source had lost them, too.
    """

    relay: Relay
    alias: str
    source: SourcePartition
    available: OffsetRange
    due: OffsetRanges
    processed: OffsetColumns
    erased: OffsetRanges
    fetched: Callable[[OffsetRange], Iterator[Fetched]]
    unknown: set[int] = field(default_factory=set)
    _read: OffsetRanges = field(default_factory=OffsetRanges)

    def files(self, source: SourcePartition, span: OffsetRange) -> tuple[RelayFile, ...]:
        """Fail: a task could not read the source by files."""
        raise AssertionError((source, span))

    def rows(self, source: SourcePartition, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in offset order."""
        parts = (
            OffsetRange(span.first, min(span.end, self.available.first)),
            OffsetRange(max(span.first, self.available.first), min(span.end, self.available.end)),
            OffsetRange(max(span.first, self.available.end), span.end),
        )
        for number, part in enumerate(parts):
            if part.first < part.end:
                yield from self._from_source(part) if number == 1 else self.relay.rows(source, part)

    def narrow(self, available: OffsetRange) -> None:
        """Start again with the range that the source still holds; deleted offsets are not due any more."""
        first = min(max(self.available.first, available.first), self.available.end)
        self.available = OffsetRange(first, max(first, min(self.available.end, available.end)))
        self.due &= OffsetRanges([self.available])
        self.unknown.clear()
        self._read = OffsetRanges()

    def rest(self) -> None:
        """Read the due offsets past the compared records, so that `unknown` is complete."""
        for span in self.due & OffsetRanges([self.available]) - self._read:
            for _ in self._from_source(span):
                pass

    def _from_source(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        tp = TopicPartition(self.source.topic, self.source.partition)
        position = span.first
        try:
            for got in self.fetched(span):
                for batch in got.rows[tp].to_batches() if tp in got.rows else ():
                    yield from self._chosen(batch, span)
                reached = max(position, got.read_to.get(tp, position))
                self._read += OffsetRanges([(position, min(reached, span.end))])
                position = reached
        except PositionGone as error:
            raise SourceMoved(f"{self.alias} deleted records of {tp} while they were compared: {error}") from error

    def _chosen(self, batch: pa.RecordBatch, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        offsets = batch.column("offset").to_numpy()
        wanted = (offsets >= span.first) & (offsets < span.end) & ~within(self.erased, offsets)
        offsets = offsets[wanted]
        if not len(offsets):
            return
        strange = within(self.due, offsets) & ~self.processed.find(offsets)[1]
        if strange.any():
            self.unknown.update(offsets[strange][: _MAX_UNKNOWN - len(self.unknown)].tolist())
        rows = batch.select(list(ALL_COLUMNS))
        yield rows if wanted.all() else rows.take(pa.array(np.flatnonzero(wanted)))


def build_source_feeds(
    flow: FlowConfig,
    wanted: Mapping[SourcePartition, OffsetRanges],
    *,
    available: Mapping[SourcePartition, OffsetRange],
    cut: FixedCut,
    source: SourceEnd,
    fetching: Fetching,
    options: Mapping[str, Any],
) -> dict[SourcePartition, SourceFeed]:
    """Make the feeds of a flow whose `wanted` offsets its source still holds."""
    nothing = ComparisonUnit(alias=flow.source, options=options, fetched={}, feeds=(), fed_is_source=True)

    def fetched(tp: TopicPartition, span: OffsetRange) -> Iterator[Fetched]:
        return fetch_to_end(nothing, {tp: span}, fetching)

    return {
        s: SourceFeed(
            relay=source.relay,
            alias=flow.source,
            source=s,
            available=span,
            due=due,
            processed=read_processed_offsets(flow.name, s, cut),
            erased=source.erased.get(s, OffsetRanges()),
            fetched=partial(fetched, TopicPartition(s.topic, s.partition)),
        )
        for s, span in available.items()
        if (due := wanted[s] & OffsetRanges([span]))
    }


def compare_while_deleted(
    compare: Callable[[], T],
    feeds: Collection[SourceFeed],
    read_available: Callable[[], Mapping[tuple[str, SourcePartition], OffsetRange]],
) -> T:
    """Compare feeds of sources; start again without records that these delete meanwhile.

    Law E: a record that was deleted before it was read is not compared, and never called equal. `read_available` returns the ranges
    that sources still hold, by alias and source partition.

    Raises:
        ClusterError: a cluster does not answer, or deletes records faster than they are read.
    """
    for attempt in count(1):
        try:
            found = compare()
            for feed in feeds:
                feed.rest()
        except SourceMoved as moved:
            if attempt == _MAX_ATTEMPTS:
                raise ClusterError(
                    f"records leave their source faster than they are read: {moved}",
                    consequence="nothing of this verification was written down",
                    remedy="run `mirrorlake verify` again",
                ) from moved
            held = read_available()
            for feed in feeds:
                feed.narrow(held.get((feed.alias, feed.source), OffsetRange(UNBOUNDED, UNBOUNDED)))
        else:
            return found
    raise AssertionError
