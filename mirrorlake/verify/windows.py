"""Align fetched rows with the records of feeds, as columns in downstream order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mirrorlake.verify.content import Offsets, joined


@dataclass(slots=True)
class FeedRecords:
    """Records of a feed for one target, ascending in both offsets."""

    feed: int
    label: int
    upstream: Offsets
    downstream: Offsets
    rows: pa.RecordBatch

    def sliced(self, start: int, end: int) -> FeedRecords:
        """Return the records from one index up to another."""
        return FeedRecords(
            self.feed,
            self.label,
            self.upstream[start:end],
            self.downstream[start:end],
            self.rows.slice(start, end - start),
        )


class Window:
    """The records of feeds for an offset range, in downstream order; `origin` is the index of a record's part."""

    def __init__(self, pieces: Sequence[FeedRecords]) -> None:
        self.parts = pieces
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

    def part_of(self, row: int) -> FeedRecords:
        """Return the part of a record."""
        return self.parts[0 if self.origin is None else int(self.origin[row])]

    def by_target(self, chosen: Offsets | None) -> Iterator[tuple[FeedRecords, Offsets, Offsets, pa.RecordBatch]]:
        """Yield chosen rows, None for all, by target: a part of it, upstream and downstream offsets, and content."""
        if self.origin is None:
            if chosen is None:
                yield self.parts[0], self.upstream, self.downstream, self.rows
            elif len(chosen):
                yield (
                    self.parts[0],
                    self.upstream[chosen],
                    self.downstream[chosen],
                    self.rows.take(pa.array(chosen)),
                )
            return
        ways = {(piece.feed, piece.label): piece for piece in self.parts}
        numbers = {key: number for number, key in enumerate(ways)}
        of_row = np.array([numbers[piece.feed, piece.label] for piece in self.parts])[self.origin]
        rows = np.arange(len(self.upstream)) if chosen is None else chosen
        for key, number in numbers.items():
            mine = rows[of_row[rows] == number]
            if len(mine):
                yield ways[key], self.upstream[mine], self.downstream[mine], self.rows.take(pa.array(mine))


def windows(pieces: list[FeedRecords], offsets: Offsets) -> Iterator[tuple[Window | None, int, int]]:
    """Split an offset range into windows that are compared at once, each with its part of the fetched offsets."""
    if not pieces:
        if len(offsets):
            yield None, 0, len(offsets)
        return
    pieces = sorted(pieces, key=lambda piece: int(piece.downstream[0]))
    lie_apart = all(one.downstream[-1] < after.downstream[0] for one, after in pairwise(pieces))
    # Joining many small parts costs less than comparing each.
    if not lie_apart or len(pieces) > 8:
        yield Window(pieces), 0, len(offsets)
        return
    start = 0
    for number, piece in enumerate(pieces):
        end = len(offsets)
        if number + 1 < len(pieces):
            end = int(np.searchsorted(offsets, pieces[number + 1].downstream[0]))
        yield Window([piece]), start, end
        start = end


def chosen_rows(rows: pa.RecordBatch, at: Offsets | None) -> pa.RecordBatch:
    """Return some rows, None for all."""
    return rows if at is None else rows.take(pa.array(at))


def chosen_values(values: Offsets, at: Offsets | None) -> Offsets:
    """Return some values, None for all."""
    return values if at is None else values[at]
