"""The records that a lane sends: batches of one source partition, cut into chunks of a bounded size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.model.chunk_size import AIM_S
from mirrorlake.model.flow import SourcePartition, TopicPartition


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one source partition in offset order, on their way to one target partition.

    `records` has the columns `offset`, `timestamp`, `key`, `value`, `headers`.
    """

    source: SourcePartition
    target: TopicPartition
    records: pa.RecordBatch

    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the upstream offsets."""
        offsets: np.ndarray[Any, np.dtype[np.int64]] = self.records.column("offset").to_numpy(zero_copy_only=False)
        return offsets

    def after(self, position: int | None) -> Batch:
        """Return the part at or after an upstream position."""
        if position is None or len(self.records) == 0:
            return self
        start = int(np.searchsorted(self.offsets(), position))
        return self if start == 0 else replace(self, records=self.records.slice(start))

    def each_once(self) -> Batch:
        """Return the part in which every upstream offset is later than the one before (law D)."""
        offsets = self.offsets()
        if len(offsets) < 2 or bool(np.all(np.diff(offsets) > 0)):
            return self
        before = np.maximum.accumulate(offsets)[:-1]
        fresh = np.concatenate(([True], offsets[1:] > before))
        return replace(self, records=self.records.filter(pa.array(fresh)))


class Chunks:
    """Cut the records at or after a lane's positions, which grow while it sends, into chunks; a chunk can be read ahead.

    `max_bytes` is called for each chunk. A chunk also ends after a few seconds of reading, for stores that are slow.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        positions: Mapping[SourcePartition, int],
        *,
        max_records: int,
        max_bytes: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._chunks = _cut(batches, positions, max_records=max_records, max_bytes=max_bytes, clock=clock)
        self._ahead: list[Batch] | None = None
        self._read_s = 0.0

    def read_ahead(self) -> None:
        """Read the next chunk's files now, unless the last ones took long: an open transaction would time out meanwhile."""
        if self._read_s < AIM_S:
            self._read()

    def take(self) -> list[Batch]:
        """Return the next chunk, an empty one after the last."""
        self._read()
        chunk, self._ahead = self._ahead or [], None
        return chunk

    def _read(self) -> None:
        if self._ahead is None:
            began = self._clock()
            self._ahead = next(self._chunks, [])
            self._read_s = self._clock() - began


def first_part(batches: Iterable[Batch], *, max_records: int, max_bytes: int) -> list[Batch]:
    """Return the first records of batches, as many as a transaction may hold, and at least one."""
    return next(_cut(batches, {}, max_records=max_records, max_bytes=lambda: max_bytes), [])


def _cut(
    batches: Iterable[Batch],
    positions: Mapping[SourcePartition, int],
    *,
    max_records: int,
    max_bytes: Callable[[], int],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[Batch]]:
    chunk: list[Batch] = []
    began = clock()
    records = size = 0
    # A relay that holds a record twice may give it twice, too.
    reached: dict[SourcePartition, int] = {}
    for batch in batches:
        known = max(positions.get(batch.source, 0), reached.get(batch.source, 0))
        rest = batch.each_once().after(known)
        if len(rest.records):
            reached[batch.source] = int(rest.offsets()[-1]) + 1
        while len(rest.records):
            limit = max_bytes()
            taken = _taken(rest.records, max_records - records, limit - size, is_first=not chunk)
            if len(taken):
                chunk.append(replace(rest, records=taken))
            records += len(taken)
            size += taken.nbytes
            rest = replace(rest, records=rest.records.slice(len(taken)))
            if records >= max_records or size >= limit or len(rest.records) or clock() - began > AIM_S:
                yield chunk
                chunk, records, size, began = [], 0, 0, clock()
    if chunk:
        yield chunk


def _taken(records: pa.RecordBatch, max_records: int, max_bytes: int, *, is_first: bool) -> pa.RecordBatch:
    """Return the first records that fit, by their mean size; the first of a chunk fits always."""
    rows = min(len(records), max_records)
    size = records.nbytes
    if size * rows > max_bytes * len(records):
        rows = max(0, max_bytes) * len(records) // size
    return records.slice(0, max(rows, int(is_first)))
