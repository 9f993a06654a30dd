"""Compare two ordered streams of records: those that a cluster returns, and those of the relay at the same offsets.

A feed yields the relay's records of one source partition in upstream order; its offset columns map each to the fetched
partitions. Both sides are compared as columns, and record by record only where they differ. A merged topic has several feeds in
one partition; if records are placed by key, a feed leads to several partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import COLUMNS
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.ranges import UNBOUNDED, Ranges
from mirrorlake.model.verify import MAX_DIFFERENCES
from mirrorlake.verify.compacted import CompactedLog
from mirrorlake.verify.content import Digest, Flags, Offsets, content_of, differing, values_of
from mirrorlake.verify.feeds import Feed, FeedTarget, FetchedPart, ReadHorizons
from mirrorlake.verify.windows import FeedRecords, Window

# Past this many suspect offsets of a source partition, the rest is left for the next verification.
_MAX_SUSPECTS = 64

Rows = Callable[[Feed], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """An offset where both sides differ: its fed and fetched content, or a digest of it; None for no record."""

    tp: TopicPartition
    offset: int
    fed: tuple[Any, ...] | bytes | None
    fetched: tuple[Any, ...] | bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRecords:
    """The records of a feed found equal on one target: their count, first and last offset there, and digest.

    Without a digest the contents were not comparable.
    """

    records: int
    first: int
    last: int
    digest: str | None


@dataclass(slots=True)
class _Equal:
    first: int
    last: int = -1
    records: int = 0
    digest: Digest = field(default_factory=Digest)


@dataclass(slots=True)
class SuspectOffsets:
    """Upstream offsets of a feed that are suspect; past `end` all are."""

    offsets: set[int] = field(default_factory=set)
    end: int = UNBOUNDED

    def add(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if len(self.offsets) < _MAX_SUSPECTS:
                self.offsets.add(offset)
            else:
                self.end = min(self.end, offset)

    def ranges(self, end: int) -> Ranges:
        return Ranges.of(self.offsets) | Ranges([(self.end, end)])


@dataclass(slots=True)
class FeedResult:
    """What was found of a feed: how many records were read, how many of them are equal, and which offsets are suspect."""

    read: int = 0
    matched: int = 0
    suspects: SuspectOffsets = field(default_factory=SuspectOffsets)


@dataclass(slots=True)
class _Part:
    """A fetched partition while it is compared, up to `cursor`; `has_orphan` if an unexpected record was the last one."""

    tp: TopicPartition
    settings: FetchedPart
    horizons: ReadHorizons
    cursor: int
    has_orphan: bool = False
    pending: list[FeedRecords] = field(default_factory=list)
    compacted: CompactedLog = field(default_factory=CompactedLog)

    def take_due(self, horizon: int) -> list[FeedRecords]:
        """Return the pending records of feeds before an offset, which are pending no more."""
        due, left = [], []
        for piece in self.pending:
            end = int(np.searchsorted(piece.downstream, horizon))
            if end:
                due.append(piece.sliced(0, end))
            if end < len(piece.downstream):
                left.append(piece.sliced(end, len(piece.downstream)))
        self.pending = left
        return due


class StreamComparison:
    """Compare fetched partitions with the feeds that lead to them; `rows` yields those of a feed in upstream order.

    With `fed_is_source` the fetched side must equal the feeds; otherwise the fetched side is the source, and types of timestamps
    count, too. Results are `mismatches`, `by_feed` and `proven`.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        fetched: Mapping[TopicPartition, FetchedPart],
        *,
        rows: Rows,
        fed_is_source: bool,
    ) -> None:
        self._feeds = feeds
        self._batches = [rows(feed) for feed in feeds]
        self._positions = [0 for _ in feeds]
        self._fed_is_source = fed_is_source
        self._parts = {
            tp: _Part(tp, settings, ReadHorizons(feeds, tp), settings.span.first) for tp, settings in fetched.items()
        }
        self._equal: dict[tuple[int, int], _Equal] = {}
        self.mismatches: list[Mismatch] = []
        self.by_feed = [FeedResult() for _ in feeds]

    @property
    def proven(self) -> dict[tuple[int, int], EqualRecords]:
        return {
            (feed, label): EqualRecords(
                records=one.records,
                first=one.first,
                last=one.last,
                digest=one.digest.text() if self._feeds[feed].targets[label].is_comparable else None,
            )
            for (feed, label), one in sorted(self._equal.items())
        }

    def take(self, tp: TopicPartition, rows: pa.RecordBatch | None, read_to: int) -> None:
        """Compare the rows fetched from a partition up to `read_to`; None for no rows."""
        part = self._parts[tp]
        horizon = min(read_to, part.settings.span.end)
        if horizon <= part.cursor:
            return
        for feed, upstream in part.horizons.up_to(horizon):
            while self._positions[feed] <= upstream:
                self._advance(feed)
        offsets, content = np.empty(0, np.int64), None
        if rows is not None:
            offsets = rows.column("offset").to_numpy()
            low, high = np.searchsorted(offsets, (part.cursor, horizon))
            rows = rows.slice(low, high - low)
            offsets, content = offsets[low:high], content_of(rows, with_kind=not self._fed_is_source)
        part.cursor = horizon
        if due := part.take_due(horizon):
            self._compare(part, Window(due), offsets, content)
        else:
            self._only_fetched(part, None, offsets, content, np.arange(len(offsets)))
        if content is not None and part.compacted.lacks:
            part.compacted.survived(content.column("key"), offsets)

    def unexplained(self) -> list[TopicPartition]:
        """Return the compacted partitions that lack records; a record past the end may have replaced them."""
        return [tp for tp, part in self._parts.items() if part.compacted.judged()]

    def note_survivors(self, tp: TopicPartition, rows: pa.RecordBatch) -> None:
        """Add records that a compacted partition holds past the end of the comparison."""
        self._parts[tp].compacted.survived(rows.column("key"), rows.column("offset").to_numpy())

    def finish(self) -> None:
        """Decide which records of compacted partitions are lost."""
        for part in self._parts.values():
            for feed, upstream, offset, content in part.compacted.judged():
                self.by_feed[feed].suspects.add([upstream])
                self._mismatch(part, [offset], fed=[content])

    def _advance(self, number: int) -> None:
        feed, batch = self._feeds[number], next(self._batches[number], None)
        if batch is None:
            self._positions[number] = UNBOUNDED
            return
        offsets = batch.column("offset").to_numpy()
        self._positions[number] = int(offsets[-1]) + 1
        self.by_feed[number].read += len(offsets)
        stretch, held = feed.offsets.find(offsets)
        if not held.any():
            return
        places, stretch = feed.offsets, np.where(held, stretch, 0)
        downstream, labels = places.downstream[stretch] + offsets - places.upstream[stretch], places.labels[stretch]
        for label in np.unique(labels[held]).tolist():
            mine = held & (labels == label)
            rows = batch if mine.all() else batch.filter(pa.array(mine))
            self._append(number, label, rows, offsets[mine], downstream[mine])

    def _append(self, number: int, label: int, batch: pa.RecordBatch, upstream: Offsets, downstream: Offsets) -> None:
        """Append records of a feed for one target, as the rules change them, in their order there."""
        feed = self._feeds[number]
        target = feed.targets[label]
        if target.view is not None:
            batch = target.view(feed.source, batch.select(list(COLUMNS))).records
            at = np.searchsorted(upstream, batch.column("offset").to_numpy())
            upstream, downstream = upstream[at], downstream[at]
        if not len(batch):
            return
        rows = content_of(batch, with_kind=not self._fed_is_source)
        if np.any(np.diff(downstream) < 0):
            # Some records were sent again after later ones.
            order = np.argsort(downstream, kind="stable")
            upstream, downstream, rows = upstream[order], downstream[order], rows.take(pa.array(order))
        self._parts[target.tp].pending.append(FeedRecords(number, label, upstream, downstream, rows))

    def _compare(self, part: _Part, window: Window, offsets: Offsets, rows: pa.RecordBatch | None) -> None:
        if part.has_orphan:
            # An unexpected record makes the record after it suspect.
            part.has_orphan = False
            self._suspect(window, np.zeros(1, np.int64))
        whole = rows is not None and np.array_equal(offsets, window.downstream)
        if whole:
            here = there = np.arange(len(offsets))
        else:
            _, here, there = np.intersect1d(window.downstream, offsets, assume_unique=True, return_indices=True)
            only = np.setdiff1d(np.arange(len(window.downstream)), here, assume_unique=True)
            self._only_fed(part, window, only)
            only = np.setdiff1d(np.arange(len(offsets)), there, assume_unique=True)
            self._only_fetched(part, window, offsets, rows, only)
        good = here
        if rows is not None and len(here):
            one, other = (
                (window.rows, rows) if whole else (window.rows.take(pa.array(here)), rows.take(pa.array(there)))
            )
            bad = self._differing(window, one, other, here)
            if bad.any():
                good = here[~bad]
                self._suspect(window, here[bad])
                wrong = pa.array(np.flatnonzero(bad)[:MAX_DIFFERENCES])
                fed, fetched = values_of(one.take(wrong)), values_of(other.take(wrong))
                self._mismatch(part, window.downstream[here[bad]], fed=fed, fetched=fetched)
        self._prove(window, good)

    def _differing(self, window: Window, fed: pa.RecordBatch, fetched: pa.RecordBatch, rows: Offsets) -> Flags:
        comparable = np.array([self._target_of(piece).is_comparable for piece in window.parts])
        if not comparable.any():
            return np.zeros(len(rows), np.bool_)
        bad = differing(fed, fetched)
        return bad if comparable.all() else bad & comparable[window.origin[rows]]

    def _target_of(self, piece: FeedRecords) -> FeedTarget:
        return self._feeds[piece.feed].targets[piece.label]

    def _prove(self, window: Window, chosen: Offsets) -> None:
        for piece, upstream, downstream, rows in window.by_target(chosen):
            equal = self._equal.setdefault((piece.feed, piece.label), _Equal(first=int(downstream[0])))
            equal.last = int(downstream[-1])
            equal.records += len(upstream)
            self.by_feed[piece.feed].matched += len(upstream)
            if self._target_of(piece).is_comparable:
                equal.digest.add(upstream, rows)

    def _only_fed(self, part: _Part, window: Window, only: Offsets) -> None:
        if not len(only):
            return
        if part.settings.compacts:
            for piece, upstream, downstream, rows in window.by_target(only):
                part.compacted.lost(piece.feed, upstream, downstream, rows)
            return
        self._suspect(window, only)
        fed = values_of(window.rows.take(pa.array(only[:MAX_DIFFERENCES])))
        self._mismatch(part, window.downstream[only], fed=fed)

    def _only_fetched(
        self, part: _Part, window: Window | None, offsets: Offsets, rows: pa.RecordBatch | None, only: Offsets
    ) -> None:
        if rows is None or not len(only):
            return
        settings = part.settings
        only = only[~part.horizons.removed(offsets[only])]
        if settings.own is not None and len(only):
            only = only[_by_flows(rows.column("headers").take(pa.array(only)), settings.own)]
        if not len(only):
            return
        self._suspect_extra(part, window, offsets[only])
        fetched = values_of(rows.take(pa.array(only[:MAX_DIFFERENCES])))
        self._mismatch(part, offsets[only], fetched=fetched)

    def _suspect(self, window: Window, rows: Offsets) -> None:
        for row in rows[: _MAX_SUSPECTS + 1].tolist():
            self.by_feed[window.parts[window.origin[row]].feed].suspects.add([int(window.upstream[row])])

    def _suspect_extra(self, part: _Part, window: Window | None, offsets: Offsets) -> None:
        if not self._fed_is_source:
            # The fetched side is the source, so its offsets are upstream ones.
            for feed in part.horizons.feeds:
                self.by_feed[feed].suspects.add(offsets[: _MAX_SUSPECTS + 1].tolist())
            return
        if window is None:
            part.has_orphan = True
            return
        after = np.unique(np.searchsorted(window.downstream, offsets))
        part.has_orphan |= bool(after[-1] == len(window.downstream))
        self._suspect(window, after[after < len(window.downstream)])

    def _mismatch(
        self,
        part: _Part,
        offsets: Iterable[int],
        *,
        fed: Iterable[tuple[Any, ...]] | None = None,
        fetched: Iterable[tuple[Any, ...]] | None = None,
    ) -> None:
        none: Iterable[Any] = repeat(None)
        contents = zip(offsets, fed or none, fetched or none)  # noqa: B905  more offsets than contents
        for offset, one, other in islice(contents, MAX_DIFFERENCES - len(self.mismatches)):
            self.mismatches.append(Mismatch(tp=part.tp, offset=int(offset), fed=one, fetched=other))


def _by_flows(headers: pa.ListArray, aliases: frozenset[str]) -> Flags:
    """Flag the records whose last hop names one of the aliases; applications of the target wrote the others."""
    flags = np.zeros(len(headers), np.bool_)
    for row in np.flatnonzero(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)).tolist():
        hops = [header["value"] for header in headers[row].as_py() if header["key"] == HOP_KEY]
        flags[row] = bool(hops) and (hops[-1] or b"").decode("utf-8", "replace").partition("/")[0] in aliases
    return flags
