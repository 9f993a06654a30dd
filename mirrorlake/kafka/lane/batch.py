"""Batches of a lane's records, each of one source partition, and their division into chunks of bounded size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirrorlake.model.chunk_size import AIM_S
from mirrorlake.model.flow import SourcePartition, TopicPartition

_GATHERED_RECORDS, _GATHERED_BYTES = 500, 1 << 20

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Records of one source partition in offset order, on their way to one target partition.

    `records` has the columns `offset`, `timestamp`, `key`, `value`, `headers`.
    """

    source: SourcePartition
    target: TopicPartition
    records: pa.RecordBatch

    @cached_property
    def offsets(self) -> _Offsets:
        offsets: _Offsets = self.records.column("offset").to_numpy(zero_copy_only=False)
        return offsets

    @cached_property
    def nbytes(self) -> int:
        return int(self.records.nbytes)

    def part(self, start: int, end: int) -> Batch:
        if start == 0 and end == len(self.records):
            return self
        return Batch(self.source, self.target, self.records.slice(start, end - start))

    def after(self, position: int | None) -> Batch:
        if position is None or len(self.records) == 0 or self.offsets[0] >= position:
            return self
        return self.part(int(np.searchsorted(self.offsets, position)), len(self.records))

    def each_once(self) -> Batch:
        """Return the part in which every upstream offset is later than the one before (law D)."""
        if len(self.records) < 2:
            return self
        offsets = self.offsets
        if bool(np.all(np.diff(offsets) > 0)):
            return self
        before = np.maximum.accumulate(offsets)[:-1]
        fresh = np.concatenate(([True], offsets[1:] > before))
        return Batch(self.source, self.target, self.records.filter(pa.array(fresh)))


class Chunks:
    """Cut the records at or after a lane's positions into chunks. The positions grow while the lane sends; a chunk can be read ahead.

    `max_bytes` is called for each chunk. For slow stores, a chunk also ends after a few seconds of reading.
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
        """Read the next chunk's files, unless the last ones took long: an open transaction would time out meanwhile."""
        if self._read_s < AIM_S:
            self._read()

    def take(self) -> list[Batch]:
        """Return the next chunk, or [] after the last."""
        self._read()
        chunk, self._ahead = self._ahead or [], None
        return chunk

    def _read(self) -> None:
        if self._ahead is None:
            began = self._clock()
            self._ahead = next(self._chunks, [])
            self._read_s = self._clock() - began


def first_part(batches: Iterable[Batch], *, max_records: int, max_bytes: int) -> list[Batch]:
    """Return the first records of batches, as many as a transaction may hold, at least one."""
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
    # A relay that holds a record twice may yield it twice.
    reached: dict[SourcePartition, int] = {}
    for batch in batches:
        known = max(positions.get(batch.source, 0), reached.get(batch.source, 0))
        rest = batch.each_once().after(known)
        if len(rest.records):
            reached[rest.source] = int(rest.offsets[-1]) + 1
        while rows := len(rest.records):
            limit = max_bytes()
            count = _fitting(rest, max_records - records, limit - size, is_first=not chunk)
            if count:
                chunk.append(rest.part(0, count))
                size += chunk[-1].nbytes
            records += count
            if records >= max_records or size >= limit or count < rows or clock() - began > AIM_S:
                yield chunk
                chunk, records, size, began = [], 0, 0, clock()
            if count == rows:
                break
            rest = rest.part(count, rows)
    if chunk:
        yield chunk


def _fitting(batch: Batch, max_records: int, max_bytes: int, *, is_first: bool) -> int:
    """Return how many of the first records fit, by their mean size; a chunk's first record always fits."""
    rows = min(len(batch.records), max_records)
    if batch.nbytes * rows > max_bytes * len(batch.records):
        rows = max(0, max_bytes) * len(batch.records) // batch.nbytes
    return max(rows, int(is_first))


def gather(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Yield consecutive batches in groups of a few hundred records or a megabyte.

    A call per batch costs as much as 50 records: with many partitions of one record each, ten times as much as the records.
    """
    gathered: list[Batch] = []
    records = size = 0
    for batch in batches:
        gathered.append(batch)
        records += len(batch.records)
        size += batch.nbytes
        if records >= _GATHERED_RECORDS or size >= _GATHERED_BYTES:
            yield gathered
            gathered, records, size = [], 0, 0
    if gathered:
        yield gathered


def concatenate(batches: Sequence[Batch]) -> list[tuple[Sequence[Batch], pa.RecordBatch]]:
    """Return the records of batches as one record batch, or as several if their columns differ in type."""
    if len(batches) == 1:
        return [(batches, batches[0].records)]
    schema = batches[0].records.schema
    if any(batch.records.schema != schema for batch in batches[1:]):
        return [(batches[n : n + 1], batch.records) for n, batch in enumerate(batches)]
    [records] = pa.Table.from_batches([batch.records for batch in batches]).combine_chunks().to_batches()
    return [(batches, records)]
