"""Compare two ordered streams of records: those that a cluster returns, and those of the relay at the same offsets.

A feed yields the relay's records of one source partition in upstream order; its offset columns map each to the fetched
partitions. Both sides are compared as columns, and record by record only where they differ. A merged topic has several feeds in
one partition; if records are placed by key, a feed leads to several partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import COLUMNS
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.verify import MAX_DIFFERENCES
from mirrorlake.verify.compacted import CompactedLog
from mirrorlake.verify.content import Digest, Flags, Offsets, are_same, content_of, differing, values_of, without_kind
from mirrorlake.verify.feeds import FeedTarget, FetchedPart, ReadHorizons, RelayFeed, within
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRanges
from mirrorlake.verify.windows import FeedRecords, Window, chosen_rows, chosen_values, windows

# Past this many suspect offsets of a source partition, the rest is left for the next verification.
_MAX_SUSPECTS = 64
COMPACTED, REMOVED, TOMBSTONES = "compacted", "removed", "tombstones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """An offset where both sides differ: its fed and fetched content, or a digest of it; None for no record."""

    target: int
    offset: int
    fed: tuple[Any, ...] | bytes | None
    fetched: tuple[Any, ...] | bytes | None


@dataclass(slots=True)
class EqualRecords:
    """The records of a feed that were found equal on one target."""

    records: int = 0
    first: int = -1
    last: int = -1
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


class StreamComparison:
    """Compare fetched partitions with the feeds that lead to them.

    With `fed_is_source` the fetched side must equal the feeds; otherwise the fetched side is the source, and types of timestamps
    count, too. Results are the attributes `mismatches`, `proven` by feed and target, `suspects` by feed, `explained` by fetched
    partition and reason, `matched` records by feed.
    """

    def __init__(self, feeds: Sequence[RelayFeed], fetched: Sequence[FetchedPart], *, fed_is_source: bool) -> None:
        self._feeds = feeds
        self._fetched = fetched
        self._fed_is_source = fed_is_source
        self._cursor = [one.span.first for one in fetched]
        self._pending: list[list[FeedRecords]] = [[] for _ in fetched]
        self._orphans = [False for _ in fetched]
        self._compacted: dict[int, CompactedLog] = {}
        self._horizons = [ReadHorizons(feeds, number) for number in range(len(fetched))]
        self.mismatches: list[Mismatch] = []
        self.beyond = 0
        self.proven: dict[tuple[int, int], EqualRecords] = {}
        self.suspects = [SuspectOffsets() for _ in feeds]
        self.explained: list[Counter[str]] = [Counter() for _ in fetched]
        self.matched = [0 for _ in feeds]

    def take(self, target: int, rows: pa.RecordBatch | None, read_to: int) -> None:
        """Compare the rows fetched from a partition up to `read_to`; None for no rows."""
        span = self._fetched[target].span
        horizon = min(read_to, span.end)
        if horizon <= self._cursor[target]:
            return
        for feed, upstream in self._horizons[target].up_to(horizon):
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
        for window, start, end in windows(self._due(target, horizon), offsets):
            part = None if content is None else content.slice(start, end - start)
            self._compare(target, window, offsets[start:end], part)
        if content is not None and target in self._compacted:
            self._compacted[target].survived(content.column("key"), offsets)

    def unexplained(self) -> list[int]:
        """Return the compacted partitions that lack records; a record past the end may have replaced them."""
        return [target for target, compacted in self._compacted.items() if compacted.judged()[0]]

    def note_survivors(self, target: int, rows: pa.RecordBatch) -> None:
        """Add records that a compacted partition holds past the end of the comparison."""
        self._compacted[target].survived(rows.column("key"), rows.column("offset").to_numpy())

    def finish(self) -> None:
        """Decide which records of compacted partitions are lost."""
        for target, compacted in self._compacted.items():
            lost, self.explained[target][COMPACTED] = compacted.judged()
            for feed, upstream, offset, content in lost:
                self.suspects[feed].add([upstream])
                self._add_mismatch(Mismatch(target=target, offset=offset, fed=content, fetched=None))

    def _advance(self, number: int) -> None:
        feed = self._feeds[number]
        batch = next(feed.batches, None)
        if batch is None:
            feed.position = UNBOUNDED
            return
        offsets = batch.column("offset").to_numpy()
        feed.position = int(offsets[-1]) + 1
        feed.read += len(offsets)
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
            self._pending[feed.targets[label].target].append(piece)

    def _due(self, target: int, horizon: int) -> list[FeedRecords]:
        due, left = [], []
        for piece in self._pending[target]:
            end = int(np.searchsorted(piece.downstream, horizon))
            if end:
                due.append(piece.sliced(0, end))
            if end < len(piece.downstream):
                left.append(piece.sliced(end, len(piece.downstream)))
        self._pending[target] = left
        return due

    def _compare(self, target: int, window: Window | None, offsets: Offsets, rows: pa.RecordBatch | None) -> None:
        if window is None:
            self._only_fetched(target, None, offsets, rows, np.arange(len(offsets)))
            return
        if self._orphans[target]:
            # An unexpected record makes the record after it suspect.
            self._orphans[target] = False
            self.suspects[window.part_of(0).feed].add([int(window.upstream[0])])
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
            self._suspect(window, wrong)
            wrong, others = wrong[:MAX_DIFFERENCES], others[:MAX_DIFFERENCES]
            self.beyond += int(bad.sum()) - len(wrong)
            fed, fetched = (values_of(side.take(pa.array(at))) for side, at in ((window.rows, wrong), (rows, others)))
            for offset, one, other in zip(window.downstream[wrong].tolist(), fed, fetched, strict=True):
                self._add_mismatch(Mismatch(target=target, offset=offset, fed=one, fetched=other))
        self._prove(window, good)

    def _differing(
        self, window: Window, fed: pa.RecordBatch, fetched: pa.RecordBatch, rows: Offsets | None = None
    ) -> Flags | None:
        """Flag the records whose content differs; None where none does."""
        comparable = [self._target_of(piece).is_comparable for piece in window.parts]
        if not any(comparable) or are_same(fed, fetched):
            return None
        bad = differing(fed, fetched)
        if not all(comparable):
            origin = np.zeros(len(window.upstream), np.int64) if window.origin is None else window.origin
            bad &= np.array(comparable)[origin if rows is None else origin[rows]]
        return bad if bad.any() else None

    def _target_of(self, piece: FeedRecords) -> FeedTarget:
        return self._feeds[piece.feed].targets[piece.label]

    def _prove(self, window: Window, chosen: Offsets | None) -> None:
        for piece, upstream, downstream, rows in window.by_target(chosen):
            proven = self.proven.setdefault((piece.feed, piece.label), EqualRecords())
            if not proven.records:
                proven.first = int(downstream[0])
            proven.last = int(downstream[-1])
            proven.records += len(upstream)
            self.matched[piece.feed] += len(upstream)
            if self._target_of(piece).is_comparable:
                proven.digest.add(upstream, rows)

    def _only_fed(self, target: int, window: Window, only: Offsets) -> None:
        if not len(only):
            return
        if self._fetched[target].compacts:
            compacted = self._compacted.setdefault(target, CompactedLog())
            for piece, upstream, downstream, rows in window.by_target(only):
                compacted.lost(piece.feed, upstream, downstream, rows)
            return
        self._suspect(window, only)
        shown = only[:MAX_DIFFERENCES]
        self.beyond += len(only) - len(shown)
        for offset, content in zip(
            window.downstream[shown].tolist(), values_of(window.rows.take(pa.array(shown))), strict=True
        ):
            self._add_mismatch(Mismatch(target=target, offset=offset, fed=content, fetched=None))

    def _only_fetched(
        self, target: int, window: Window | None, offsets: Offsets, rows: pa.RecordBatch | None, only: Offsets
    ) -> None:
        if rows is None or not len(only):
            return
        removed = self._horizons[target].removed(offsets[only])
        self.explained[target][REMOVED] += int(removed.sum())
        only = only[~removed]
        written = within(self._fetched[target].tombstones, offsets[only])
        self.explained[target][TOMBSTONES] += int(written.sum())
        only = only[~written]
        own = self._fetched[target].own
        if own is not None and len(only):
            only = only[_by_flows(rows.column("headers").take(pa.array(only)), own)]
        if not len(only):
            return
        self._suspect_extra(target, window, offsets[only])
        shown = only[:MAX_DIFFERENCES]
        self.beyond += len(only) - len(shown)
        for offset, content in zip(offsets[shown].tolist(), values_of(rows.take(pa.array(shown))), strict=True):
            self._add_mismatch(Mismatch(target=target, offset=offset, fed=None, fetched=content))

    def _suspect(self, window: Window, rows: Offsets) -> None:
        for row in rows[: _MAX_SUSPECTS + 1].tolist():
            self.suspects[window.part_of(row).feed].add([int(window.upstream[row])])

    def _suspect_extra(self, target: int, window: Window | None, offsets: Offsets) -> None:
        if not self._fed_is_source:
            # The fetched side is the source, so its offsets are upstream ones.
            for feed in self._horizons[target].feeds:
                self.suspects[feed].add(offsets[: _MAX_SUSPECTS + 1].tolist())
            return
        if window is None:
            self._orphans[target] = True
            return
        after = np.unique(np.searchsorted(window.downstream, offsets))
        self._orphans[target] |= bool(after[-1] == len(window.downstream))
        self._suspect(window, after[after < len(window.downstream)])

    def _add_mismatch(self, found: Mismatch) -> None:
        if len(self.mismatches) < MAX_DIFFERENCES:
            self.mismatches.append(found)
        else:
            self.beyond += 1


def _by_flows(headers: pa.ListArray, aliases: frozenset[str]) -> Flags:
    """Flag the records whose last hop names one of the aliases; applications of the target wrote the others."""
    flags = np.zeros(len(headers), np.bool_)
    for row in np.flatnonzero(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)).tolist():
        hops = [header["value"] for header in headers[row].as_py() if header["key"] == HOP_KEY]
        flags[row] = bool(hops) and (hops[-1] or b"").decode("utf-8", "replace").partition("/")[0] in aliases
    return flags
