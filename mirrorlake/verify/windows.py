"""Align fetched rows with the records of feeds, as columns in downstream order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.verify.content import Offsets, joined


@dataclass(slots=True)
class FeedRecords:
    feed: int
    label: int
    upstream: Offsets
    downstream: Offsets
    rows: pa.RecordBatch

    def sliced(self, start: int, end: int) -> FeedRecords:
        return FeedRecords(
            self.feed,
            self.label,
            self.upstream[start:end],
            self.downstream[start:end],
            self.rows.slice(start, end - start),
        )


class Window:
    """The records of feeds for an offset range, in downstream order; `origin` is the index of a record's part."""

    def __init__(self, pieces: Iterable[FeedRecords]) -> None:
        self.parts = pieces = sorted(pieces, key=lambda piece: int(piece.downstream[0]))
        self.upstream = np.concatenate([piece.upstream for piece in pieces])
        self.downstream = np.concatenate([piece.downstream for piece in pieces])
        self.rows = joined([piece.rows for piece in pieces])
        self.origin = np.repeat(np.arange(len(pieces)), [len(piece.upstream) for piece in pieces])
        if np.any(np.diff(self.downstream) < 0):
            order = np.argsort(self.downstream, kind="stable")
            self.upstream, self.downstream, self.origin = (
                values[order] for values in (self.upstream, self.downstream, self.origin)
            )
            self.rows = self.rows.take(pa.array(order))

    def by_target(self, chosen: Offsets) -> Iterator[tuple[FeedRecords, Offsets, Offsets, pa.RecordBatch]]:
        """Yield chosen rows by target: a part of it, upstream and downstream offsets, and content."""
        ways = {(piece.feed, piece.label): piece for piece in self.parts}
        numbers = {key: number for number, key in enumerate(ways)}
        of_row = np.array([numbers[piece.feed, piece.label] for piece in self.parts])[self.origin]
        for number, piece in enumerate(ways.values()):
            mine = chosen[of_row[chosen] == number]
            if len(mine) == len(self.upstream):
                yield piece, self.upstream, self.downstream, self.rows
            elif len(mine):
                yield piece, self.upstream[mine], self.downstream[mine], self.rows.take(pa.array(mine))
