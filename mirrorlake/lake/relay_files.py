"""Read the relay's Parquet files in a worker: no record crosses the border between JVM and Python (DESIGN 9).

Runs where Spark's Python workers run; needs pyarrow, no Spark session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import reduce
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.errors import StoreError
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.runtime import open_place, store_of

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# 10 000 rows: Arrow's cost per batch vanishes, and records of 1 KB still fit the processor's cache in parts.
_ROWS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class RelayFile:
    """A file with records of one source partition; `shared` when it holds other source partitions, too.

    `newest` is the newest timestamp among them where the relay's log tells it.
    """

    source: SourcePartition
    first_offset: int
    last_offset: int
    records: int
    uri: str
    shared: bool = False
    newest: datetime | None = field(default=None, compare=False)


def read_in_order(
    files: Iterable[RelayFile], *, position: int | None = None, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one source partition, each upstream offset once and in order (law D).

    A relay may hold a record twice: two landers of an older release, a table that was restored or rewritten. Files that
    overlap are merged, and of two records with one offset the first counts. A file is opened when its first offset is reached.
    """
    waiting: list[tuple[int, int, pa.RecordBatch | None, Iterator[pa.RecordBatch]]] = [
        (file.first_offset, number, None, read_records(file, position=position, columns=columns))
        for number, file in enumerate(sorted(files))
    ]
    heapify(waiting)
    last = -1
    while waiting:
        _, number, batch, rest = heappop(waiting)
        if batch is None:
            batch = next(rest, None)
            if batch is None:
                continue
            heappush(waiting, (_first(batch), number, batch, rest))
            continue
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        until = len(offsets) if not waiting else int(np.searchsorted(offsets, waiting[0][0], side="right"))
        known = int(np.searchsorted(offsets, last, side="right"))
        if known < until:
            last = int(offsets[until - 1])
            yield batch.slice(known, until - known)
        until = max(until, known)
        if until < len(offsets):
            heappush(waiting, (int(offsets[until]), number, batch.slice(until), rest))
        elif (following := next(rest, None)) is not None:
            heappush(waiting, (_first(following), number, following, rest))


