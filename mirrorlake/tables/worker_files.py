"""Write the rows of a batch to files on Spark's workers, for tables in a folder: a commit of a few rows by Spark costs 1.5 CPU-s."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import WrittenFile, split_rows, write_rows
from mirrorlake.runtime import WorkerLog
from mirrorlake.tables.decoding import COORDINATES, FAULT, FILTERED, MISFIT, RAW_KEY, RAW_VALUE, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INNER = [TOMBSTONE, FILTERED, FAULT, MISFIT, RAW_KEY, RAW_VALUE]
_PLACE = list(COORDINATES)[:4]
_FILE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The records of one source partition in a batch; `position` is the next offset."""

    source: str
    topic: str
    generation: int
    partition: int
    records: int
    bad: int
    misfits: int
    position: int


@dataclass(frozen=True, slots=True)
class Written:
    records: int = 0
    bad: int = 0

    @classmethod
    def of(cls, counts: Sequence[PartitionCount]) -> Written:
        return cls(sum(one.records for one in counts), sum(one.bad for one in counts))

    def __add__(self, other: Written) -> Written:
        return Written(self.records + other.records, self.bad + other.bad)


def write_files(
    rows: DataFrame, folder: str, partition_by: Sequence[str], *, keeps_faults: bool
) -> tuple[list[WrittenFile], list[PartitionCount]]:
    """Write the rows of a decoded batch to files that no commit names yet, and count them; with `keeps_faults` faults are rows."""
    job = _job(folder, partition_by, keeps_faults=keeps_faults)
    answers = rows.mapInArrow(job, "files string, counts string").collect()
    files = [WrittenFile(*one) for row in answers for one in json.loads(row.files)]
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in answers:
        for *place, records, bad, misfits, position in json.loads(row.counts):
            known = found[tuple(place)]
            found[tuple(place)] = [known[0] + records, known[1] + bad, known[2] + misfits, max(known[3], position)]
    return files, [PartitionCount(*place, *counts) for place, counts in found.items()]


def _job(
    folder: str, partition_by: Sequence[str], *, keeps_faults: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    worker_log = WorkerLog.from_environment()

    def written(waiting: list[pa.RecordBatch]) -> list[WrittenFile]:
        rows = pa.Table.from_batches(waiting)
        return [write_rows(folder, part, (), partition_by) for part in split_rows(rows, partition_by)]

    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker_log.attach()
        files, counts, waiting = list[WrittenFile](), list[list[Any]](), list[pa.RecordBatch]()
        for batch in batches:
            counts += _counted(batch)
            is_row = pc.invert(batch.column(FILTERED))
            good = batch.filter(is_row if keeps_faults else pc.and_(is_row, pc.is_null(batch.column(FAULT))))
            if len(good):
                waiting.append(good.drop_columns(INNER))
            if sum(one.nbytes for one in waiting) >= _FILE_BYTES:
                files += written(waiting)
                waiting = []
        if waiting:
            files += written(waiting)
        yield pa.RecordBatch.from_pydict({"files": [json.dumps(files)], "counts": [json.dumps(counts)]})

    return job


def _counted(batch: pa.RecordBatch) -> list[list[Any]]:
    """Return source, topic, generation, partition, records, faults, misfits and next offset of each source partition."""
    table = pa.Table.from_batches([batch.select([*_PLACE, "_offset", FAULT, MISFIT])])
    grouped = table.group_by(_PLACE).aggregate(
        [("_offset", "count"), (FAULT, "count"), (MISFIT, "count"), ("_offset", "max")]
    )
    names = [*_PLACE, "_offset_count", f"{FAULT}_count", f"{MISFIT}_count", "_offset_max"]
    return [[*(row[name] for name in names[:-1]), row["_offset_max"] + 1] for row in grouped.to_pylist()]
