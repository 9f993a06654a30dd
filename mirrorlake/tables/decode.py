"""The jobs of Spark's workers: rules, decoding, counting, and files of rows.

A decoded batch has the records' coordinates, the columns of key and value, and what only a batch needs: `_tombstone` is whether the
value is null, `_filtered` whether a rule leaves the record out, `_fault` why it is no row, `_misfit` why it would be one only in a
wider table, and `_raw_key` and `_raw_value` the bytes of such records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import WrittenFile, split_rows, write_rows
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.withheld import FILTERED as IS_FILTERED
from mirrorlake.rules import View
from mirrorlake.runtime import WorkerLog
from mirrorlake.tables.formats import (
    COORDINATES,
    FAULT,
    FILTERED,
    KEY,
    MISFIT,
    OF_BATCH,
    RAW_KEY,
    RAW_VALUE,
    TOMBSTONE,
    Format,
)

PARTITION = list(COORDINATES)[:4]
PLACE = list(COORDINATES)[:5]
INNER = [*OF_BATCH]

_VIEWED = ["offset", "timestamp", "key", "value", "headers"]
_NO_KEY = "the record has no key, and the table has a row a key"
_FILE_BYTES = 128 << 20
Job = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class RowFormat:
    """The rows of a table, as they are decoded from records.

    `takes_misfits`: the table may grow, so misfits are told apart from faults. `needs_key`: a record without a key is a fault.
    `keeps_raw` keeps the bytes of good records, too, which may turn out to be bad later. `views` are rules to apply first, by source.
    """

    key: Format
    value: Format
    takes_misfits: bool
    needs_key: bool
    keeps_raw: bool = False
    views: Mapping[str, View] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        # A table with a row a key has the column also while no key is known.
        unknown = {KEY: pa.string()} if self.needs_key else {}
        return pa.schema({**COORDINATES, **unknown, **self.key.fields, **self.value.fields, **OF_BATCH})

    def decode(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Decode a batch with the columns of `COORDINATES`, `key` and `value`, and `headers` where rules apply."""
        if not self.views:
            return self._decoded(records)
        passed, withheld, reasons = self._passed(records)
        whole = pa.Table.from_batches([self._decoded(passed), self._withheld(withheld, reasons)])
        return whole.combine_chunks().to_batches()[0] if len(whole) else self._decoded(passed)

    def _decoded(self, records: pa.RecordBatch) -> pa.RecordBatch:
        keys, values, sources = (records.column(name) for name in ("key", "value", "_source"))
        key, value = self.key.decode(keys, sources), self.value.decode(values, sources)
        faults = {row: f"the value {reason}" for row, reason in value.faults.items()}
        faults |= {row: f"the key {reason}" for row, reason in key.faults.items()}
        key_columns = {KEY: pa.nulls(len(records), pa.string())} if self.needs_key else {}
        key_columns |= key.columns
        if self.needs_key and key_columns[KEY].null_count:
            absent = (row for row, is_absent in enumerate(key_columns[KEY].is_null().to_pylist()) if is_absent)
            faults |= {row: _NO_KEY for row in absent if row not in faults and row not in key.misfits}
        misfits = value.misfits | {row: f"key: {reason}" for row, reason in key.misfits.items()}
        if self.takes_misfits:
            # A record that is no row decides no column.
            misfits = {row: reason for row, reason in misfits.items() if row not in faults}
        else:
            faults, misfits = misfits | faults, {}
        is_bad = pa.array(
            [self.keeps_raw or row in faults or row in misfits for row in range(len(records))], pa.bool_()
        )
        columns = {
            **{name: records.column(name).cast(kind) for name, kind in COORDINATES.items()},
            **key_columns,
            **value.columns,
            TOMBSTONE: values.is_null(),
            FILTERED: pa.repeat(pa.scalar(False), len(records)),
            FAULT: pa.array(map(faults.get, range(len(records))), pa.string()),
            MISFIT: pa.array(map(misfits.get, range(len(records))), pa.string()),
            RAW_KEY: pc.if_else(is_bad, keys.cast(pa.binary()), pa.scalar(None, pa.binary())),
            RAW_VALUE: pc.if_else(is_bad, values.cast(pa.binary()), pa.scalar(None, pa.binary())),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _withheld(self, records: pa.RecordBatch, reasons: list[str]) -> pa.RecordBatch:
        """Return withheld records as rows without columns; a bad one has no bytes, which the rules could not judge."""
        known = {
            **{name: records.column(name).cast(kind) for name, kind in COORDINATES.items()},
            TOMBSTONE: pa.array([False] * len(reasons), pa.bool_()),
            FILTERED: pa.array([not reason for reason in reasons], pa.bool_()),
            FAULT: pa.array([reason or None for reason in reasons], pa.string()),
        }
        columns = [known.get(one.name, pa.nulls(len(reasons), one.type)) for one in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _passed(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, list[str]]:
        """Return the records as the rules let them pass, those that they withhold, and why each is bad; "" if it is filtered."""
        rows_of: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for row, place in enumerate(zip(*(records.column(name).to_pylist() for name in PARTITION), strict=True)):
            rows_of[place].append(row)
        offsets = records.column("_offset").to_pylist()
        kept, withheld = list[pa.RecordBatch](), dict[int, str]()
        for (source, *of), rows in rows_of.items():
            at = {offsets[row]: row for row in sorted(rows, key=offsets.__getitem__)}
            mine = records.take(pa.array([*at.values()]))
            if source not in self.views:
                kept.append(mine)
                continue
            seen = mine.select(["_offset", "_timestamp", *_VIEWED[2:]]).rename_columns(_VIEWED)
            viewed = self.views[source](SourcePartition(*of), seen)
            passed = records.take(
                pa.array([at[one] for one in viewed.records.column("offset").to_pylist()], pa.int64())
            )
            for name in _VIEWED[2:]:
                column = viewed.records.column(name).cast(passed.schema.field(name).type)
                passed = passed.set_column(passed.schema.get_field_index(name), name, column)
            kept.append(passed)
            for one in viewed.withheld:
                reason = "" if one.kind == IS_FILTERED else f"the rule {one.rule} cannot judge it: {one.reason}"
                for first, length in one.ranges:
                    withheld |= {at[place]: reason for place in range(first, first + length) if place in at}
        whole = pa.Table.from_batches(kept, records.schema).combine_chunks().to_batches()
        return (
            (whole or [records.slice(0, 0)])[0],
            records.take(pa.array([*withheld], pa.int64())),
            [*withheld.values()],
        )


def decoding_job(rows: RowFormat) -> Job:
    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in batches:
            yield rows.decode(records)

    return job


# -- counts and files ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """The records of one source partition in a batch; `position` is the next offset.

    `oldest` is the least timestamp of a row in microseconds, and `deleted` the greatest of a tombstone; None without one.
    """

    records: int = 0
    bad: int = 0
    misfits: int = 0
    position: int = 0
    oldest: int | None = None
    deleted: int | None = None

    def add(self, records: int, bad: int, misfits: int, position: int, oldest: int | None, deleted: int | None) -> None:
        self.records += records
        self.bad += bad
        self.misfits += misfits
        self.position = max(self.position, position)
        self.oldest = min((one for one in (self.oldest, oldest) if one is not None), default=None)
        self.deleted = max((one for one in (self.deleted, deleted) if one is not None), default=None)


BatchCounts = dict[tuple[str, SourcePartition], Counts]
REPORT = "files string, counts string"


def writing_job(folder: str, partition_by: Sequence[str], *, keeps_faults: bool) -> Job:
    """Return the job that writes the rows of decoded batches to files that no commit names yet; with `keeps_faults` faults are rows.

    A commit of a few rows by Spark costs 1.5 CPU-s.
    """
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
        files += written(waiting) if waiting else []
        yield pa.RecordBatch.from_pydict({"files": [json.dumps(files)], "counts": [json.dumps(counts)]})

    return job


def read_reports(answers: Sequence[Any]) -> tuple[list[WrittenFile], BatchCounts]:
    """Return the files that workers wrote, and the counts of all of them."""
    counts: BatchCounts = defaultdict(Counts)
    for row in answers:
        for source, topic, generation, partition, *more in json.loads(row.counts):
            counts[source, SourcePartition(topic, generation, partition)].add(*more)
    return [WrittenFile(*one) for row in answers for one in json.loads(row.files)], counts


def _counted(batch: pa.RecordBatch) -> list[list[Any]]:
    """Return the place of each source partition, and its numbers in the order of `Counts`."""
    at, is_deleted = batch.column("_timestamp").cast(pa.int64()), batch.column(TOMBSTONE)
    nothing = pa.scalar(None, pa.int64())
    table = pa.Table.from_batches([batch.select([*PLACE, FAULT, MISFIT])])
    table = table.append_column("oldest", pc.if_else(is_deleted, nothing, at))
    table = table.append_column("deleted", pc.if_else(is_deleted, at, nothing))
    wanted = [
        ("_offset", "count"),
        (FAULT, "count"),
        (MISFIT, "count"),
        ("_offset", "max"),
        ("oldest", "min"),
        ("deleted", "max"),
    ]
    rows = table.group_by(PARTITION).aggregate(wanted).to_pylist()
    names = ["_".join(one) for one in wanted]
    for row in rows:
        row["_offset_max"] += 1
    return [[row[name] for name in [*PARTITION, *names]] for row in rows]


def looking_job(of: Format, column: str) -> Job:
    """Return the job that looks at the payloads of a column, for `Format.grown`."""

    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in batches:
            seen = of.look(records.column(column), records.column("_source"))
            yield pa.RecordBatch.from_pydict(
                {"seen": [json.dumps(one) for one in seen]}, pa.schema({"seen": pa.string()})
            )

    return job
