"""Compare two streams of records that are in order: what a cluster gives, and what the relay holds at its places.

A feed gives the relay's records of one source partition in upstream order; its places say where each stands in the partitions
that are fetched. Both sides of a fetched stretch are compared as columns, and record by record only where they differ.
Merged topics have several feeds in one partition; where records go by key, a feed leads to several partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import COLUMNS
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.verify import MOST_DIFFERENCES
from mirrorlake.rules import View
from mirrorlake.verify.content import (
    Digest,
    Flags,
    Offsets,
    are_same,
    content_of,
    differing,
    joined,
    values_of,
    without_kind,
)
from mirrorlake.verify.places import Places
from mirrorlake.verify.spans import OffsetSpan, Spans

_EVER = 2**62
# What surrounds more differences than this in one source partition is left for the next verification.
_MOST_DOUBTS = 64
COMPACTED, REMOVED = "compacted", "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How records of a feed come to a fetched partition: its number, and what the rules made of them.

    `version` names the rules. Where `view` lacks they are not those of the settings, and only the presence is compared.
    """

    target: int
    version: str | None = None
    view: View | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether the content can be made again."""
        return self.version is None or self.view is not None


@dataclass(slots=True, kw_only=True)
class RelayFeed:
    """The relay's records of one source partition; the labels of `places` are numbers of `ways`.

    `removed` are offsets that left the relay, explained elsewhere.
    """

    source: SourcePartition
    places: Places
    ways: Sequence[Way]
    batches: Iterator[pa.RecordBatch]
    removed: Spans = field(default_factory=Spans)
    read: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPart:
    """A partition that is fetched: its offsets, and what is known of it.

    `own` are the aliases in the last hop of records that count, None where all do (the target writes none itself);
    `compacts` says that its log may be compacted.
    """

    span: OffsetSpan
    own: frozenset[str] | None = None
    compacts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One place where the two sides differ: what is fed and what is fetched there, None for nothing."""

    target: int
    offset: int
    fed: tuple[Any, ...] | None
    fetched: tuple[Any, ...] | None


@dataclass(slots=True)
class Proven:
    """What was found equal on one way of a feed."""

    records: int = 0
    first: int = -1
    last: int = -1
    digest: Digest = field(default_factory=Digest)


@dataclass(slots=True)
class Doubts:
    """Upstream offsets of a feed at which something differs; past `end` too much does."""

    offsets: set[int] = field(default_factory=set)
    end: int = _EVER

    def add(self, offsets: Iterable[int]) -> None:
        """Note more of them."""
        for offset in offsets:
            if len(self.offsets) < _MOST_DOUBTS:
                self.offsets.add(offset)
            else:
                self.end = min(self.end, offset)

    def spans(self, end: int) -> Spans:
        """Return them as ranges, up to the end of what was compared."""
        return Spans([*((offset, offset + 1) for offset in self.offsets), (self.end, end)])


@dataclass(slots=True)
class _Piece:
    """Records of one way of a feed, ascending in both offsets."""

    feed: int
    way: int
    upstream: Offsets
    downstream: Offsets
    rows: pa.RecordBatch

    def sliced(self, start: int, end: int) -> _Piece:
        return _Piece(
            self.feed,
            self.way,
            self.upstream[start:end],
            self.downstream[start:end],
            self.rows.slice(start, end - start),
        )


