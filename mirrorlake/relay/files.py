"""Read the relay's Parquet files in a worker: no record crosses the border between JVM and Python (DESIGN 9).

Runs where Spark's Python workers run; needs pyarrow, no Spark session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.model.flow import SourcePartition

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# 10 000 rows: Arrow's cost per batch vanishes, and records of 1 KB still fit the processor's cache in parts.
_ROWS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class RelayFile:
    """Where the records of one source partition are: a file and their offsets in it."""

    source: SourcePartition
    first_offset: int
    last_offset: int
    records: int
    uri: str
    shared: bool = False


def read_records(file: RelayFile, *, position: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the file's records of its source partition in offset order, from `position` on.

    Args:
        file: the file; `shared` when it holds other source partitions too.
        position: upstream offset to start at, None for all.
    """
    filesystem, path = _open(file.uri)
    names = [*COLUMNS, "topic", "generation", "partition"] if file.shared else list(COLUMNS)
    with filesystem.open_input_file(path) as source:
        parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
        last = -1
        for batch in parquet.iter_batches(batch_size=_ROWS, columns=names, use_threads=False):
            rows = _only(batch, file.source) if file.shared else batch
            offsets = rows.column("offset").to_numpy(zero_copy_only=False)
            if position is not None and len(rows) and offsets[0] < position:
                rows = rows.slice(int(np.searchsorted(offsets, position)))
                offsets = offsets[len(offsets) - len(rows) :]
            if not len(rows):
                continue
            if offsets[0] <= last or np.any(np.diff(offsets) <= 0):
                raise ValueError(f"law D: {file.uri} holds {file.source} out of offset order after {last}")
            last = int(offsets[-1])
            yield rows.select(list(COLUMNS))


def _only(batch: pa.RecordBatch, source: SourcePartition) -> pa.RecordBatch:
    mine = pc.and_(
        pc.and_(
            pc.equal(batch.column("topic"), source.topic),
            pc.equal(batch.column("partition"), pa.scalar(source.partition, pa.int32())),
        ),
        pc.equal(batch.column("generation"), pa.scalar(source.generation, pa.int32())),
    )
    return batch.filter(mine)


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + unquote(rest).lstrip("/")
    if scheme in ("s3a", "s3n"):
        uri = f"s3:{rest}"
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, path