@contextmanager
def _naming_broken(file: RelayFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        *_, kind, alias, name = file.uri.split("/")
        is_missing = isinstance(error, FileNotFoundError)
        what = "is missing" if is_missing else f"is broken: {' '.join(str(error).split())[:200]}"
        raise StoreError(
            f"{name} in the relay of {alias} {what}; it holds {file.source} {file.first_offset}..{file.last_offset}",
            consequence=f"these records of {file.source.topic} and those after them wait; nothing was skipped",
            remedy=f"mirrorlake repair --source {alias if kind == 'relay' else 'A'}",
            source_topic=file.source.topic,
            broken_file=file.uri,
        ) from error


def is_whole_or_replaced(uri: str) -> bool:
    """Return whether a record file can be read to its end, or its relay does not name it any more."""
    filesystem, path = open_place(uri)
    folder, _, name = (f"/{path}" if isinstance(filesystem, fs.LocalFileSystem) else uri).rpartition("/")
    files = _list_files(folder, {})
    if files is not None and all(file.uri.rpartition("/")[2] != name for file in files):
        return True
    try:
        with filesystem.open_input_file(path) as opened:
            for _ in pq.ParquetFile(opened).iter_batches(batch_size=_ROWS):
                pass
    except (OSError, pa.ArrowInvalid):
        return False
    return True


def _list_files(folder: str, positions: Mapping[SourcePartition, int]) -> list[RelayFile] | None:
    from mirrorlake.lake.delta_rs import FolderTables
    from mirrorlake.lake.relay_log import RelayLog

    tables = FolderTables()
    return RelayLog(tables, folder).files(positions) if tables.has(folder) else None


def _first(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[0].as_py())


def read_records(
    file: RelayFile, *, position: int | None = None, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yield the file's records of its source partition in offset order, from `position` on, each offset once.

    `columns` begin with `offset`.

    Where the file was rewritten since it was listed and is not on disk any more, those in its place are read, also from the
    middle on: what was erased is in none of them (law E: the table `removed` says so).
    """
    filesystem, path = open_place(file.uri)
    local = Path("/", path) if isinstance(filesystem, fs.LocalFileSystem) else None
    try:
        opened = filesystem.open_input_file(path)
    except FileNotFoundError:
        if local is None and store_of(file.uri) is None:
            raise
        yield from _read_in_its_place(file, local, position, columns)
        return
    with opened, _naming_broken(file):
        for rows in _read_open(opened, file, position, columns, is_far=local is None):
            last = int(rows.column("offset")[-1].as_py())
            yield rows
            # An open file can be read when it is deleted, for as long as a slow target takes: 2 us for 10 000 records.
            if local is not None and last < file.last_offset and not local.exists():
                position = last + 1
                break
        else:
            return
    yield from _read_in_its_place(file, local, position, columns)


def _read_in_its_place(
    file: RelayFile, local: Path | None, position: int | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    folder = file.uri.rpartition("/")[0] if local is None else str(local.parent)
    listed = _list_files(folder, {file.source: file.first_offset})
    if listed is None:
        raise FileNotFoundError(file.uri)
    found = [one for one in listed if one.source == file.source and one.first_offset <= file.last_offset]
    if any(one.uri == file.uri for one in found):
        # The table names it, and it is gone: lost, not rewritten.
        with _naming_broken(file):
            raise FileNotFoundError(file.uri)
    for rows in read_in_order(found, position=max(position or 0, file.first_offset), columns=columns):
        until = int(np.searchsorted(rows.column("offset").to_numpy(), file.last_offset, side="right"))
        if until:
            yield rows.slice(0, until)


def _read_open(
    source: Any, file: RelayFile, position: int | None, columns: Sequence[str], *, is_far: bool
) -> Iterator[pa.RecordBatch]:
    places = ["offset", *(SOURCE_KEY if file.shared else ())]
    # Few large reads suit a store. A folder's file is in the page cache: to have another thread read it costs up to 0.4 ms.
    parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=is_far)
    # Landing writes in order. What rewrote the table may not have, and that shows in a column of 1 byte a record.
    is_ordered = _is_ordered(_mine(parquet.read(columns=places, use_threads=False), file))
    names = [*columns, *places[1:]]
    if is_ordered:
        batches: Iterable[pa.RecordBatch] = (
            rows
            for batch in parquet.iter_batches(batch_size=_ROWS, columns=names, use_threads=False)
            for rows in _mine(pa.Table.from_batches([batch]), file).to_batches()
        )
    else:
        batches = _sorted(_mine(parquet.read(columns=names, use_threads=False), file))
    for rows in batches:
        if position is not None and len(rows) and _first(rows) < position:
            offsets = rows.column("offset").to_numpy(zero_copy_only=False)
            rows = rows.slice(int(np.searchsorted(offsets, position)))
        if len(rows):
            yield rows.select(list(columns))


def read_offsets(file: RelayFile) -> npt.NDArray[np.int64]:
    """Read the offsets of the file's records of its source partition, as they stand there: one may come twice."""
    filesystem, path = open_place(file.uri)
    try:
        opened = filesystem.open_input_file(path)
    except FileNotFoundError:
        # Rewritten since it was listed.
        parts = [rows.column("offset").to_numpy() for rows in read_records(file, columns=("offset",))]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
    with opened as source:
        places = ["offset", *(SOURCE_KEY if file.shared else ())]
        rows = _mine(pq.ParquetFile(source, pre_buffer=True).read(columns=places, use_threads=False), file)
        offsets: npt.NDArray[np.int64] = rows.column("offset").to_numpy()
        return offsets


def newest_timestamp(file: RelayFile) -> datetime:
    """Return the newest timestamp of a file's records, by the log, its footer, or the column: whichever tells it first."""
    if file.newest is not None:
        # Delta's statistics are cut to milliseconds, and Kafka's times have no more. To open a file costs 1 ms of CPU.
        return file.newest
    filesystem, path = open_place(file.uri)
    with filesystem.open_input_file(path) as source:
        parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        column = parquet.schema.names.index("timestamp")
        groups = [parquet.metadata.row_group(n).column(column) for n in range(parquet.num_row_groups)]
        if all(group.is_stats_set and group.statistics.has_min_max for group in groups):
            return max(_utc(group.statistics.max) for group in groups)
        return _utc(pc.max(parquet.read(columns=["timestamp"], use_threads=False).column(0)).as_py())


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)


def _is_ordered(rows: pa.Table) -> bool:
    return bool(np.all(np.diff(rows.column("offset").to_numpy()) > 0))


def _sorted(rows: pa.Table) -> Iterable[pa.RecordBatch]:
    offsets = rows.column("offset").to_numpy()
    order = np.argsort(offsets, kind="stable")
    fresh = np.concatenate(([True], np.diff(offsets[order]) > 0))
    batches: Iterable[pa.RecordBatch] = (
        rows.take(pa.array(order[fresh])).combine_chunks().to_batches(max_chunksize=_ROWS)
    )
    return batches


def _mine(rows: pa.Table, file: RelayFile) -> pa.Table:
    if not file.shared:
        return rows
    held = ((rows.column(name), getattr(file.source, name)) for name in SOURCE_KEY)
    return rows.filter(reduce(pc.and_, (pc.equal(column, pa.scalar(value, column.type)) for column, value in held)))
