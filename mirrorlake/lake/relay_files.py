"""Read the relay's Parquet files in a Python worker, so that no record passes between JVM and Python.

This module runs in Spark's Python workers; it needs pyarrow and no Spark session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import reduce
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.errors import StoreError
from mirrorlake.lake.file_spans import FileSpan, footer_spans
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.runtime import find_store, open_address

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# With 10 000 rows Arrow's cost per batch vanishes, and records of 1 KB still partly fit the processor's cache.
_ROWS = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, order=True)
class RelayFile:
    """Records of one source partition in a file; `shared` if the file has other source partitions, too.

    `newest` is their newest timestamp, None if the relay's log lacks it. `first_row` is their first row in a shared file, None if
    a partition's rows must be chosen by the key columns.
    """

    source: SourcePartition
    first_offset: int
    last_offset: int
    records: int
    uri: str
    shared: bool = False
    newest: datetime | None = field(default=None, compare=False)
    first_row: int | None = field(default=None, compare=False)


def build_files(uri: str, spans: Sequence[FileSpan]) -> list[RelayFile]:
    """Return a file's `RelayFile` of each source partition, by its spans."""
    shared = len(spans) > 1
    return [
        RelayFile(source, first, last, records, uri, shared, _EPOCH + timedelta(milliseconds=newest), row)
        for source, first, last, row, records, newest in spans
    ]


