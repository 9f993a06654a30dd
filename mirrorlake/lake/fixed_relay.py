"""Read a relay at a fixed version: its counts by source partition, and its rows in order.

The log of a relay in a folder has most of it, so that no session is needed (`FolderRelay`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirrorlake.lake.reading_order import group_overlapping
from mirrorlake.lake.relay_files import COLUMNS, RelayFile, read_in_order, read_offsets
from mirrorlake.lake.spark_tables import quote
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.ranges import OffsetRange, Offsets, Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Offsets that a query of the session reads: few for a page of records, then as many as take 200 MB at 1 KB a record.
_FIRST_BATCH_SIZE, _BATCH_SIZE = 1_000, 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCount:
    """The relay's records of one source partition; duplicates make `rows` more than `records`."""

    rows: int
    records: int
    first: int
    last: int

    @property
    def span(self) -> OffsetRange:
        return OffsetRange(self.first, self.last + 1)


class FixedRelay(ABC):
    """One relay at one version. Threads may share it."""

    version: int

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[SourcePartition, LandedCount] | None = None

    @property
    def landed(self) -> Mapping[SourcePartition, LandedCount]:
        with self._lock:
            if self._counted is None:
                self._counted = self._count_landed()
            return self._counted

    @abstractmethod
    def _count_landed(self) -> dict[SourcePartition, LandedCount]: ...

    @abstractmethod
    def offsets(self, source: SourcePartition, span: OffsetRange) -> Offsets:
        """Read the offsets in a range, ascending; a duplicate comes twice."""

    @abstractmethod
    def count(self, source: SourcePartition, span: OffsetRange) -> int: ...

    @abstractmethod
    def rows(
        self, source: SourcePartition, ranges: Ranges, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some offsets, each offset once and in order (law D); `columns` begin with `offset`."""

    def find_doubles(self, source: SourcePartition, span: OffsetRange, records: int) -> Sequence[int]:  # noqa: ARG002
        """Return the duplicate offsets of a range of which `rows` yielded `records`, if `landed` did not count them."""
        return ()


class FolderRelay(FixedRelay):
    """A relay whose files this process reads."""

    def __init__(self, version: int, files: Sequence[RelayFile]) -> None:
        super().__init__()
        self.version = version
        self._files: dict[SourcePartition, list[RelayFile]] = {}
        for file in sorted(files, key=attrgetter("first_offset", "last_offset")):
            self._files.setdefault(file.source, []).append(file)

    def _count_landed(self) -> dict[SourcePartition, LandedCount]:
        found = {}
        for source, files in self._files.items():
            rows = sum(file.records for file in files)
            whole = OffsetRange(files[0].first_offset, max(file.last_offset for file in files) + 1)
            found[source] = LandedCount(
                rows=rows, records=self.count(source, whole), first=whole.first, last=whole.end - 1
            )
        return found

    def offsets(self, source: SourcePartition, span: OffsetRange) -> Offsets:
        parts = [read_offsets(file) for file in self._files_of(source, span)]
        offsets = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        low, high = np.searchsorted(offsets, span)
        return offsets[low:high]

    def count(self, source: SourcePartition, span: OffsetRange) -> int:
        """Count the records in a range; files are opened where they cross its ends, overlap, or hold more than fits."""
        count = 0
        for stretch in group_overlapping(self._files_of(source, span)):
            first, last = stretch[0].first_offset, max(file.last_offset for file in stretch)
            rows = sum(file.records for file in stretch)
            if len(stretch) == 1 and first >= span.first and last < span.end and rows <= last - first + 1:
                count += rows
            else:
                offsets = np.unique(np.concatenate([read_offsets(file) for file in stretch]))
                count += int(np.diff(np.searchsorted(offsets, span))[0])
        return count

    def _files_of(self, source: SourcePartition, span: OffsetRange) -> tuple[RelayFile, ...]:
        return tuple(
            file
            for file in self._files.get(source, ())
            if file.last_offset >= span.first and file.first_offset < span.end
        )

    def rows(
        self, source: SourcePartition, ranges: Ranges, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        if not ranges:
            return
        files = self._files_of(source, OffsetRange(ranges.first, ranges.end))
        for rows in read_in_order(files, position=ranges.first, columns=columns):
            offsets = rows.column("offset").to_numpy()
            chosen = ranges.contains(offsets)
            if chosen.any():
                yield rows if chosen.all() else rows.filter(pa.array(chosen))
            if offsets[-1] >= ranges.end:
                return

    def find_doubles(self, source: SourcePartition, span: OffsetRange, records: int) -> Sequence[int]:
        """Return the duplicates, also within a file with holes, whose statistics do not show them."""
        files = self._files_of(source, span)
        are_whole = all(file.first_offset >= span.first and file.last_offset < span.end for file in files)
        if are_whole and sum(file.records for file in files) == records:
            return ()
        offsets, copies = np.unique(self.offsets(source, span), return_counts=True)
        doubled: list[int] = offsets[copies > 1].tolist()
        if doubled:
            held = self.landed[source]
            count = len(np.unique(self.offsets(source, held.span)))
            with self._lock:
                self._counted = {**(self._counted or {}), source: replace(held, records=count)}
        return doubled


class SessionRelay(FixedRelay):
    """A relay that only the session reads: in a catalog, or in an object store without `lake.storage`."""

    def __init__(self, version: int, frame: DataFrame) -> None:
        super().__init__()
        self.version = version
        self._frame = frame

    def _count_landed(self) -> dict[SourcePartition, LandedCount]:
        from pyspark.sql import functions as F

        # One bit an offset, because counting distinct offsets would shuffle all of them.
        bit = F.col("offset") + 1
        buckets = self._frame.groupBy(*SOURCE_KEY, F.bitmap_bucket_number(bit).alias("bucket")).agg(
            F.count("*").alias("rows"),
            F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position(bit))).alias("records"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
        )
        counts = [F.sum(name).alias(name) for name in ("rows", "records")]
        found = buckets.groupBy(*SOURCE_KEY).agg(*counts, F.min("first").alias("first"), F.max("last").alias("last"))
        return {
            SourcePartition(row.topic, row.generation, row.partition): LandedCount(
                rows=row["rows"], records=row.records, first=row["first"], last=row["last"]
            )
            for row in found.collect()
        }

    def offsets(self, source: SourcePartition, span: OffsetRange) -> Offsets:
        offsets: Offsets = np.sort(self._part(source, span).select("offset").toArrow().column(0).to_numpy())
        return offsets

    def count(self, source: SourcePartition, span: OffsetRange) -> int:
        held = self.landed.get(source)
        if held is not None and span.first <= held.first and held.last < span.end:
            return held.records
        return int(self._part(source, span).select("offset").distinct().count())

    def rows(
        self, source: SourcePartition, ranges: Ranges, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        count = _FIRST_BATCH_SIZE
        for low, end in ranges:
            while low < end:
                part = self._part(source, OffsetRange(low, min(low + count, end)))
                low, count = low + count, min(count * 10, _BATCH_SIZE)
                rows = part.sort("offset", "landed_at").select(*columns).toArrow().combine_chunks()
                if len(rows):
                    fresh = np.concatenate(([True], np.diff(rows.column("offset").to_numpy()) > 0))
                    yield from (rows if fresh.all() else rows.filter(pa.array(fresh)).combine_chunks()).to_batches()

    def file_of(self, source: SourcePartition, span: OffsetRange) -> str:
        """Return the address of a file with a record of a range, or "" without one."""
        files = self._part(source, span).select("_metadata.file_path").limit(1).collect()
        return next((row.file_path for row in files), "")

    def _part(self, source: SourcePartition, span: OffsetRange) -> DataFrame:
        return self._frame.where(
            f"topic = {quote(source.topic)} AND generation = {source.generation} AND partition = {source.partition} "
            f"AND `offset` >= {span.first} AND `offset` < {span.end}"
        )
