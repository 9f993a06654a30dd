"""Compare one unit: some fetched partitions of a cluster, and the feeds that lead to them.

It runs in a thread of its own, and returns its result as a value.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import Fetched, Fetcher, PositionGone
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ranges import OffsetRange
from mirrorlake.verify.content import content_of, values_of
from mirrorlake.verify.feeds import Feed, FeedKey, FetchedPart
from mirrorlake.verify.stream_comparison import EqualRecords, FeedResult, Mismatch, Rows, StreamComparison

_WAIT_S = 0.1
_AT_MOST_S = 5.0
_MAX_BYTES = 32 << 20
_MAX_RECORDS = 50_000
_STALL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonUnit:
    """Partitions of the cluster `alias` that are compared at once, one range each, and the feeds that lead to them."""

    alias: str
    options: Mapping[str, Any]
    fetched: Mapping[TopicPartition, FetchedPart]
    feeds: tuple[Feed, ...]
    fed_is_source: bool

    @property
    def spans(self) -> dict[TopicPartition, OffsetRange]:
        return {tp: one.span for tp, one in self.fetched.items()}

    def clipped(self, earliest: Mapping[TopicPartition, int]) -> ComparisonUnit:
        firsts = {tp: max(span.first, earliest.get(tp, span.end)) for tp, span in self.spans.items()}
        spans = {tp: OffsetRange(first, self.spans[tp].end) for tp, first in firsts.items()}
        fetched = {tp: replace(self.fetched[tp], span=span) for tp, span in spans.items()}
        return replace(self, fetched=fetched, feeds=tuple(feed.within(spans) for feed in self.feeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """The result of a unit, with digests in place of contents.

    `copies` are the places of mismatches that duplicate a record of the same partition. `by_feed` has an entry for each feed of the
    unit; `proven` is by the indexes of a feed and of its target.
    """

    unit: ComparisonUnit
    mismatches: tuple[Mismatch, ...]
    copies: frozenset[tuple[TopicPartition, int]]
    by_feed: tuple[FeedResult, ...]
    proven: Mapping[tuple[int, int], EqualRecords]


# Returns the log start offsets, or the ends, of some partitions.
Ends = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]]


def compare_unit(
    unit: ComparisonUnit,
    *,
    rows: Rows,
    earliest: Ends,
    latest: Ends,
    tell: Callable[[int], None] = lambda _: None,
) -> UnitResult:
    """Fetch and compare a unit; repeat it without records that leave the cluster meanwhile."""
    for attempt in count(1):
        try:
            return _compare(unit, rows, latest, tell)
        except PositionGone as error:
            if attempt == 3:
                raise ClusterError(
                    f"{unit.alias} drops records faster than they are read: {error}",
                    consequence="they were not compared",
                    remedy="run `mirrorlake verify` again",
                ) from error
            unit = unit.clipped(earliest(unit.fetched))
    raise AssertionError


def _compare(unit: ComparisonUnit, rows: Rows, latest: Ends, tell: Callable[[int], None]) -> UnitResult:
    comparison = StreamComparison(unit.feeds, unit.fetched, rows=rows, fed_is_source=unit.fed_is_source)
    for got in _fetch_to_end(unit, unit.spans):
        before = sum(one.matched for one in comparison.by_feed)
        for tp, read_to in got.read_to.items():
            for part in got.rows[tp].to_batches() if tp in got.rows else ():
                comparison.take(tp, part, part.column("offset")[-1].as_py() + 1)
            comparison.take(tp, None, read_to)
        tell(sum(one.matched for one in comparison.by_feed) - before)
    _read_past_end(unit, comparison, latest)
    comparison.finish()
    return UnitResult(
        unit=unit,
        mismatches=tuple(replace(one, fed=_mark(one.fed), fetched=_mark(one.fetched)) for one in comparison.mismatches),
        copies=_copies(unit, comparison.mismatches, rows),
        by_feed=tuple(comparison.by_feed),
        proven=comparison.proven,
    )


def _read_past_end(unit: ComparisonUnit, comparison: StreamComparison, latest: Ends) -> None:
    """Read past the end of compacted logs that lack records: records written meanwhile may have replaced these.

    The end is read after the records were missed, so whatever replaced them is before it.
    """
    if not (lacking := comparison.unexplained()):
        return
    past = {tp: OffsetRange(unit.fetched[tp].span.end, end) for tp, end in latest(lacking).items()}
    for got in _fetch_to_end(unit, past):
        for tp, rows in got.rows.items():
            for part in rows.to_batches():
                comparison.note_survivors(tp, part)


def _fetch_to_end(unit: ComparisonUnit, spans: Mapping[TopicPartition, OffsetRange]) -> Iterator[Fetched]:
    """Yield fetched rows until each partition is read to the end of its range, or past it."""
    spans = {tp: span for tp, span in spans.items() if span.first < span.end}
    if not spans:
        return
    left, moved_at = {tp: span.end for tp, span in spans.items()}, time.monotonic()
    with Fetcher(unit.alias, unit.options, {tp: span.first for tp, span in spans.items()}) as fetcher:
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


def _copies(unit: ComparisonUnit, found: Iterable[Mismatch], rows: Rows) -> frozenset[tuple[TopicPartition, int]]:
    """Return the unexpected target records that duplicate an expected record."""
    extra: dict[Any, list[tuple[TopicPartition, int]]] = {}
    for one in found:
        if one.fed is None:
            extra.setdefault(one.fetched, []).append((one.tp, one.offset))
    if not extra or not unit.fed_is_source:
        return frozenset()
    times = pa.array(sorted({content[0] for content in extra}), pa.int64())
    copies: set[tuple[TopicPartition, int]] = set()
    for feed in unit.feeds:
        targets = {way.tp for way in feed.targets}
        for content in _with_times(feed, rows, times):
            copies |= {place for place in extra.get(content, ()) if place[0] in targets}
    return frozenset(copies)


def _with_times(feed: Feed, rows: Rows, times: pa.Array) -> Iterator[Any]:
    views = {way.version: way.view for way in feed.targets if way.is_comparable}
    for batch in rows(feed):
        stamps = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        near = batch.filter(pc.is_in(stamps, value_set=times))
        if len(near):
            for view in views.values():
                seen = near if view is None else view(feed.source, near.select(list(near.schema.names[:5]))).records
                yield from values_of(content_of(seen))


def group_by_shared_feed(
    parts: Mapping[TopicPartition, Collection[FeedKey]], max_size: int
) -> list[list[TopicPartition]]:
    """Group partitions that share a feed, by the feeds that lead to each, and join small groups up to `max_size`."""
    groups: dict[int, list[TopicPartition]] = {}
    group_of: dict[FeedKey, int] = {}
    keys_of: dict[int, set[FeedKey]] = {}
    for number, (tp, keys) in enumerate(parts.items()):
        mine = sorted({group_of[key] for key in keys if key in group_of})
        groups[number] = [one for other in mine for one in groups.pop(other)] + [tp]
        keys_of[number] = set(keys).union(*(keys_of.pop(other) for other in mine))
        group_of |= dict.fromkeys(keys_of[number], number)
    found: list[list[TopicPartition]] = []
    for tps in sorted(groups.values(), key=len, reverse=True):
        if found and len(found[-1]) + len(tps) <= max_size:
            found[-1] += tps
        else:
            found.append(list(tps))
    return found
