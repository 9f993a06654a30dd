"""The offset map as columns: from upstream to downstream offsets and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.ranges import Ranges
from mirrorlake.verify.content import Flags, Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetColumns:
    """Dense ranges in upstream order; `labels` holds a number of the caller's for each."""

    upstream: Offsets
    downstream: Offsets
    lengths: Offsets
    labels: Offsets

    @classmethod
    def from_runs(cls, runs: pa.Table, labels: Offsets) -> OffsetColumns:
        """Split mapped ranges at their holes; `runs` has `first_upstream, last_upstream, first_downstream, holes`."""
        first, last, down = (
            runs.column(name).to_numpy().astype(np.int64)
            for name in ("first_upstream", "last_upstream", "first_downstream")
        )
        holes = runs.column("holes").combine_chunks()
        holes = holes.chunk(0) if isinstance(holes, pa.ChunkedArray) else holes
        counts = pc.fill_null(pc.list_value_length(holes), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        flat = holes.flatten()
        hole, length = (flat.field(index).to_numpy(zero_copy_only=False).astype(np.int64) for index in (0, 1))
        # A mapped range with n holes has n + 1 dense ranges.
        ends = np.cumsum(counts + 1)
        begins = ends - counts - 1
        starts = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
        lasts = np.empty_like(starts)
        is_first, is_last = np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.bool_)
        is_first[begins], is_last[ends - 1] = True, True
        starts[is_first], starts[~is_first] = first, hole + length
        lasts[is_last], lasts[~is_last] = last, hole - 1
        lengths = lasts - starts + 1
        before = np.cumsum(lengths) - lengths
        of_run = np.repeat(np.arange(len(first)), counts + 1)
        downstream = down[of_run] + before - before[begins][of_run]
        return cls(upstream=starts, downstream=downstream, lengths=lengths, labels=labels[of_run]).where(lengths > 0)

    @classmethod
    def identity(cls, ranges: Ranges) -> OffsetColumns:
        lengths = ranges.ends - ranges.firsts
        return cls(
            upstream=ranges.firsts, downstream=ranges.firsts, lengths=lengths, labels=np.zeros(len(lengths), np.int64)
        )

    def __len__(self) -> int:
        return len(self.upstream)

    @property
    def records(self) -> int:
        return int(self.lengths.sum())

    def where(self, flags: Flags) -> OffsetColumns:
        chosen = np.flatnonzero(flags)
        order = chosen[np.argsort(self.upstream[chosen], kind="stable")]
        return OffsetColumns(
            upstream=self.upstream[order],
            downstream=self.downstream[order],
            lengths=self.lengths[order],
            labels=self.labels[order],
        )

    def downstream_within(self, first: int, end: int) -> OffsetColumns:
        cut_front = np.maximum(0, first - self.downstream)
        cut_back = np.maximum(0, self.downstream + self.lengths - end)
        return self._trimmed(cut_front, cut_back)

    def upstream_within(self, spans: Ranges) -> OffsetColumns:
        parts = []
        for span in spans:
            cut_front = np.maximum(0, span.first - self.upstream)
            cut_back = np.maximum(0, self.upstream + self.lengths - span.end)
            parts.append(self._trimmed(cut_front, cut_back))
        return join_columns(parts)

    def upstream_spans(self) -> Iterable[tuple[int, int]]:
        """Return the ranges of upstream offsets, the end after the last one."""
        return zip(self.upstream.tolist(), (self.upstream + self.lengths).tolist(), strict=True)

    def records_before(self, offsets: Offsets) -> Offsets:
        """Count the mapped offsets before each upstream offset."""
        before = np.concatenate([[0], np.cumsum(self.lengths)])
        at = np.searchsorted(self.upstream, offsets)
        ends = np.concatenate([[0], self.upstream + self.lengths])
        counts: Offsets = before[at] - np.maximum(0, ends[at] - offsets)
        return counts

    def find(self, offsets: Offsets) -> tuple[Offsets, Flags]:
        if not len(self.upstream):
            return np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.bool_)
        index = np.searchsorted(self.upstream, offsets, side="right") - 1
        held = (index >= 0) & (offsets < self.upstream[index] + self.lengths[index])
        return np.maximum(index, 0), held

    def _trimmed(self, front: Offsets, back: Offsets) -> OffsetColumns:
        lengths = self.lengths - front - back
        return OffsetColumns(
            upstream=self.upstream + front, downstream=self.downstream + front, lengths=lengths, labels=self.labels
        ).where(lengths > 0)


def join_columns(parts: Iterable[OffsetColumns]) -> OffsetColumns:
    parts = list(parts)
    if not parts:
        return OffsetColumns.identity(Ranges())
    whole = OffsetColumns(
        upstream=np.concatenate([part.upstream for part in parts]),
        downstream=np.concatenate([part.downstream for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
    )
    return whole.where(np.ones(len(whole), np.bool_))
