"""Write the relay's Parquet files, one a turn or a Spark task, with the spans of their source partitions.

Spark's own append of a small batch costs 1 830 ms of CPU, most of it for planning and the commit. Here a task passes its rows to
Arrow's writer and returns files and statistics, and the driver commits them (`Lake.land`).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.errors import SafetyError
from mirrorlake.lake.file_spans import TAG, FileSpan, spans_to_text
from mirrorlake.lake.uncompressed_files import ENDING as FRESH
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.runtime import WorkerLog, attach_stores, attached_stores, is_cluster, open_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN = "path string, size bigint, records bigint, raw_bytes bigint, stats string, spans string"
_WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        *((name, pa.int64()) for name in ("size", "records", "raw_bytes")),
        *((name, pa.string()) for name in ("stats", "spans")),
    ]
)
# A batch of usual size is one row group; a larger one is written in parts, which bounds a worker's memory.
_GROUP_BYTES = 32 << 20
# The most rows and bytes that the JVM sends a worker at a time. Spark's own limit of bytes costs 1.5 CPU-us a record, so the widest
# partition of the last batch decides the rows. Before the first batch records of 100 KB fit.
_ARROW_ROWS, _ARROW_BYTES, _FIRST_ROWS = 10_000, 64 << 20, 640
# The most tasks of a batch on a cluster: ten thousand partitions would cost 500 s of CPU before a record is written.
_MAX_TASKS = 256
_VARIED = ("offset", "timestamp", "landed_at")
_MEASURED = (*SOURCE_KEY, *_VARIED)

Batches = Iterator[pa.RecordBatch]


class WrittenFile(NamedTuple):
    """A file of the relay that no commit names yet: `path` is relative to the table, `stats` are Delta's file statistics.

    `raw_bytes` is the size of its records in memory, `spans` the text of its source partitions' spans for the add action's tags,
    `partition` the table's partition columns with the text of their value.
    """

    path: str
    size: int
    records: int
    raw_bytes: int
    stats: str
    spans: str = ""
    partition: Sequence[tuple[str, str | None]] = ()


class RelayWriter:
    """Write batches of the relay by Spark's workers."""

    def __init__(self) -> None:
        self._arrow_rows = _FIRST_ROWS

    def write(self, rows: DataFrame, folder: str, landed_at: datetime | None) -> list[WrittenFile]:
        """Write rows of the relay's columns into a folder; rows without a column `landed_at` get this time."""
        # The session of a stream's batch has settings of its own.
        settings = rows.sparkSession.conf
        # A task for each partition of a topic costs 50 ms of CPU before it writes, so one task writes several partitions.
        is_local = settings.get("spark.master", "").startswith("local")
        rows = rows.coalesce((os.cpu_count() or 1) if is_local else _MAX_TASKS)
        settings.set("spark.sql.execution.arrow.maxRecordsPerBatch", self._arrow_rows)
        write = writer(folder, relay_schema(), landed_at)
        files = [WrittenFile(*row) for row in rows.mapInArrow(write, WRITTEN).collect()]
        if files:
            if is_cluster(rows.sparkSession) and ":/" not in folder:
                require_seen(folder, files)
            widest = max(file.raw_bytes // file.records for file in files)
            self._arrow_rows = min(_ARROW_ROWS, max(1, _ARROW_BYTES // max(1, widest)))
        return files


def require_seen(folder: str, files: Sequence[WrittenFile]) -> None:
    """Check that the workers' files are in this process's folder: else a commit would name an unreadable file (law F)."""
    for file in files:
        if not os.path.exists(f"{folder}/{file.path}"):  # noqa: PTH110  a `Path` costs more than the look
            raise SafetyError(
                f"this process does not see the file {file.path} that a worker wrote into its folder {folder}",
                consequence="the batch was not landed; the next start lands it",
                remedy="put the lake on a folder that all machines share, or on an object store (docs/clusters.md)",
            )


def relay_schema() -> pa.Schema:
    """Return the relay's Arrow schema; workers receive it, because the modules that build it are slow to import."""
    from mirrorlake.lake.arrow_types import arrow_types
    from mirrorlake.lake.schema import RELAY

    return pa.schema(list(arrow_types(RELAY).items()))


def writer(folder: str, schema: pa.Schema, landed_at: datetime | None) -> Callable[[Batches], Batches]:
    """Return the function for `mapInArrow` that writes rows of the relay into a folder and returns `WRITTEN` rows.

    Rows of one source partition come one after another, in offset order, without `landed_at`. `schema` is the relay's.
    """
    stores, worker_log = attached_stores(), WorkerLog.from_environment()

    def write(batches: Batches) -> Batches:
        attach_stores(*stores)
        worker_log.attach()
        # As a literal in Spark's plan, it would make Spark generate and compile new code for each batch.
        stamp = pa.scalar(landed_at, schema.field("landed_at").type)
        stamped = (
            batch
            if "landed_at" in batch.schema.names
            else batch.append_column("landed_at", pa.repeat(stamp, len(batch)))
            for batch in batches
        )
        files = list(write_files(folder, schema, stamped))
        if files:
            yield pa.RecordBatch.from_pylist([file._asdict() for file in files], _WRITTEN)

    return write


def write_files(
    folder: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    uncompressed: bool = False,
    apart: bool = False,
) -> Iterator[WrittenFile]:
    """Write rows of any number of source partitions into one file, with the spans of each partition.

    Rows of one source partition come one after another, in offset order. After 32 MiB the next source partition begins a new file,
    so that large partitions have files of their own; with `apart` each has. Maintenance compresses `uncompressed` files.
    """
    file: _File | None = None
    for batch in batches:
        for rows in _parts(batch.cast(schema)):
            sources, bounds = _group_by_source(rows)
            begin = 0
            while begin < len(sources):
                if file is not None and (apart or file.is_large) and sources[begin] != file.last_source:
                    yield file.close()
                    file = None
                file = file or _File(folder, schema, uncompressed=uncompressed)
                # All source partitions of one file are added at once.
                end = begin + 1 if apart or file.is_large else len(sources)
                first, last = bounds[begin], bounds[end]
                file.add(rows.slice(first, last - first), sources[begin:end], bounds[begin : end + 1] - first)
                begin = end
    if file is not None:
        yield file.close()


def land_rows(
    schema: pa.Schema, sources: Sequence[SourcePartition], counts: Sequence[int], records: pa.Table, landed_at: datetime
) -> list[pa.RecordBatch]:
    """Return fetched records as rows of the relay, sorted by source partition; `schema` is the relay's.

    `records` are `counts` of each of the `sources`, in their order.
    """
    rows_of = np.repeat(np.arange(len(sources)), counts)
    if any(map(gt, sources, sources[1:])):
        # A generation that a truncation began sorts after all partitions of earlier generations.
        ranks = np.argsort(sorted(range(len(sources)), key=sources.__getitem__))
        order = np.argsort(ranks[rows_of], kind="stable")
        records, rows_of = records.take(pa.array(order)), rows_of[order]
    # One batch, because a column of a thousand chunks costs a writer 20 ms.
    fetched, of = records.combine_chunks(), pa.array(rows_of)
    columns = {name: fetched.column(name) for name in fetched.schema.names}
    for name in SOURCE_KEY:
        columns[name] = pa.array([getattr(source, name) for source in sources], schema.field(name).type).take(of)
    columns["landed_at"] = pa.repeat(pa.scalar(landed_at, schema.field("landed_at").type), len(fetched))
    return list(pa.table([columns[name] for name in schema.names], schema=schema).to_batches())


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, len(rows) // (rows.nbytes // _GROUP_BYTES + 1))
    return (rows.slice(first, step) for first in range(0, len(rows), step))


def _group_by_source(rows: pa.RecordBatch) -> tuple[list[SourcePartition], npt.NDArray[np.int64]]:
    """Return the source partitions of rows, in their order, and the first row of each; the last bound is the end."""
    columns = [rows.column(name) for name in SOURCE_KEY]
    changes = np.zeros(len(rows) - 1, bool)
    for column in columns:
        changes |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    places = (column.take(pa.array(starts)).to_pylist() for column in columns)
    return list(map(SourcePartition, *places)), np.append(starts, len(rows))


class _File:
    def __init__(self, folder: str, schema: pa.Schema, *, uncompressed: bool) -> None:
        self._name = f"part-{time.time_ns()}-{uuid.uuid4()}{FRESH if uncompressed else '.zstd.parquet'}"
        self._path = f"{folder}/{self._name}"
        self._stored: pa.NativeFile | None = None
        if ":/" in folder:
            files, path = open_address(self._path)
            self._stored = files.open_output_stream(path)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._spans: list[FileSpan] = []
        self._bytes = self._raw_bytes = self._records = 0
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}
        self._writer = pq.ParquetWriter(
            self._stored or self._path,
            schema,
            # Level 1 costs 5.4 CPU-s per million records of 1 KB, to write and to read, level 3 twice that for 3 % fewer bytes.
            compression="none" if uncompressed else "zstd",
            compression_level=None if uncompressed else 1,
            # Keys, values and offsets rarely repeat, so dictionaries only cost.
            use_dictionary=[*SOURCE_KEY, "timestamp_type", "landed_at", "headers.list.element.key"],
            # This saves 3 bytes a record, for every reader of Parquet's format version 2.
            column_encoding=dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED"),
            write_statistics=list(_MEASURED),
        )

    @property
    def is_large(self) -> bool:
        """Whether the next source partition must begin a new file."""
        return self._raw_bytes + self._bytes >= _GROUP_BYTES

    @property
    def last_source(self) -> SourcePartition:
        return self._spans[-1].source

    def add(self, rows: pa.RecordBatch, sources: Sequence[SourcePartition], bounds: npt.NDArray[np.int64]) -> None:
        if self._bytes and self._bytes + rows.nbytes > _GROUP_BYTES:
            self._flush()
        self._waiting.append(rows)
        self._add_spans(rows, sources, bounds)
        self._records += len(rows)
        self._bytes += rows.nbytes

    def _add_spans(
        self, rows: pa.RecordBatch, sources: Sequence[SourcePartition], bounds: npt.NDArray[np.int64]
    ) -> None:
        offsets, stamps = (rows.column(name).view(pa.int64()).to_numpy() for name in ("offset", "timestamp"))
        starts = bounds[:-1]
        numbers = (
            np.minimum.reduceat(offsets, starts),
            np.maximum.reduceat(offsets, starts),
            starts + self._records,
            np.diff(bounds),
            np.maximum.reduceat(stamps, starts) // 1000,
        )
        found = list(map(FileSpan, sources, *(column.tolist() for column in numbers)))
        if self._spans and found and (before := self._spans[-1]).source == found[0].source:
            self._spans[-1] = before.joined(found.pop(0))
        self._spans += found

    def close(self) -> WrittenFile:
        self._flush()
        spans = spans_to_text(self._spans)
        self._writer.add_key_value_metadata({TAG: spans})
        self._writer.close()
        for name in SOURCE_KEY:
            values = {getattr(span.source, name) for span in self._spans}
            self._least[name], self._most[name] = min(values), max(values)
        stats = {
            "numRecords": self._records,
            "minValues": {name: stats_value(self._least[name]) for name in _MEASURED},
            "maxValues": {name: stats_value(self._most[name]) for name in _MEASURED},
            "nullCount": dict.fromkeys(_MEASURED, 0),
        }
        if self._stored is None:
            size = Path(self._path).stat().st_size
        else:
            # The size from the store would cost a request.
            size = self._stored.tell()
            self._stored.close()
        return WrittenFile(self._name, size, self._records, self._raw_bytes, json.dumps(stats), spans)

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(rows, row_group_size=len(rows))
        for name in _VARIED:
            ends = pc.min_max(rows.column(name)).as_py()
            self._least[name] = min(ends["min"], self._least.get(name, ends["min"]))
            self._most[name] = max(ends["max"], self._most.get(name, ends["max"]))
        self._waiting, self._bytes, self._raw_bytes = [], 0, self._raw_bytes + self._bytes


def stats_value(value: Any) -> Any:
    # Delta's statistics truncate times to milliseconds, also the maximum; its readers allow for that.
    if isinstance(value, datetime):
        # glibc's %Y does not fill years with zeros.
        return f"{value.year:04}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    return value