def read_in_order(
    files: Iterable[RelayFile], *, position: int | None = None, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one source partition, each upstream offset once and in order (law D).

    A relay that was restored or rewritten may have a record twice. Overlapping files are merged, and the first of two records with
    one offset counts. A file is opened when its first offset is reached.
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


def unreadable_error(uri: str, error: Exception, parts: Sequence[RelayFile] = ()) -> StoreError:
    """Return the error of a broken or missing file; `parts` are its parts that should be read."""
    *_, kind, alias, name = uri.split("/")
    is_missing = isinstance(error, FileNotFoundError)
    what = "is missing" if is_missing else f"is broken: {' '.join(str(error).split())[:200]}"
    holds, facts = "", {}
    topics = sorted({part.source.topic for part in parts})
    if parts:
        several = f" and {len(parts) - 1} other partitions" if len(parts) > 1 else ""
        holds = f"; it holds {parts[0].source} {parts[0].first_offset}..{parts[0].last_offset}{several}"
        facts = {"source_topic": ",".join(topics), "broken_file": uri}
    return StoreError(
        f"{name} in the relay of {alias} {what}{holds}",
        consequence=f"these records of {', '.join(topics) or alias} and all later ones wait; nothing was skipped",
        remedy=f"mirrorlake repair --source {alias if kind == 'relay' else 'A'}",
        **facts,
    )


@contextmanager
def _naming_broken(parts: Sequence[RelayFile]) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise unreadable_error(parts[0].uri, error, parts) from error


def is_whole_or_replaced(uri: str) -> bool:
    """Return whether a record file can be read to its end, or is no longer in its relay's log."""
    filesystem, path = open_address(uri)
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

    If the file was rewritten and deleted since it was listed, its replacements are read, even from the middle of the file on. Erased
    records are in none of them (law E: the table `removed` lists them).
    """
    for _, rows in read_file([file], columns=columns, position=position or 0):
        if position is not None and _first(rows) < position:
            offsets = rows.column("offset").to_numpy(zero_copy_only=False)
            rows = rows.slice(int(np.searchsorted(offsets, position)))
        if len(rows):
            yield rows


def read_file(
    parts: Sequence[RelayFile], *, columns: Sequence[str] = COLUMNS, position: int = 0
) -> Iterator[tuple[RelayFile, pa.RecordBatch]]:
    """Yield the records of parts of one file, sorted by row, each as `read_records` does; the file is opened once.

    Of a file of one source partition, row groups before `position` are left out.
    """
    uri = parts[0].uri
    filesystem, path = open_address(uri)
    local = Path("/", path) if isinstance(filesystem, fs.LocalFileSystem) else None
    left, last = list(parts), -1
    try:
        opened = filesystem.open_input_file(path)
    except FileNotFoundError:
        if local is None and find_store(uri) is None:
            raise
    else:
        with opened, _naming_broken(parts):
            # Few large reads suit a store. A folder's file is in the page cache, and reading it by another thread costs 0.4 ms.
            parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=local is None)
            left = parts = _with_rows(parquet.metadata, parts)
            for several in _decoded(parquet, parts, columns, position):
                yield from several
                part, rows = several[-1]
                last = int(rows.column("offset")[-1].as_py())
                left = left[left.index(part) :]
                if last >= part.last_offset:
                    left, last = left[1:], -1
                # An open file stays readable after its deletion, for as long as a slow target takes: 2 us for 10 000 records.
                if left and local is not None and not local.exists():
                    break
            else:
                return
    yield from _read_in_its_place(left, local, columns, after=last)


def _read_in_its_place(
    parts: Sequence[RelayFile], local: Path | None, columns: Sequence[str], *, after: int
) -> Iterator[tuple[RelayFile, pa.RecordBatch]]:
    """Read parts of a deleted file from the table's present files, the first part after an offset."""
    uri = parts[0].uri
    folder = uri.rpartition("/")[0] if local is None else str(local.parent)
    listed = _list_files(folder, {part.source: part.first_offset for part in reversed(parts)})
    if listed is None:
        raise FileNotFoundError(uri)
    if any(one.uri == uri for one in listed):
        # The table still names the missing file, so it is lost, not rewritten.
        with _naming_broken(parts):
            raise FileNotFoundError(uri)
    for part in parts:
        first = max(part.first_offset, after + 1) if part is parts[0] else part.first_offset
        found = [one for one in listed if one.source == part.source and one.first_offset <= part.last_offset]
        for rows in read_in_order(found, position=first, columns=columns):
            until = int(np.searchsorted(rows.column("offset").to_numpy(), part.last_offset, side="right"))
            if until:
                yield part, rows.slice(0, until)


def _decoded(
    parquet: pq.ParquetFile, parts: Sequence[RelayFile], columns: Sequence[str], position: int
) -> Iterator[list[tuple[RelayFile, pa.RecordBatch]]]:
    if parts[0].shared and parts[0].first_row is None:
        for part in parts:
            yield from ([(part, rows)] for rows in _filtered(parquet, part, columns) if len(rows))
        return
    groups, ranges = _places(parquet.metadata, parts, position)
    # Landing writes in order. Another writer's rewrite may not, which the offsets show, a column of 1 byte a record.
    if _are_ordered(parquet.read_row_groups(groups, columns=["offset"], use_threads=False), ranges):
        yield from _sliced(
            parquet.iter_batches(_ROWS, groups, list(columns), use_threads=False), parts, ranges, columns
        )
        return
    table = parquet.read_row_groups(groups, columns=list(columns), use_threads=False).select(list(columns))
    for part, (first, end) in zip(parts, ranges, strict=True):
        yield from ([(part, batch)] for batch in _sorted(table.slice(first, end - first)))


def _with_rows(footer: pq.FileMetaData, parts: Sequence[RelayFile]) -> list[RelayFile]:
    """Sort parts of a shared file by row, if needed by the first rows in its footer."""
    if not parts[0].shared or parts[0].first_row is not None:
        return list(parts)
    spans = footer_spans(footer)
    known = {span.source: span for span in spans}
    if len(known) < len(spans) or any(part.source not in known for part in parts):
        return list(parts)
    found = [
        replace(part, first_row=known[part.source].first_row, records=known[part.source].records) for part in parts
    ]
    return sorted(found, key=lambda part: part.first_row or 0)


def _filtered(parquet: pq.ParquetFile, part: RelayFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read the records of a source partition from a file without known spans."""
    names = [*columns, *SOURCE_KEY]
    places = _mine(parquet.read(columns=["offset", *SOURCE_KEY], use_threads=False), part)
    if not _are_ordered(places, [(0, len(places))]):
        yield from _sorted(_mine(parquet.read(columns=names, use_threads=False), part).select(list(columns)))
        return
    for batch in parquet.iter_batches(batch_size=_ROWS, columns=names, use_threads=False):
        yield from _mine(pa.Table.from_batches([batch]), part).select(list(columns)).to_batches()


def _places(
    footer: pq.FileMetaData, parts: Sequence[RelayFile], position: int = 0
) -> tuple[list[int], list[tuple[int, int]]]:
    if not parts[0].shared and not position:
        return list(range(footer.num_row_groups)), [(0, footer.num_rows)]
    sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    if not parts[0].shared:
        column = footer.schema.names.index("offset")
        ends = [footer.row_group(number).column(column).statistics for number in range(len(sizes))]
        groups = [n for n, end in enumerate(ends) if end is None or not end.has_min_max or end.max >= position]
        return groups, [(0, sum(sizes[number] for number in groups))]
    firsts = np.array([part.first_row for part in parts])
    counts = np.array([part.records for part in parts])
    low, high = (np.searchsorted(np.cumsum(sizes), rows, side="right") for rows in (firsts, firsts + counts - 1))
    groups = sorted({number for ends in zip(low, high, strict=True) for number in range(ends[0], ends[1] + 1)})
    # The rows omitted before each row group.
    skipped = np.cumsum([0 if number in groups else size for number, size in enumerate(sizes)])[low]
    return groups, list(zip((firsts - skipped).tolist(), (firsts - skipped + counts).tolist(), strict=True))


def _sliced(
    batches: Iterable[pa.RecordBatch],
    parts: Sequence[RelayFile],
    ranges: Sequence[tuple[int, int]],
    columns: Sequence[str],
) -> Iterator[list[tuple[RelayFile, pa.RecordBatch]]]:
    begin, number = 0, 0
    for batch in batches:
        several, batch = [], batch.select(list(columns))
        until = begin + len(batch)
        while number < len(parts) and ranges[number][0] < until:
            first, end = max(ranges[number][0], begin), min(ranges[number][1], until)
            several.append((parts[number], batch.slice(first - begin, end - first)))
            if ranges[number][1] > until:
                break
            number += 1
        begin = until
        if several:
            yield several


def read_offsets(file: RelayFile) -> npt.NDArray[np.int64]:
    """Read the offsets of the file's records of its source partition in file order; an offset may come twice."""
    filesystem, path = open_address(file.uri)
    try:
        opened = filesystem.open_input_file(path)
    except FileNotFoundError:
        # The file was rewritten since it was listed.
        parts = [rows.column("offset").to_numpy() for rows in read_records(file, columns=("offset",))]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
    with opened as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        if file.shared and file.first_row is None:
            rows = _mine(parquet.read(columns=["offset", *SOURCE_KEY], use_threads=False), file)
        else:
            groups, [(first, end)] = _places(parquet.metadata, [file])
            rows = parquet.read_row_groups(groups, columns=["offset"], use_threads=False).slice(first, end - first)
        offsets: npt.NDArray[np.int64] = rows.column("offset").to_numpy()
        return offsets


def newest_timestamp(file: RelayFile) -> datetime:
    """Return the newest timestamp of a file's records from the log, else from its footer, else from the column."""
    if file.newest is not None:
        # Delta's statistics are truncated to milliseconds, as precise as Kafka's times. Opening a file costs 1 ms of CPU.
        return file.newest
    filesystem, path = open_address(file.uri)
    with filesystem.open_input_file(path) as source:
        parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        column = parquet.schema.names.index("timestamp")
        groups = [parquet.metadata.row_group(n).column(column) for n in range(parquet.num_row_groups)]
        if all(group.is_stats_set and group.statistics.has_min_max for group in groups):
            return max(as_utc(group.statistics.max) for group in groups)
        return as_utc(pc.max(parquet.read(columns=["timestamp"], use_threads=False).column(0)).as_py())


def as_utc(time: datetime) -> datetime:
    """Return a time of a file's columns or statistics in UTC."""
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)


def _are_ordered(rows: pa.Table, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether offsets increase within each of some sorted ranges of rows."""
    falls = np.flatnonzero(np.diff(rows.column("offset").to_numpy()) <= 0) + 1
    starts, ends = np.array(ranges).T
    at = np.searchsorted(starts, falls, side="right") - 1
    return not np.any((at >= 0) & (falls > starts[at]) & (falls < ends[at]))


def _sorted(rows: pa.Table) -> Iterable[pa.RecordBatch]:
    offsets = rows.column("offset").to_numpy()
    order = np.argsort(offsets, kind="stable")
    fresh = np.concatenate(([True], np.diff(offsets[order]) > 0))
    batches: Iterable[pa.RecordBatch] = (
        rows.take(pa.array(order[fresh])).combine_chunks().to_batches(max_chunksize=_ROWS)
    )
    return batches


def _mine(rows: pa.Table, file: RelayFile) -> pa.Table:
    held = ((rows.column(name), getattr(file.source, name)) for name in SOURCE_KEY)
    return rows.filter(reduce(pc.and_, (pc.equal(column, pa.scalar(value, column.type)) for column, value in held)))
