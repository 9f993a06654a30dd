"""The jobs of Spark's workers: rules, decoding, counting, and files of rows.

A decoded batch has the records' coordinates, the columns of key and value, and what only a batch needs: `_tombstone` is whether the
value is null, `_filtered` whether a rule leaves the record out, `_fault` why it is no row, `_misfit` why it would be one only in a
wider table, and `_raw_key` and `_raw_value` the bytes of such records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.context import Context
from mirrorlake.lake import split_rows, write_rows
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.withheld import FILTERED as IS_FILTERED
from mirrorlake.rules import View
from mirrorlake.runtime import WorkerLog
from mirrorlake.tables.definition import TypedTable, views_of
from mirrorlake.tables.formats import COORDINATES, KEPT, KEY, OF_BATCH, PARTITION, Format, Registries, format_of

_VIEWED = ["offset", "timestamp", "key", "value", "headers"]
_NO_KEY = "the record has no key, and the table has a row a key"
_FILE_BYTES = 128 << 20
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class RowFormat:
    """The rows of a table, as they are decoded from records.

    `needs_key`: a record without a key is a fault. `takes_misfits`: the table may grow, so misfits are told apart from faults.
    `keeps_raw` keeps the bytes of good records, too, which an expression may find bad. `views` are rules to apply first, by source.
    """

    key: Format
    value: Format
    needs_key: bool = False
    takes_misfits: bool = False
    keeps_raw: bool = False
    views: Mapping[str, View] = field(default_factory=dict)

    @classmethod
    def of(
        cls, context: Context, table: TypedTable, properties: Mapping[str, str], registries: Registries
    ) -> RowFormat:
        """Return the rows of a table by its settings, and by what it has kept in its properties."""
        config = table.config
        key, value = (
            format_of(config, of, properties.get(name), registries, [*table.topics]) for of, name in KEPT.items()
        )
        is_upserted, views = config.mode == "upsert", views_of(context, config)
        return cls(key, value, needs_key=is_upserted, keeps_raw=bool(config.columns), views=views)

    @property
    def schema(self) -> pa.Schema:
        # A table with a row a key has the column also while no key is known.
        unknown = {KEY: pa.string()} if self.needs_key else {}
        return pa.schema({**COORDINATES, **unknown, **self.key.fields, **self.value.fields, **OF_BATCH})

    # -- growing --------------------------------------------------------------------------------------------------------

    @property
    def may_grow(self) -> bool:
        return self.key.may_grow or self.value.may_grow

    @property
    def kept(self) -> dict[str, str]:
        """The properties of a table with what it is to keep."""
        found = zip(KEPT.values(), (self.key.kept, self.value.kept), strict=True)
        return {name: text for name, text in found if text is not None}

    def begun(self) -> RowFormat:
        return replace(self, key=self.key.begun(), value=self.value.begun())

    def look(self, batches: Batches) -> Batches:
        """Find the kinds and schemas that are new in misfits, for `grown`: JSON texts in the columns `of` and `seen`."""
        for misfits in batches:
            for of, column in ((self.key, "_raw_key"), (self.value, "_raw_value")):
                seen = of.look(misfits.column(column), misfits.column("_source"))
                texts = pa.array(map(json.dumps, seen), pa.string())
                yield pa.RecordBatch.from_pydict({"of": pa.repeat(column, len(texts)), "seen": texts})

    def grown(self, looked: Iterable[tuple[str, str]], registries: Registries, **how: bool) -> RowFormat:
        """Return the rows that take the kinds and schemas of `look` (see `Format.grown`)."""
        of: dict[str, list[Any]] = {"_raw_key": [], "_raw_value": []}
        for column, seen in looked:
            of[column].append(json.loads(seen))
        key = self.key.grown(of["_raw_key"], registries, **how)
        return replace(self, key=key, value=self.value.grown(of["_raw_value"], registries, **how))

    def is_rebuilt_for(self, wider: RowFormat) -> bool:
        return self.key.is_rebuilt_for(wider.key) or self.value.is_rebuilt_for(wider.value)

    # -- decoding -------------------------------------------------------------------------------------------------------

    def decode_all(self, batches: Batches) -> Batches:
        return map(self.decode, batches)

    def decode(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Decode a batch with the columns of `COORDINATES`, `key` and `value`, and `headers` where rules apply."""
        if not self.views:
            return self._decoded(records)
        found = pa.Table.from_batches(self._ruled(records), self.schema).combine_chunks().to_batches()
        return found[0] if found else self._decoded(records)

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
        is_kept = [self.keeps_raw or row in faults or row in misfits for row in range(len(records))]
        keeps_raw = pa.array(is_kept, pa.bool_())
        none = pa.scalar(None, pa.binary())
        return self._batch(
            records,
            {
                **key_columns,
                **value.columns,
                "_tombstone": values.is_null(),
                "_fault": pa.array(map(faults.get, range(len(records))), pa.string()),
                "_misfit": pa.array(map(misfits.get, range(len(records))), pa.string()),
                "_raw_key": pc.if_else(keeps_raw, keys.cast(pa.binary()), none),
                "_raw_value": pc.if_else(keeps_raw, values.cast(pa.binary()), none),
            },
        )

    def _batch(self, records: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        no = pa.repeat(pa.scalar(False), len(records))
        known = {name: records.column(name).cast(kind) for name, kind in COORDINATES.items()}
        known |= {"_tombstone": no, "_filtered": no, **columns}
        arrays = [known[one.name] if one.name in known else pa.nulls(len(records), one.type) for one in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _ruled(self, records: pa.RecordBatch) -> Batches:
        """Yield decoded records as the rules let them pass, and those that they withhold, without bytes."""
        whole = pa.Table.from_batches([records]).sort_by("_offset")
        for part in split_rows(whole, PARTITION) if len(whole) else ():
            [mine] = part.combine_chunks().to_batches()
            source, *of = (mine.column(name)[0].as_py() for name in PARTITION)
            if source not in self.views:
                yield self._decoded(mine)
                continue
            offsets = mine.column("_offset")
            seen = mine.select(["_offset", "_timestamp", *_VIEWED[2:]]).rename_columns(_VIEWED)
            viewed = self.views[source](SourcePartition(*of), seen)
            passed = mine.take(pc.index_in(viewed.records.column("offset"), offsets))
            for name in _VIEWED[2:]:
                column = viewed.records.column(name).cast(passed.schema.field(name).type)
                passed = passed.set_column(passed.schema.get_field_index(name), name, column)
            yield self._decoded(passed)
            why: dict[int, str | None] = {}
            for one in viewed.withheld:
                reason = None if one.kind == IS_FILTERED else f"the rule {one.rule} cannot judge it: {one.reason}"
                why |= {place: reason for offsets in one.ranges for place in range(*offsets)}
            withheld = mine.filter(pc.is_in(offsets, pa.array([*why], pa.int64())))
            reasons = pa.array(map(why.get, withheld.column("_offset").to_pylist()), pa.string())
            yield self._batch(withheld, {"_fault": reasons, "_filtered": reasons.is_null()})


# -- counts and files ---------------------------------------------------------------------------------------------------

_COUNTED = {"records": "sum", "bad": "sum", "misfits": "sum", "position": "max", "oldest": "min", "deleted": "max"}
REPORT = pa.schema(
    {
        **{name: COORDINATES[name] for name in PARTITION},
        **dict.fromkeys(_COUNTED, pa.int64()),
        "file": pa.string(),
    }
)
"""The report of workers on decoded batches: numbers of each source partition, and files.

`position` is the next offset; in microseconds, `oldest` is the least timestamp of a record with a value, `deleted` the greatest of
a tombstone.
"""


def summed(counts: pa.Table) -> pa.Table:
    """Return the numbers of each source partition."""
    found = counts.group_by(PARTITION).aggregate([*_COUNTED.items()])
    return found.rename_columns([*PARTITION, *_COUNTED])


COUNTED = [*COORDINATES, "_tombstone", "_fault", "_misfit"]


def count(batches: Batches) -> Batches:
    """Report the numbers of decoded batches, of which it needs the columns `COUNTED`."""
    for batch in batches:
        at, is_deleted = batch.column("_timestamp").cast(pa.int64()), batch.column("_tombstone")
        nothing = pa.scalar(None, pa.int64())
        numbers = {
            "records": pa.repeat(1, len(batch)),
            "bad": batch.column("_fault").is_valid().cast(pa.int64()),
            "misfits": batch.column("_misfit").is_valid().cast(pa.int64()),
            "position": pc.add(batch.column("_offset"), 1),
            "oldest": pc.if_else(is_deleted, nothing, at),
            "deleted": pc.if_else(is_deleted, at, nothing),
        }
        counts = summed(pa.table({name: batch.column(name) for name in PARTITION} | numbers))
        yield from counts.append_column("file", pa.nulls(len(counts), pa.string())).cast(REPORT).to_batches()


def writing_job(folder: str, partition_by: Sequence[str], *, keeps_faults: bool) -> Callable[[Batches], Batches]:
    """Return the job that writes the rows of decoded batches to files that no commit names yet; with `keeps_faults` faults are rows.

    A commit of a few rows by Spark costs 1.5 CPU-s.
    """
    worker_log = WorkerLog.from_environment()

    def written(waiting: list[pa.RecordBatch]) -> Batches:
        parts = split_rows(pa.Table.from_batches(waiting), partition_by) if waiting else ()
        files = [{"file": json.dumps(write_rows(folder, part, (), partition_by))} for part in parts]
        yield from pa.Table.from_pylist(files, REPORT).to_batches()

    def job(batches: Batches) -> Batches:
        worker_log.attach()
        waiting = list[pa.RecordBatch]()
        for batch in batches:
            yield from count(iter([batch]))
            is_row = pc.invert(batch.column("_filtered"))
            good = batch.filter(is_row if keeps_faults else pc.and_(is_row, pc.is_null(batch.column("_fault"))))
            waiting += [good.drop_columns([*OF_BATCH])] if len(good) else []
            if sum(one.nbytes for one in waiting) >= _FILE_BYTES:
                yield from written(waiting)
                waiting = []
        yield from written(waiting)

    return job
