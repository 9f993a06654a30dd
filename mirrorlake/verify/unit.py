"""Compare one unit: some fetched partitions of a cluster, and the feeds that lead to them.

It runs in a thread of this process or as a Spark task, and returns its result as a value.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import Fetched, Fetcher, PositionGone
from mirrorlake.lake import RelayFile
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify.content import content_of, values_of
from mirrorlake.verify.feeds import FeedTarget, FetchedPart, RelayFeed
from mirrorlake.verify.offset_columns import OffsetColumns, join_columns
from mirrorlake.verify.offset_ranges import OffsetRange, OffsetRanges
from mirrorlake.verify.relays import rows_of_files
from mirrorlake.verify.stream_comparison import Mismatch, StreamComparison, SuspectOffsets

_WAIT_S = 0.1
_AT_MOST_S = 5.0
_MAX_BYTES = 32 << 20
_MAX_RECORDS = 50_000
_STALL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSpec:
    """A feed as sent to a task; `key` is the caller's, `files` hold its rows if a task reads them."""

    key: Any
    source: SourcePartition
    offsets: OffsetColumns
    targets: tuple[FeedTarget, ...]
    files: tuple[RelayFile, ...] = ()
    removed: OffsetRanges = field(default_factory=OffsetRanges)

    @property
    def span(self) -> OffsetRange:
        """The upstream offsets to read."""
        if not len(self.offsets):
            return OffsetRange(0, 0)
        last = self.offsets.upstream + self.offsets.lengths
        return OffsetRange(int(self.offsets.upstream[0]), int(last.max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonUnit:
    """Partitions of the cluster `alias` that are compared at once, one range each, and the feeds that lead to them."""

    alias: str
    options: Mapping[str, Any]
    partitions: tuple[TopicPartition, ...]
    fetched: tuple[FetchedPart, ...]
    feeds: tuple[FeedSpec, ...]
    fed_is_source: bool

    @property
    def records(self) -> int:
        """The approximate count of compared records."""
        return sum(feed.offsets.records for feed in self.feeds)

    def clipped(self, earliest: Mapping[TopicPartition, int]) -> ComparisonUnit:
        """Return the unit without offsets that left the cluster meanwhile."""
        fetched = tuple(
            replace(one, span=OffsetRange(max(one.span.first, earliest.get(tp, one.span.end)), one.span.end))
            for tp, one in zip(self.partitions, self.fetched, strict=True)
        )
        return self.within(fetched)

    def within(self, fetched: tuple[FetchedPart, ...]) -> ComparisonUnit:
        """Return the unit limited to narrower ranges."""
        feeds = tuple(replace(feed, offsets=_within(feed, fetched)) for feed in self.feeds)
        return replace(self, fetched=fetched, feeds=feeds)


def _within(feed: FeedSpec, fetched: tuple[FetchedPart, ...]) -> OffsetColumns:
    targets = np.array([way.target for way in feed.targets])[feed.offsets.labels]
    return join_columns(
        feed.offsets.where(targets == number).downstream_within(*one.span) for number, one in enumerate(fetched)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenTarget:
    """The records of one feed found equal in one fetched partition, under one version of the rules."""

    feed: int
    target: int
    version: str | None
    is_comparable: bool
    records: int
    first: int
    last: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """The result of a unit, with digests in place of contents.

    `copies` are targets and offsets of mismatches that duplicate a record of the same partition.
    `matched` and `read` count by feed the records found equal and those read from the relay.
    """

    unit: ComparisonUnit
    mismatches: tuple[Mismatch, ...]
    beyond: int
    copies: frozenset[tuple[int, int]]
    proven: tuple[ProvenTarget, ...]
    suspects: tuple[SuspectOffsets, ...]
    explained: tuple[Counter[str], ...]
    matched: tuple[int, ...]
    read: tuple[int, ...]


Rows = Callable[[FeedSpec], Iterator[pa.RecordBatch]]
Fetching = Callable[["ComparisonUnit", Mapping[TopicPartition, OffsetRange]], AbstractContextManager["Fetches"]]
# Returns the log start offsets, or the ends, of some partitions.
Ends = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]]


def rows_of(feed: FeedSpec) -> Iterator[pa.RecordBatch]:
    """Read the rows of a feed from its files."""
    return rows_of_files(feed.files, feed.span)


class Fetches(Protocol):
    """A fetcher of a unit's cluster."""

    def fetch(self, wait_s: float, /, *, max_s: float, max_bytes: int, max_records: int) -> Fetched:
        """Return the next records (see `Fetcher.fetch`)."""


def fetch_as_consumer(unit: ComparisonUnit, spans: Mapping[TopicPartition, OffsetRange]) -> Fetcher:
    """Open a fetcher of librdkafka."""
    return Fetcher(unit.alias, unit.options, {tp: span.first for tp, span in spans.items()})


def compare_unit(
    unit: ComparisonUnit,
    *,
    rows: Rows = rows_of,
    earliest: Ends,
    latest: Ends,
    fetching: Fetching = fetch_as_consumer,
    tell: Callable[[int], None] = lambda _: None,
) -> UnitResult:
    """Fetch and compare a unit; repeat it without records that leave the cluster meanwhile.

    Raises:
        ClusterError: the cluster does not answer, or a partition does not come to its end.
    """
    for attempt in count(1):
        try:
            return _compare(unit, rows, latest, fetching, tell)
        except PositionGone as error:
            if attempt == 3:
                raise ClusterError(
                    f"{unit.alias} drops records faster than they are read: {error}",
                    consequence="they were not compared",
                    remedy="run `mirrorlake verify` again",
                ) from error
            unit = unit.clipped(earliest(unit.partitions))
    raise AssertionError


def _compare(
    unit: ComparisonUnit, rows: Rows, latest: Ends, fetching: Fetching, tell: Callable[[int], None]
) -> UnitResult:
    feeds = [
        RelayFeed(
            source=feed.source, offsets=feed.offsets, targets=feed.targets, batches=rows(feed), removed=feed.removed
        )
        for feed in unit.feeds
    ]
    merge = StreamComparison(feeds, unit.fetched, fed_is_source=unit.fed_is_source)
    numbers = {
        tp: number
        for number, (tp, one) in enumerate(zip(unit.partitions, unit.fetched, strict=True))
        if one.span.first < one.span.end
    }
    if numbers:
        _fetch(unit, merge, numbers, fetching, tell)
        _read_past_end(unit, merge, latest, fetching)
    merge.finish()
    return UnitResult(
        unit=unit,
        mismatches=tuple(replace(one, fed=_mark(one.fed), fetched=_mark(one.fetched)) for one in merge.mismatches),
        beyond=merge.beyond,
        copies=_copies(unit, merge.mismatches, rows),
        proven=tuple(
            ProvenTarget(
                feed=feed,
                target=unit.feeds[feed].targets[way].target,
                version=unit.feeds[feed].targets[way].version,
                is_comparable=unit.feeds[feed].targets[way].is_comparable,
                records=one.records,
                first=one.first,
                last=one.last,
                digest=one.digest.text(),
            )
            for (feed, way), one in sorted(merge.proven.items())
        ),
        suspects=tuple(merge.suspects),
        explained=tuple(merge.explained),
        matched=tuple(merge.matched),
        read=tuple(feed.read for feed in feeds),
    )


def _fetch(
    unit: ComparisonUnit,
    merge: StreamComparison,
    numbers: Mapping[TopicPartition, int],
    fetching: Fetching,
    tell: Callable[[int], None],
) -> None:
    for got in fetch_to_end(unit, {tp: unit.fetched[number].span for tp, number in numbers.items()}, fetching):
        before = sum(merge.matched)
        for tp, read_to in got.read_to.items():
            for part in got.rows[tp].to_batches() if tp in got.rows else ():
                merge.take(numbers[tp], part, part.column("offset")[-1].as_py() + 1)
            merge.take(numbers[tp], None, read_to)
        tell(sum(merge.matched) - before)


def _read_past_end(unit: ComparisonUnit, merge: StreamComparison, latest: Ends, fetching: Fetching) -> None:
    """Read past the end of compacted logs that lack records: records written meanwhile may have replaced these.

    The end is read after the records were missed, so whatever replaced them is before it.
    """
    if not (numbers := {unit.partitions[number]: number for number in merge.unexplained()}):
        return
    ends = latest(numbers)
    past = {tp: OffsetRange(unit.fetched[number].span.end, ends[tp]) for tp, number in numbers.items()}
    for got in fetch_to_end(unit, {tp: span for tp, span in past.items() if span.first < span.end}, fetching):
        for tp, rows in got.rows.items():
            for part in rows.to_batches():
                merge.note_survivors(numbers[tp], part)


def fetch_to_end(
    unit: ComparisonUnit, spans: Mapping[TopicPartition, OffsetRange], fetching: Fetching
) -> Iterator[Fetched]:
    """Yield fetched rows until each partition is read to the end of its range, or past it."""
    if not spans:
        return
    left, moved_at = {tp: span.end for tp, span in spans.items()}, time.monotonic()
    with fetching(unit, spans) as fetcher:
        while left:
            got = fetcher.fetch(_WAIT_S, max_s=_AT_MOST_S, max_bytes=_MAX_BYTES, max_records=_MAX_RECORDS)
            yield got
            left = {tp: end for tp, end in left.items() if got.read_to.get(tp, 0) < end}
            if got.read_to:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > _STALL_TIMEOUT_S:
                names = ", ".join(map(str, left))
                raise ClusterError(
                    f"{unit.alias}: no data from {names} for {_STALL_TIMEOUT_S:.0f} s, before their end offsets",
                    consequence="the rest was not compared",
                    remedy="run `mirrorlake doctor`, then `mirrorlake verify` again",
                )


def _mark(content: Any) -> bytes | None:
    """Return a digest of a content, so that a thousand records of a megabyte need not be kept."""
    return None if content is None else hashlib.sha256(repr(content).encode()).digest()


def _copies(unit: ComparisonUnit, found: Iterable[Mismatch], rows: Rows) -> frozenset[tuple[int, int]]:
    """Return the unexpected target records that duplicate an expected record."""
    extra: dict[Any, list[tuple[int, int]]] = {}
    for one in found:
        if one.fed is None:
            extra.setdefault(one.fetched, []).append((one.target, one.offset))
    if not extra or not unit.fed_is_source:
        return frozenset()
    times = pa.array(sorted({content[0] for content in extra}), pa.int64())
    copies: set[tuple[int, int]] = set()
    for feed in unit.feeds:
        targets = {way.target for way in feed.targets}
        for content in _with_times(feed, rows, times):
            copies |= {place for place in extra.get(content, ()) if place[0] in targets}
    return frozenset(copies)


def _with_times(feed: FeedSpec, rows: Rows, times: pa.Array) -> Iterator[Any]:
    import pyarrow.compute as pc

    views = {way.version: way.view for way in feed.targets if way.is_comparable}
    for batch in rows(feed):
        stamps = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        near = batch.filter(pc.is_in(stamps, value_set=times))
        if len(near):
            for view in views.values():
                seen = near if view is None else view(feed.source, near.select(list(near.schema.names[:5]))).records
                yield from values_of(content_of(seen))


def group_by_shared_feed(parts: Iterable[tuple[frozenset[Any], int]], max_size: int) -> list[list[int]]:
    """Group partitions that share a feed, and join small groups up to `max_size`.

    Takes the feeds that lead to each partition, and its number.

    Example:
        >>> group_by_shared_feed([(frozenset("a"), 0), (frozenset("bc"), 1), (frozenset("c"), 2)], max_size=2)
        [[1, 2], [0]]
    """
    groups: list[tuple[set[Any], list[int]]] = []
    for keys, number in parts:
        mine = [group for group in groups if group[0] & keys]
        rest = [group for group in groups if not group[0] & keys]
        joined = (set(keys).union(*(k for k, _ in mine)), [n for _, numbers in mine for n in numbers] + [number])
        groups = [*rest, joined]
    found: list[list[int]] = []
    for _, numbers in sorted(groups, key=lambda group: -len(group[1])):
        if found and len(found[-1]) + len(numbers) <= max_size:
            found[-1] += numbers
        else:
            found.append(list(numbers))
    return found
