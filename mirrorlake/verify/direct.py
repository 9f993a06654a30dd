"""Source against target without the relay between them: of records that left the relay, and of any on request.

The map still says where each record stands. So the comparison is that of relay and target, but a feed reads from the source what
the source still holds. A compacted source lacks what it replaced, and a lake cluster's relay is the source: neither is read so.
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
from mirrorlake.verify.cut import FixedCut, kept_places, sent_places
from mirrorlake.verify.feeds import within
from mirrorlake.verify.places import Places
from mirrorlake.verify.relays import ALL_COLUMNS, LandedCount, Relay
from mirrorlake.verify.source_side import SourceSide, compacts, still_held
from mirrorlake.verify.spans import EVER, OffsetSpan, Spans
from mirrorlake.verify.unit import Fetching, Unit, fetch_to_end

# A consumer a feed, and each fetches ahead: fewer partitions at once than where one consumer reads them all.
TOGETHER = 4
_MOST_UNKNOWN = 1_000


def held_at_source(
    admin: ClusterAdmin,
    recorded: Mapping[str, KnownTopic],
    sources: Iterable[SourcePartition],
    *,
    default_cleanup: str,
) -> dict[SourcePartition, OffsetSpan]:
    """Find what a source still holds whole of the newest lives of some partitions.

    Where a log went back, what it holds from before the cut belongs to an earlier life. `default_cleanup` is the policy of topics
    that set none themselves.

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
    there = still_held(admin, ids, living) if living else {}
    return {
        source: OffsetSpan(max(span.first, recorded[source.topic].starts_at(source.partition)), span.end)
        for source, span in there.items()
    }


def before_landing(source: SourcePartition, began: int, left: Spans, held: Spans, *, sent_from: int = EVER) -> Spans:
    """Choose from what the source holds what precedes the landing, which `began` with the relay's first record.

    That is a landing that left the past out for a flow's `start`; nobody was to send it. Where records `left` the relay, or were
    sent, it had begun with them at the latest. A later life of a topic is landed from its beginning.

    >>> before_landing(SourcePartition("orders", 1, 0), 70, Spans([(20, 30)]), Spans([(5, 99)]))
    Spans[5..19]
    """
    if source.generation > 1:
        return Spans()
    return held & Spans([(0, min(began, sent_from, left.first if left else EVER))])


def by_the_relay(side: SourceSide) -> frozenset[str]:
    """Choose the topics that the source holds and that are compared by the relay all the same: both hops of them (law E)."""
    return frozenset(name for name in side.topics if compacts(side.recorded.get(name), side.default_cleanup))


class SourceMoved(Exception):
    """A source deleted records while they were read: what it holds is to be looked at again."""