class _Window:
    """What is fed for a stretch, in downstream order; `origin` is the number of the piece that a record came in."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self.pieces = pieces
        if len(pieces) == 1:
            [only] = pieces
            self.upstream, self.downstream, self.rows = only.upstream, only.downstream, only.rows
            self.origin: Offsets | None = None
            return
        self.upstream = np.concatenate([piece.upstream for piece in pieces])
        self.downstream = np.concatenate([piece.downstream for piece in pieces])
        self.rows = joined([piece.rows for piece in pieces])
        self.origin = np.repeat(np.arange(len(pieces)), [len(piece.upstream) for piece in pieces])
        if np.any(np.diff(self.downstream) < 0):
            order = np.argsort(self.downstream, kind="stable")
            self.upstream, self.downstream, self.origin = (
                self.upstream[order],
                self.downstream[order],
                self.origin[order],
            )
            self.rows = self.rows.take(pa.array(order))

    def piece_of(self, row: int) -> _Piece:
        return self.pieces[0 if self.origin is None else int(self.origin[row])]

    def by_way(self, chosen: Offsets | None) -> Iterator[tuple[_Piece, Offsets, Offsets, pa.RecordBatch]]:
        """Yield chosen rows, None for all: a piece of their way, their offsets on both ends and their content."""
        if self.origin is None:
            if chosen is None:
                yield self.pieces[0], self.upstream, self.downstream, self.rows
            elif len(chosen):
                yield (
                    self.pieces[0],
                    self.upstream[chosen],
                    self.downstream[chosen],
                    self.rows.take(pa.array(chosen)),
                )
            return
        ways = {(piece.feed, piece.way): piece for piece in self.pieces}
        numbers = {key: number for number, key in enumerate(ways)}
        of_row = np.array([numbers[piece.feed, piece.way] for piece in self.pieces])[self.origin]
        rows = np.arange(len(self.upstream)) if chosen is None else chosen
        for key, number in numbers.items():
            mine = rows[of_row[rows] == number]
            if len(mine):
                yield ways[key], self.upstream[mine], self.downstream[mine], self.rows.take(pa.array(mine))


class Merge:
    """Compare what is fetched of some partitions with what some feeds hold for them.

    With `fed_is_source` the feeds are what must stand on the fetched side; otherwise the fetched side is the source and types of
    timestamps count, too. The result is in the attributes: `found`, `proven` by feed and way, `doubts` by feed, `explained`
    by fetched partition and reason, `matched` records by feed.
    """

    def __init__(self, feeds: Sequence[RelayFeed], fetched: Sequence[FetchedPart], *, fed_is_source: bool) -> None:
        self._feeds = feeds
        self._fetched = fetched
        self._fed_is_source = fed_is_source
        self._cursor = [one.span.first for one in fetched]
        self._pending: list[list[_Piece]] = [[] for _ in fetched]
        self._orphans = [False for _ in fetched]
        self._compacted: dict[int, _Compacted] = {}
        self._needs = [_Needs(feeds, number) for number in range(len(fetched))]
        self.found: list[Mismatch] = []
        self.beyond = 0
        self.proven: dict[tuple[int, int], Proven] = {}
        self.doubts = [Doubts() for _ in feeds]
        self.explained: list[Counter[str]] = [Counter() for _ in fetched]
        self.matched = [0 for _ in feeds]

    @property
    def is_over(self) -> bool:
        """Whether every fetched partition came to its end."""
        return all(at >= one.span.end for at, one in zip(self._cursor, self._fetched, strict=True))

    def take(self, target: int, rows: pa.RecordBatch | None, read_to: int) -> None:
        """Compare what was fetched of a partition up to `read_to`; None for no records."""
        span = self._fetched[target].span
        horizon = min(read_to, span.end)
        if horizon <= self._cursor[target]:
            return
        for feed, upstream in self._needs[target].up_to(horizon):
            while self._feeds[feed].position <= upstream:
                self._advance(feed)
        offsets, content = np.empty(0, np.int64), None
        if rows is not None:
            offsets = rows.column("offset").to_numpy()
            low, high = np.searchsorted(offsets, (self._cursor[target], horizon))
            offsets, content = offsets[low:high], content_of(rows.slice(low, high - low))
            if self._fed_is_source:
                content = without_kind(content)
        self._cursor[target] = horizon
        for window, start, end in _windows(self._due(target, horizon), offsets):
            part = None if content is None else content.slice(start, end - start)
            self._compare(target, window, offsets[start:end], part)
        if content is not None and target in self._compacted:
            self._compacted[target].survived(content.column("key"), offsets)

    def finish(self) -> None:
        """Judge what only the end can tell."""
        for target, compacted in self._compacted.items():
            lost, self.explained[target][COMPACTED] = compacted.judged()
            for feed, upstream, offset, content in lost:
                self.doubts[feed].add([upstream])
                self._find(Mismatch(target=target, offset=offset, fed=content, fetched=None))

    def _advance(self, number: int) -> None:
        feed = self._feeds[number]
        batch = next(feed.batches, None)
        if batch is None:
            feed.position = _EVER
            return
        offsets = batch.column("offset").to_numpy()
        feed.position = int(offsets[-1]) + 1
        feed.read += len(offsets)
        stretch, held = feed.places.find(offsets)
        if not held.any():
            return
        if not held.all():
            at = np.flatnonzero(held)
            batch, offsets, stretch = batch.take(pa.array(at)), offsets[at], stretch[at]
        places = feed.places
        downstream = places.downstream[stretch] + offsets - places.upstream[stretch]
        labels = places.labels[stretch]
        views: dict[str | None, list[int]] = {}
        for label in np.unique(labels).tolist():
            views.setdefault(feed.ways[label].version, []).append(label)
        for of_view in views.values():
            mine = None if len(views) == 1 else np.flatnonzero(np.isin(labels, of_view))
            self._distribute(number, _chosen(batch, mine), *(_of(each, mine) for each in (offsets, downstream, labels)))

    def _distribute(
        self, number: int, batch: pa.RecordBatch, offsets: Offsets, downstream: Offsets, labels: Offsets
    ) -> None:
        """Give records of one version of the rules to the partitions they lead to."""
        feed = self._feeds[number]
        view = feed.ways[int(labels[0])].view
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
            places = _of(downstream, mine)
            if np.any(np.diff(places) < 0):
                # Sent again after records that come later upstream.
                order = np.argsort(places, kind="stable")
                mine = order if mine is None else mine[order]
                places = _of(downstream, mine)
            piece = _Piece(number, label, _of(offsets, mine), places, _chosen(rows, mine))
            self._pending[feed.ways[label].target].append(piece)

    def _due(self, target: int, horizon: int) -> list[_Piece]:
        due, left = [], []
        for piece in self._pending[target]:
            end = int(np.searchsorted(piece.downstream, horizon))
            if end:
                due.append(piece.sliced(0, end))
            if end < len(piece.downstream):
                left.append(piece.sliced(end, len(piece.downstream)))
        self._pending[target] = left
        return due

    def _compare(self, target: int, window: _Window | None, offsets: Offsets, rows: pa.RecordBatch | None) -> None:
        if window is None:
            self._only_fetched(target, None, offsets, rows, np.arange(len(offsets)))
            return
        if self._orphans[target]:
            # What stands where nothing should stays in doubt with the record after it.
            self._orphans[target] = False
            self.doubts[window.piece_of(0).feed].add([int(window.upstream[0])])
        if rows is not None and len(offsets) == len(window.downstream) and np.array_equal(offsets, window.downstream):
            bad = self._differing(window, window.rows, rows)
            if bad is None:
                self._prove(window, None)
                return
            here = there = np.arange(len(offsets))
        else:
            _, here, there = np.intersect1d(window.downstream, offsets, assume_unique=True, return_indices=True)
            bad = None
            if rows is not None and len(here):
                bad = self._differing(window, window.rows.take(pa.array(here)), rows.take(pa.array(there)), here)
            only = np.setdiff1d(np.arange(len(window.downstream)), here, assume_unique=True)
            self._only_fed(target, window, only)
            self._only_fetched(
                target, window, offsets, rows, np.setdiff1d(np.arange(len(offsets)), there, assume_unique=True)
            )
        good = here
        if bad is not None and rows is not None:
            good = here[~bad]
            wrong, others = here[bad], there[bad]
            self._doubt(window, wrong)
            wrong, others = wrong[:MOST_DIFFERENCES], others[:MOST_DIFFERENCES]
            self.beyond += int(bad.sum()) - len(wrong)
            fed, fetched = (values_of(side.take(pa.array(at))) for side, at in ((window.rows, wrong), (rows, others)))
            for offset, one, other in zip(window.downstream[wrong].tolist(), fed, fetched, strict=True):
                self._find(Mismatch(target=target, offset=offset, fed=one, fetched=other))
        self._prove(window, good)

    def _differing(
        self, window: _Window, fed: pa.RecordBatch, fetched: pa.RecordBatch, rows: Offsets | None = None
    ) -> Flags | None:
        """Flag the records whose content differs; None where none does."""
        comparable = [self._way(piece).is_comparable for piece in window.pieces]
        if not any(comparable) or are_same(fed, fetched):
            return None
        bad = differing(fed, fetched)
        if not all(comparable):
            origin = np.zeros(len(window.upstream), np.int64) if window.origin is None else window.origin
            bad &= np.array(comparable)[origin if rows is None else origin[rows]]
        return bad if bad.any() else None

    def _way(self, piece: _Piece) -> Way:
        return self._feeds[piece.feed].ways[piece.way]

    def _prove(self, window: _Window, chosen: Offsets | None) -> None:
        for piece, upstream, downstream, rows in window.by_way(chosen):
            proven = self.proven.setdefault((piece.feed, piece.way), Proven())
            if not proven.records:
                proven.first = int(downstream[0])
            proven.last = int(downstream[-1])
            proven.records += len(upstream)
            self.matched[piece.feed] += len(upstream)
            if self._way(piece).is_comparable:
                proven.digest.add(upstream, rows)

    def _only_fed(self, target: int, window: _Window, only: Offsets) -> None:
        if not len(only):
            return
        if self._fetched[target].compacts:
            compacted = self._compacted.setdefault(target, _Compacted())
            for piece, upstream, downstream, rows in window.by_way(only):
                compacted.lost(piece.feed, upstream, downstream, rows)
            return
        self._doubt(window, only)
        shown = only[:MOST_DIFFERENCES]
        self.beyond += len(only) - len(shown)
        for offset, content in zip(
            window.downstream[shown].tolist(), values_of(window.rows.take(pa.array(shown))), strict=True
        ):
            self._find(Mismatch(target=target, offset=offset, fed=content, fetched=None))

    def _only_fetched(
        self, target: int, window: _Window | None, offsets: Offsets, rows: pa.RecordBatch | None, only: Offsets
    ) -> None:
        if rows is None or not len(only):
            return
        removed = self._needs[target].removed(offsets[only])
        self.explained[target][REMOVED] += int(removed.sum())
        only = only[~removed]
        own = self._fetched[target].own
        if own is not None and len(only):
            only = only[_by_flows(rows.column("headers").take(pa.array(only)), own)]
        if not len(only):
            return
        self._doubt_extra(target, window, offsets[only])
        shown = only[:MOST_DIFFERENCES]
        self.beyond += len(only) - len(shown)
        for offset, content in zip(offsets[shown].tolist(), values_of(rows.take(pa.array(shown))), strict=True):
            self._find(Mismatch(target=target, offset=offset, fed=None, fetched=content))

    def _doubt(self, window: _Window, rows: Offsets) -> None:
        for row in rows[: _MOST_DOUBTS + 1].tolist():
            self.doubts[window.piece_of(row).feed].add([int(window.upstream[row])])

    def _doubt_extra(self, target: int, window: _Window | None, offsets: Offsets) -> None:
        if not self._fed_is_source:
            # Offsets of the source itself.
            for feed in self._needs[target].feeds:
                self.doubts[feed].add(offsets[: _MOST_DOUBTS + 1].tolist())
            return
        if window is None:
            self._orphans[target] = True
            return
        after = np.unique(np.searchsorted(window.downstream, offsets))
        self._orphans[target] |= bool(after[-1] == len(window.downstream))
        self._doubt(window, after[after < len(window.downstream)])

    def _find(self, found: Mismatch) -> None:
        if len(self.found) < MOST_DIFFERENCES:
            self.found.append(found)
        else:
            self.beyond += 1


class _Needs:
    """How far feeds must be read before a fetched partition can be compared up to an offset."""

    def __init__(self, feeds: Sequence[RelayFeed], target: int) -> None:
        self._feeds = feeds
        self._ways: dict[int, tuple[Offsets, Offsets, Offsets, Offsets]] = {}
        for number, feed in enumerate(feeds):
            labels = np.array([way.target == target for way in feed.ways], np.bool_)
            mine = labels[feed.places.labels] if len(feed.places) else np.zeros(0, np.bool_)
            if mine.any():
                places = feed.places.where(mine)
                order = np.argsort(places.downstream, kind="stable")
                upstream, lengths = places.upstream[order], places.lengths[order]
                reached = np.maximum.accumulate(upstream + lengths - 1)
                self._ways[number] = places.downstream[order], upstream, lengths, reached

    @property
    def feeds(self) -> Iterable[int]:
        return self._ways.keys()

    def up_to(self, horizon: int) -> Iterator[tuple[int, int]]:
        """Yield each feed with a record before a downstream offset, and the last upstream offset it has to come past."""
        for feed, (downstream, upstream, lengths, reached) in self._ways.items():
            at = int(np.searchsorted(downstream, horizon)) - 1
            if at >= 0:
                here = int(upstream[at] + min(int(lengths[at]), horizon - int(downstream[at])) - 1)
                yield feed, max(here, int(reached[at - 1]) if at else 0)

    def removed(self, offsets: Offsets) -> Flags:
        """Flag the downstream offsets whose records left the relay."""
        flags = np.zeros(len(offsets), np.bool_)
        for number, (downstream, upstream, lengths, _) in self._ways.items():
            gone = self._feeds[number].removed
            if not gone:
                continue
            at = np.searchsorted(downstream, offsets, side="right") - 1
            held = (at >= 0) & (offsets < downstream[at] + lengths[at])
            places = upstream[at] + offsets - downstream[at]
            firsts, ends = (np.array(side) for side in zip(*gone, strict=True))
            span = np.searchsorted(firsts, places, side="right") - 1
            flags |= held & (span >= 0) & (places < ends[span])
        return flags


class _Compacted:
    """Records that a compacted log lacks: explained where it holds a later one of the same key, or where they are deletions."""

    def __init__(self) -> None:
        self._lost: list[tuple[int, Offsets, Offsets, pa.RecordBatch]] = []
        self._survived: list[pa.Table] = []

    def lost(self, feed: int, upstream: Offsets, downstream: Offsets, rows: pa.RecordBatch) -> None:
        self._lost.append((feed, upstream, downstream, rows))

    def survived(self, keys: pa.Array, offsets: Offsets) -> None:
        self._survived.append(pa.table({"key": keys, "offset": offsets}))

    def judged(self) -> tuple[list[tuple[int, int, int, tuple[Any, ...]]], int]:
        """Return what is lost without an explanation, and count the rest."""
        newest: Mapping[bytes | None, int] = {}
        if self._survived:
            groups = pa.concat_tables(self._survived).group_by("key").aggregate([("offset", "max")])
            newest = dict(zip(groups["key"].to_pylist(), groups["offset_max"].to_pylist(), strict=True))
        lost, explained = [], 0
        for feed, upstream, downstream, rows in self._lost:
            keys = rows.column("key")
            last = np.array([newest.get(key, -1) if key is not None else -1 for key in keys.to_pylist()])
            deletes = pc.is_null(rows.column("value")).to_numpy(zero_copy_only=False)
            has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
            unexplained = np.flatnonzero(~((last > downstream) | (deletes & has_key)))
            explained += len(rows) - len(unexplained)
            values = values_of(rows.take(pa.array(unexplained)))
            lost += list(
                zip(
                    [feed] * len(values),
                    upstream[unexplained].tolist(),
                    downstream[unexplained].tolist(),
                    values,
                    strict=True,
                )
            )
        return lost, explained


def _windows(pieces: list[_Piece], offsets: Offsets) -> Iterator[tuple[_Window | None, int, int]]:
    """Cut a stretch into windows that are compared at once, each with its part of the fetched offsets."""
    if not pieces:
        if len(offsets):
            yield None, 0, len(offsets)
        return
    pieces = sorted(pieces, key=lambda piece: int(piece.downstream[0]))
    lie_apart = all(one.downstream[-1] < after.downstream[0] for one, after in pairwise(pieces))
    # Of many small pieces the joint costs less than the calls for each.
    if not lie_apart or len(pieces) > 8:
        yield _Window(pieces), 0, len(offsets)
        return
    start = 0
    for number, piece in enumerate(pieces):
        end = len(offsets)
        if number + 1 < len(pieces):
            end = int(np.searchsorted(offsets, pieces[number + 1].downstream[0]))
        yield _Window([piece]), start, end
        start = end


def _by_flows(headers: pa.ListArray, aliases: frozenset[str]) -> Flags:
    """Tell which records' last hop names one of the aliases: flows wrote these, others the target's own applications."""
    flags = np.zeros(len(headers), np.bool_)
    for row in np.flatnonzero(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)).tolist():
        hops = [header["value"] for header in headers[row].as_py() if header["key"] == HOP_KEY]
        flags[row] = bool(hops) and (hops[-1] or b"").decode("utf-8", "replace").partition("/")[0] in aliases
    return flags


def _chosen(rows: pa.RecordBatch, at: Offsets | None) -> pa.RecordBatch:
    return rows if at is None else rows.take(pa.array(at))


def _of(values: Offsets, at: Offsets | None) -> Offsets:
    return values if at is None else values[at]
