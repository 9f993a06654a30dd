"""Compare source and target without the relay: records that left the relay, and any on request.

The offset map still has each record. The comparison is that of relay and target, but a feed reads from the source what this still
holds. A compacted source lacks replaced records, and a lake cluster's relay is the source: neither is read so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, Fetched, PositionGone
from mirrorlake.lake import KnownTopic, RelayFile
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify.content import Offsets
from mirrorlake.verify.cut import FixedCut, read_sent_offsets, read_withheld_offsets
from mirrorlake.verify.feeds import within
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange, OffsetRanges
from mirrorlake.verify.relays import ALL_COLUMNS, LandedCount, Relay
from mirrorlake.verify.source_side import SourceSide, compacts, read_log_ranges
from mirrorlake.verify.unit import ComparisonUnit, Fetching, fetch_to_end

# Each feed has a consumer that fetches ahead, so fewer partitions are compared at once.
MAX_PARTITIONS = 4
_MAX_UNKNOWN = 1_000


def read_available_ranges(
    admin: ClusterAdmin,
    recorded: Mapping[str, KnownTopic],
    sources: Iterable[SourcePartition],
    *,
    default_cleanup: str,
) -> dict[SourcePartition, OffsetRange]:
    """Return the ranges that a source still holds complete, of the newest generation of some partitions.

    Before a truncation a log's offsets are of an earlier generation. `default_cleanup` is the policy of topics that set none.

    Raises:
        ClusterError: the source does not answer.
    """
    ids = {name: topic.topic_id for name, topic in recorded.items()}
    living = [
        source
        for source in sources
        if (topic := recorded.get(source.topic)) is not None
        and topic.generation_of(source.partition) == source.generation
        and not compacts(topic, default_cleanup)
    ]
    there = read_log_ranges(admin, ids, living) if living else {}
    return {
        source: OffsetRange(max(span.first, recorded[source.topic].starts_at(source.partition)), span.end)
        for source, span in there.items()
    }


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


def topics_compared_by_relay(side: SourceSide) -> frozenset[str]:
    """Return the compacted topics, which are compared by the relay on both hops (law E)."""
    return frozenset(name for name in side.topics if compacts(side.recorded.get(name), side.default_cleanup))


class SourceMoved(Exception):
    """A source deleted records while they were read; its available range must be read again."""


@dataclass(slots=True, kw_only=True)
class SourceFeed:
    """A feed that reads the range `available` at the cut from the source, and the rest from the relay.

    `sent` and `withheld` are offsets that the flow processed; `unknown` collects `due` offsets that it did not (law E). `erased`
    offsets count as if the source had lost them, too.
    """

    relay: Relay
    version: int
    alias: str
    source: SourcePartition
    available: OffsetRange
    due: OffsetRanges
    sent: OffsetColumns
    withheld: OffsetColumns
    erased: OffsetRanges
    fetched: Callable[[OffsetRange], Iterator[Fetched]]
    has_files: bool = False
    unknown: set[int] = field(default_factory=set)
    _read: OffsetRanges = field(default_factory=OffsetRanges)

    @property
    def landed(self) -> Mapping[SourcePartition, LandedCount]:
        """The records of the relay by source partition."""
        return self.relay.landed

    def offsets(self, source: SourcePartition, span: OffsetRange) -> Offsets:
        """Read the relay's offsets in a range."""
        return self.relay.offsets(source, span)

    def count(self, source: SourcePartition, span: OffsetRange) -> int:
        """Count the relay's records in a range."""
        return self.relay.count(source, span)

    def files(self, source: SourcePartition, span: OffsetRange) -> tuple[RelayFile, ...]:
        """Fail: a task could not read the source by files."""
        raise AssertionError((source, span))

    def doubled(self) -> Iterable[SourcePartition]:
        """List the partitions that the relay holds records of more than once."""
        return self.relay.doubled()

    def find_doubles(self, source: SourcePartition, span: OffsetRange, records: int) -> Sequence[int]:  # noqa: ARG002
        """Return none, because a log holds each offset once."""
        return ()

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
        strange = within(self.due, offsets) & ~self.sent.find(offsets)[1] & ~self.withheld.find(offsets)[1]
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
    relay: Relay,
    erased: Mapping[SourcePartition, OffsetRanges],
    fetching: Fetching,
    options: Mapping[str, Any],
) -> dict[SourcePartition, SourceFeed]:
    """Make the feeds of a flow whose `wanted` offsets its source still holds."""

    def fetched(source: SourcePartition, span: OffsetRange) -> Iterator[Fetched]:
        tp = TopicPartition(source.topic, source.partition)
        unit = ComparisonUnit(
            alias=flow.source, options=options, partitions=(tp,), fetched=(), feeds=(), fed_is_source=True
        )
        return fetch_to_end(unit, {tp: span}, fetching)

    return {
        source: SourceFeed(
            relay=relay,
            version=relay.version,
            alias=flow.source,
            source=source,
            available=span,
            due=due,
            sent=read_sent_offsets(flow.name, source, cut),
            withheld=read_withheld_offsets(flow.name, source, cut),
            erased=erased.get(source, OffsetRanges()),
            fetched=partial(fetched, source),
        )
        for source, span in available.items()
        if (due := wanted[source] & OffsetRanges([span]))
    }
