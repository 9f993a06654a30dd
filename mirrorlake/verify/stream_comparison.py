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
from mirrorlake.model.verify import MAX_DIFFERENCES
from mirrorlake.verify.compacted import CompactedLog
from mirrorlake.verify.content import Digest, Flags, Offsets, content_of, differing, values_of, without_kind
from mirrorlake.verify.feeds import Feed, FeedTarget, FetchedPart, ReadHorizons, within
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRanges
from mirrorlake.verify.windows import FeedRecords, Window, chosen_rows, chosen_values

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
    """Equal records while they are compared."""

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
        """Add suspect offsets."""
        for offset in offsets:
            if len(self.offsets) < _MAX_SUSPECTS:
                self.offsets.add(offset)
            else:
                self.end = min(self.end, offset)

    def ranges(self, end: int) -> OffsetRanges:
        """Return the suspect offsets as ranges, up to the end of the comparison."""
        return OffsetRanges([*((offset, offset + 1) for offset in self.offsets), (self.end, end)])


@dataclass(slots=True)
class FeedResult:
    """What was found of a feed: how many records were read, how many of them are equal, and which offsets are suspect."""

    read: int = 0
    matched: int = 0
    suspects: SuspectOffsets = field(default_factory=SuspectOffsets)


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
        self._fetched = fetched
        self._fed_is_source = fed_is_source
        self._cursor = {tp: one.span.first for tp, one in fetched.items()}
        self._pending: dict[TopicPartition, list[FeedRecords]] = {tp: [] for tp in fetched}
        self._orphans: set[TopicPartition] = set()
        self._compacted: dict[TopicPartition, CompactedLog] = {}
        self._horizons = {tp: ReadHorizons(feeds, tp) for tp in fetched}
        self._equal: dict[tuple[int, int], _Equal] = {}
        self.mismatches: list[Mismatch] = []
        self.by_feed = [FeedResult() for _ in feeds]

    @property
    def proven(self) -> dict[tuple[int, int], EqualRecords]:
        """The equal records by the indexes of a feed and of its target."""
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
        horizon = min(read_to, self._fetched[tp].span.end)
        if horizon <= self._cursor[tp]:
            return
        for feed, upstream in self._horizons[tp].up_to(horizon):
            while self._positions[feed] <= upstream:
                self._advance(feed)
        offsets, content = np.empty(0, np.int64), None
        if rows is not None:
            offsets = rows.column("offset").to_numpy()
            low, high = np.searchsorted(offsets, (self._cursor[tp], horizon))
            offsets, content = offsets[low:high], content_of(rows.slice(low, high - low))
            if self._fed_is_source:
                content = without_kind(content)
        self._cursor[tp] = horizon
        if due := self._due(tp, horizon):
            self._compare(tp, Window(due), offsets, content)
        else:
            self._only_fetched(tp, None, offsets, content, np.arange(len(offsets)))
        if content is not None and tp in self._compacted:
            self._compacted[tp].survived(content.column("key"), offsets)

    def unexplained(self) -> list[TopicPartition]:
        """Return the compacted partitions that lack records; a record past the end may have replaced them."""
        return [tp for tp, compacted in self._compacted.items() if compacted.judged()]

    def note_survivors(self, tp: TopicPartition, rows: pa.RecordBatch) -> None:
        """Add records that a compacted partition holds past the end of the comparison."""
        self._compacted[tp].survived(rows.column("key"), rows.column("offset").to_numpy())

    def finish(self) -> None:
        """Decide which records of compacted partitions are lost."""
        for tp, compacted in self._compacted.items():
            for feed, upstream, offset, content in compacted.judged():
                self.by_feed[feed].suspects.add([upstream])
                self._mismatch(tp, [offset], fed=[content])

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
        if not held.all():
            at = np.flatnonzero(held)
            batch, offsets, stretch = batch.take(pa.array(at)), offsets[at], stretch[at]
        places = feed.offsets
        downstream = places.downstream[stretch] + offsets - places.upstream[stretch]
        labels = places.labels[stretch]
        views: dict[str | None, list[int]] = {}
        for label in np.unique(labels).tolist():
            views.setdefault(feed.targets[label].version, []).append(label)
        for of_view in views.values():
            mine = None if len(views) == 1 else np.flatnonzero(np.isin(labels, of_view))
            self._distribute(
                number, chosen_rows(batch, mine), *(chosen_values(each, mine) for each in (offsets, downstream, labels))
            )

    def _distribute(
        self, number: int, batch: pa.RecordBatch, offsets: Offsets, downstream: Offsets, labels: Offsets
    ) -> None:
        """Distribute records of one version of the rules to their fetched partitions."""
        feed = self._feeds[number]
        view = feed.targets[int(labels[0])].view
        if view is not None:
            batch = view(feed.source, batch.select(list(COLUMNS))).records
            at = np.searchsorted(offsets, batch.column("offset").to_numpy())
            offsets, downstream, labels = offsets[at], downstream[at], labels[at]
        if not len(batch):
            return
        rows = content_of(batch)
        if self._fed_is_source:
            rows = without_kind(rows)
        for label in np.unique(labels).tolist():
            mine = None if labels[0] == labels[-1] and np.all(labels == label) else np.flatnonzero(labels == label)
            places = chosen_values(downstream, mine)
            if np.any(np.diff(places) < 0):
                # Some records were sent again after later ones.
                order = np.argsort(places, kind="stable")
                mine = order if mine is None else mine[order]
                places = chosen_values(downstream, mine)
            piece = FeedRecords(number, label, chosen_values(offsets, mine), places, chosen_rows(rows, mine))
            self._pending[feed.targets[label].tp].append(piece)

    def _due(self, tp: TopicPartition, horizon: int) -> list[FeedRecords]:
        due, left = [], []
        for piece in self._pending[tp]:
            end = int(np.searchsorted(piece.downstream, horizon))
            if end:
                due.append(piece.sliced(0, end))
            if end < len(piece.downstream):
                left.append(piece.sliced(end, len(piece.downstream)))
        self._pending[tp] = left
        return due

    def _compare(self, tp: TopicPartition, window: Window, offsets: Offsets, rows: pa.RecordBatch | None) -> None:
        if tp in self._orphans:
            # An unexpected record makes the record after it suspect.
            self._orphans.remove(tp)
            self._suspect(window, np.zeros(1, np.int64))
        whole = rows is not None and np.array_equal(offsets, window.downstream)
        if whole:
            here = there = np.arange(len(offsets))
        else:
            _, here, there = np.intersect1d(window.downstream, offsets, assume_unique=True, return_indices=True)
            only = np.setdiff1d(np.arange(len(window.downstream)), here, assume_unique=True)
            self._only_fed(tp, window, only)
            only = np.setdiff1d(np.arange(len(offsets)), there, assume_unique=True)
            self._only_fetched(tp, window, offsets, rows, only)
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
                self._mismatch(tp, window.downstream[here[bad]], fed=fed, fetched=fetched)
        self._prove(window, good)

    def _differing(self, window: Window, fed: pa.RecordBatch, fetched: pa.RecordBatch, rows: Offsets) -> Flags:
        """Flag the records whose content differs."""
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

    def _only_fed(self, tp: TopicPartition, window: Window, only: Offsets) -> None:
        if not len(only):
            return
        if self._fetched[tp].compacts:
            compacted = self._compacted.setdefault(tp, CompactedLog())
            for piece, upstream, downstream, rows in window.by_target(only):
                compacted.lost(piece.feed, upstream, downstream, rows)
            return
        self._suspect(window, only)
        fed = values_of(window.rows.take(pa.array(only[:MAX_DIFFERENCES])))
        self._mismatch(tp, window.downstream[only], fed=fed)

    def _only_fetched(
        self, tp: TopicPartition, window: Window | None, offsets: Offsets, rows: pa.RecordBatch | None, only: Offsets
    ) -> None:
        if rows is None or not len(only):
            return
        part = self._fetched[tp]
        only = only[~(self._horizons[tp].removed(offsets[only]) | within(part.tombstones, offsets[only]))]
        if part.own is not None and len(only):
            only = only[_by_flows(rows.column("headers").take(pa.array(only)), part.own)]
        if not len(only):
            return
        self._suspect_extra(tp, window, offsets[only])
        fetched = values_of(rows.take(pa.array(only[:MAX_DIFFERENCES])))
        self._mismatch(tp, offsets[only], fetched=fetched)

    def _suspect(self, window: Window, rows: Offsets) -> None:
        for row in rows[: _MAX_SUSPECTS + 1].tolist():
            self.by_feed[window.parts[window.origin[row]].feed].suspects.add([int(window.upstream[row])])

    def _suspect_extra(self, tp: TopicPartition, window: Window | None, offsets: Offsets) -> None:
        if not self._fed_is_source:
            # The fetched side is the source, so its offsets are upstream ones.
            for feed in self._horizons[tp].feeds:
                self.by_feed[feed].suspects.add(offsets[: _MAX_SUSPECTS + 1].tolist())
            return
        if window is None:
            self._orphans.add(tp)
            return
        after = np.unique(np.searchsorted(window.downstream, offsets))
        if after[-1] == len(window.downstream):
            self._orphans.add(tp)
        self._suspect(window, after[after < len(window.downstream)])

    def _mismatch(
        self,
        tp: TopicPartition,
        offsets: Iterable[int],
        *,
        fed: Iterable[tuple[Any, ...]] | None = None,
        fetched: Iterable[tuple[Any, ...]] | None = None,
    ) -> None:
        none: Iterable[Any] = repeat(None)
        contents = zip(offsets, fed or none, fetched or none)  # noqa: B905  more offsets than contents
        for offset, one, other in islice(contents, MAX_DIFFERENCES - len(self.mismatches)):
            self.mismatches.append(Mismatch(tp=tp, offset=int(offset), fed=one, fetched=other))


def _by_flows(headers: pa.ListArray, aliases: frozenset[str]) -> Flags:
    """Flag the records whose last hop names one of the aliases; applications of the target wrote the others."""
    flags = np.zeros(len(headers), np.bool_)
    for row in np.flatnonzero(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)).tolist():
        hops = [header["value"] for header in headers[row].as_py() if header["key"] == HOP_KEY]
        flags[row] = bool(hops) and (hops[-1] or b"").decode("utf-8", "replace").partition("/")[0] in aliases
    return flags
