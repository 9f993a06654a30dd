"""Translate positions on a target to the source, by the dense ranges of the offset map (law A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mirrorlake.lag.columns import Ints, lists, rows

UNBOUNDED = np.iinfo(np.int64).max
"""The translation of a position past all known records."""


class SourcePartitionKey(NamedTuple):
    source: str
    topic: str
    generation: int
    partition: int


class PartitionRoute(NamedTuple):
    """A source partition and a target partition that it feeds; the fields are ordered as in `DENSE_RANGES_BY_ROUTE`."""

    flow: str
    source: str
    source_topic: str
    generation: int
    source_partition: int
    target: str
    target_topic: str
    target_partition: int

    @property
    def start(self) -> SourcePartitionKey:
        return SourcePartitionKey(self.source, self.source_topic, self.generation, self.source_partition)

    @property
    def end(self) -> tuple[str, str, int]:
        return self.target, self.target_topic, self.target_partition


@dataclass(frozen=True, slots=True)
class DenseRanges:
    first: Ints
    downstream: Ints
    last: Ints

    def unread(self, positions: Ints) -> Ints:
        """Translate target positions to the upstream offset of the oldest unread record, UNBOUNDED past all records."""
        if not len(self.last):
            return np.full(len(positions), UNBOUNDED)
        at = np.searchsorted(self.last, positions)
        near = np.minimum(at, len(self.last) - 1)
        unread = self.first[near] + np.maximum(positions - self.downstream[near], 0)
        return np.where(at < len(self.last), unread, UNBOUNDED)


RangesByRoute = dict[PartitionRoute, DenseRanges]
"""The dense ranges of all routes to partitions that groups read."""


def read_dense_ranges(table: pa.Table) -> RangesByRoute:
    counts, columns = lists(table["stretches"])
    ranges, end = {}, 0
    for route, count in zip(rows(table, PartitionRoute._fields), counts, strict=True):
        begin, end = end, end + count
        downstream, first, length = (columns[name][begin:end] for name in ("downstream", "first", "length"))
        last = downstream + length - 1
        order = np.argsort(last, kind="stable")
        ranges[PartitionRoute(*route)] = DenseRanges(first[order], downstream[order], last[order])
    return ranges