@dataclass(slots=True, kw_only=True)
class SourceFeed:
    """A feed that reads from the source what it `held` at the cut, and the rest from the relay.

    `sent` and `kept` are what the flow knows of its records; `unknown` collects the `due` ones that it knows nothing of (law E).
    `erased` ones count as if the source had lost them, too.
    """

    relay: Relay
    version: int
    alias: str
    source: SourcePartition
    held: OffsetSpan
    due: Spans
    sent: Places
    kept: Places
    erased: Spans
    fetched: Callable[[OffsetSpan], Iterator[Fetched]]
    has_files: bool = False
    unknown: set[int] = field(default_factory=set)
    _read: Spans = field(default_factory=Spans)

    @property
    def landed(self) -> Mapping[SourcePartition, LandedCount]:
        """Count what the relay holds."""
        return self.relay.landed

    def offsets(self, source: SourcePartition, span: OffsetSpan) -> Offsets:
        """Read the relay's offsets in a range."""
        return self.relay.offsets(source, span)

    def count(self, source: SourcePartition, span: OffsetSpan) -> int:
        """Count the relay's records in a range."""
        return self.relay.count(source, span)

    def files(self, source: SourcePartition, span: OffsetSpan) -> tuple[RelayFile, ...]:
        """List no files: a task could not read the source by them."""
        raise AssertionError((source, span))

    def doubled(self) -> Iterable[SourcePartition]:
        """List the partitions that the relay holds records of more than once."""
        return self.relay.doubled()

    def gave(self, source: SourcePartition, span: OffsetSpan, records: int) -> Sequence[int]:  # noqa: ARG002
        """Learn nothing: a log holds each offset once."""
        return ()

    def rows(self, source: SourcePartition, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in offset order."""
        parts = (
            OffsetSpan(span.first, min(span.end, self.held.first)),
            OffsetSpan(max(span.first, self.held.first), min(span.end, self.held.end)),
            OffsetSpan(max(span.first, self.held.end), span.end),
        )
        for number, part in enumerate(parts):
            if part.first < part.end:
                yield from self._from_source(part) if number == 1 else self.relay.rows(source, part)

    def narrow(self, held: OffsetSpan) -> None:
        """Begin again with what the source still holds; what it has deleted meanwhile is not due here any more."""
        first = min(max(self.held.first, held.first), self.held.end)
        self.held = OffsetSpan(first, max(first, min(self.held.end, held.end)))
        self.due &= Spans([self.held])
        self.unknown.clear()
        self._read = Spans()

    def rest(self) -> None:
        """Read what is due and lies past the records that were compared: none of it may be unknown."""
        for span in self.due & Spans([self.held]) - self._read:
            for _ in self._from_source(span):
                pass

    def _from_source(self, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        tp = TopicPartition(self.source.topic, self.source.partition)
        position = span.first
        try:
            for got in self.fetched(span):
                for batch in got.rows[tp].to_batches() if tp in got.rows else ():
                    yield from self._chosen(batch, span)
                reached = max(position, got.read_to.get(tp, position))
                self._read += Spans([(position, min(reached, span.end))])
                position = reached
        except PositionGone as error:
            raise SourceMoved(f"{self.alias} deleted records of {tp} while they were compared: {error}") from error

    def _chosen(self, batch: pa.RecordBatch, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        offsets = batch.column("offset").to_numpy()
        wanted = (offsets >= span.first) & (offsets < span.end) & ~within(self.erased, offsets)
        offsets = offsets[wanted]
        if not len(offsets):
            return
        strange = within(self.due, offsets) & ~self.sent.find(offsets)[1] & ~self.kept.find(offsets)[1]
        if strange.any():
            self.unknown.update(offsets[strange][: _MOST_UNKNOWN - len(self.unknown)].tolist())
        rows = batch.select(list(ALL_COLUMNS))
        yield rows if wanted.all() else rows.take(pa.array(np.flatnonzero(wanted)))


def source_feeds(
    flow: FlowConfig,
    wanted: Mapping[SourcePartition, Spans],
    *,
    held: Mapping[SourcePartition, OffsetSpan],
    cut: FixedCut,
    relay: Relay,
    erased: Mapping[SourcePartition, Spans],
    fetching: Fetching,
    options: Mapping[str, Any],
) -> dict[SourcePartition, SourceFeed]:
    """Make the feeds of a flow whose `wanted` offsets its source still holds."""

    def fetched(source: SourcePartition, span: OffsetSpan) -> Iterator[Fetched]:
        tp = TopicPartition(source.topic, source.partition)
        unit = Unit(alias=flow.source, options=options, partitions=(tp,), fetched=(), feeds=(), fed_is_source=True)
        return fetch_to_end(unit, {tp: span}, fetching)

    return {
        source: SourceFeed(
            relay=relay,
            version=relay.version,
            alias=flow.source,
            source=source,
            held=span,
            due=due,
            sent=sent_places(flow.name, source, cut),
            kept=kept_places(flow.name, source, cut),
            erased=erased.get(source, Spans()),
            fetched=partial(fetched, source),
        )
        for source, span in held.items()
        if (due := wanted[source] & Spans([span]))
    }
