"""Write batches of relay records to a typed table, each once (law F).

A batch's commit carries its number as the version of an application transaction, and the positions after it. A second writer
of the table drops its batch of that number, reads the positions, and stops.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlake.context import Context
from mirrorlake.crash_points import crash_point
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import TableSchema
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.decode import (
    COORDINATES,
    FAULT,
    FILTERED,
    INNER,
    MISFIT,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    REPORT,
    TOMBSTONE,
    BatchCounts,
    Counts,
    RowFormat,
    decoding_job,
    looking_job,
    read_reports,
    writing_job,
)
from mirrorlake.tables.definition import TypedTable, registries_of, views_of
from mirrorlake.tables.formats import KEPT, Format, format_of
from mirrorlake.tables.progress import UPKEEP, Overtaken, TableProgress, app_of, is_conflict, read_progress
from mirrorlake.tables.relay import TableRelay
from mirrorlake.tables.rows import (
    is_of_data,
    mark_failures,
    merge_newest,
    newest_of_keys,
    partitioned,
    record_bad,
    viewed,
    with_derived,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

log = logging.getLogger(__name__)

ADDED, OTHER = "added", "other"


class Widens(Exception):
    """A batch was dropped: columns must have other types, so the table is to be built again from the relay."""


@dataclass(frozen=True, slots=True)
class Written:
    records: int = 0
    bad: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.records + other.records, self.bad + other.bad)


class TableWriter:
    """Write one typed table; `owner` is the name of this run, and `relay` has the table's records.

    Attributes:
        is_stale: whether the next batch is the whole relay, from which the table is built again.
        may_rebuild: whether a column may widen: the relay holds the records of all rows.
    """

    def __init__(self, context: Context, table: TypedTable, relay: TableRelay, *, owner: str) -> None:
        self._context = context
        self._lake = context.lake
        self._table = table
        self._config = table.config
        self._relay = relay
        self._owner = owner
        self._location = context.lake.typed_location(table.name)
        self._views = views_of(context, table.config)
        self._registries = registries_of(context, table.config)
        self._columns: StructType | None = None
        self._partition_by: tuple[str, ...] = ()
        self.progress = TableProgress()
        self.is_stale = self.may_rebuild = True

    def open(self, *, anew: bool = False) -> None:
        """Read what the table has, and how far it is. With `anew` it is built again, in the way of a new one.

        Raises:
            StoreError: its log is broken.
            UsageError: its rows are of other settings.
        """
        is_there = self._lake.exists(self._location)
        self.progress = read_progress(self._lake, self._location) if is_there else TableProgress()
        self.is_stale = anew or not is_there or self.progress.is_stale
        self.may_rebuild = self.may_rebuild or self.is_stale
        kept, self._partition_by = dict[str, str](), self._config.partition_by
        if not self.is_stale:
            kept, self._partition_by = self._lake.properties(self._location), self._lake.partition_by(self._location)
            self._table.refuse_edits(kept)
        self._columns = None
        of = self._registries, tuple(self._table.topics)
        self._key, self._value = (format_of(self._config, each, kept.get(name), *of) for each, name in KEPT.items())

    def write(self, records: DataFrame) -> Written:
        """Write a batch, past the table's positions; where `is_stale` the whole relay, which replaces what the table had.

        Raises:
            Widens: the table is to be built again.
            Overtaken: another process changed the table meanwhile.
            SafetyError: another run writes the table.
            UsageError: a record is no row, and `bad_records` is `stop`; or the settings' expressions fail.
        """
        self._key, self._value = self._key.begun(), self._value.begun()
        try:
            return self._write_files(records) or self._write(records)
        except Exception as error:
            if not (self._config.columns and is_of_data(error)):
                raise
            log.info("table.guarded table=%s error=%s", self._table.name, type(error).__name__)
            return self._write(records, is_guarded=True)

    def _write(self, records: DataFrame, *, is_guarded: bool = False) -> Written:
        decoded = self._decode(records, is_guarded=is_guarded).persist()
        try:
            counts = self._counts(decoded)
            if not counts and not (self.is_stale and self._lake.exists(self._location)):
                # A new table has no columns yet, which expressions of the settings may name.
                return Written()
            if any(one.misfits for one in counts.values()):
                self._grow(decoded)
                decoded.unpersist()
                decoded = self._decode(records, is_last=True, is_guarded=is_guarded).persist()
                counts = self._counts(decoded)
            rows = self.rows(decoded, is_guarded=is_guarded)
            return self._finish(decoded, counts, lambda progress: self._commit(rows, counts, progress))
        finally:
            decoded.unpersist()

    def _write_files(self, records: DataFrame) -> Written | None:
        """Write an appended batch by files of workers, or return None if it needs more: a batch needs one job then."""
        if self.is_stale or self._config.mode != "append" or not self._lake.takes_files(self._location):
            return None
        decoded = self._decode(records)
        try:
            rows = with_derived(decoded, self._table)
        except UsageError:
            # It may name a column that comes with these records.
            return None
        if self._change(rows.drop(*INNER).schema):
            return None
        keeps_faults = self._config.bad_records == "null"
        job = writing_job(self._location, self._partition_by, keeps_faults=keeps_faults)
        files, counts = read_reports(partitioned(rows, self._partition_by).mapInArrow(job, REPORT).collect())
        if not counts or any(one.misfits for one in counts.values()):
            return None if counts else Written()
        crash_point("table.files_written")
        return self._finish(
            decoded, counts, lambda progress: self._lake.commit_files(self._location, files, **self._signed(progress))
        )

    # -- decoding -------------------------------------------------------------------------------------------------------

    def _decode(self, records: DataFrame, *, is_last: bool = False, is_guarded: bool = False) -> DataFrame:
        """Decode records; with `is_guarded`, those that a derived column fails for are faults once all columns are known."""
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = RowFormat(
            key=self._key,
            value=self._value,
            takes_misfits=not is_last and (self._key.may_grow or self._value.may_grow),
            needs_key=self._config.mode == "upsert",
            keeps_raw=is_guarded,
            views=self._views,
        )
        columns = [*COORDINATES, "key", "value", *(["headers"] if self._views else [])]
        decoded = records.select(*columns).mapInArrow(decoding_job(rows), from_arrow_schema(rows.schema))
        return mark_failures(decoded, self._table) if is_guarded else decoded

    def judge(self, records: DataFrame) -> DataFrame:
        """Decode records by the columns that the table has, with what keeps one from being a row."""
        return self._decode(records, is_last=True, is_guarded=True)

    def rows(self, decoded: DataFrame, *, is_guarded: bool = True) -> DataFrame:
        """Return the rows of decoded records, with the table's columns and `_tombstone`."""
        rows = decoded if self._config.bad_records == "null" else decoded.where(f"{FAULT} IS NULL")
        rows = with_derived(rows.where(f"NOT {FILTERED}"), self._table, is_guarded=is_guarded)
        return partitioned(rows, self._partition_by).drop(FAULT, FILTERED, MISFIT, RAW_KEY, RAW_VALUE)

    def _counts(self, decoded: DataFrame) -> BatchCounts:
        from pyspark.sql import functions as F

        at, is_deleted = F.unix_micros("_timestamp"), F.col(TOMBSTONE)
        counts = (F.count("*"), F.count(FAULT), F.count(MISFIT), F.max("_offset") + 1)
        times = (F.min(F.when(~is_deleted, at)), F.max(F.when(is_deleted, at)))
        rows = decoded.groupBy(*PARTITION).agg(*counts, *times).collect()
        return {(row[0], SourcePartition(*row[1:4])): Counts(*row[4:]) for row in rows}

    def _grow(self, decoded: DataFrame) -> None:
        misfits = decoded.where(f"{MISFIT} IS NOT NULL")
        how = {"widens": self._config.changes == "add" or self.is_stale, "rebuilds": self.is_stale or self.may_rebuild}
        key = self._key.grown(_seen(misfits, RAW_KEY, self._key), self._registries, **how)
        value = self._value.grown(_seen(misfits, RAW_VALUE, self._value), self._registries, **how)
        if not self.is_stale and (self._key.is_rebuilt_for(key) or self._value.is_rebuilt_for(value)):
            raise Widens
        self._key, self._value = key, value

    # -- commits --------------------------------------------------------------------------------------------------------

    def _finish(self, decoded: DataFrame, counts: BatchCounts, commit: Callable[[TableProgress], None]) -> Written:
        """Record the bad records of a batch, commit its rows, and go on from its progress if it is the newest batch."""
        written = Written(sum(one.records for one in counts.values()), sum(one.bad for one in counts.values()))
        if written.bad or self.is_stale:
            how = {"has_bad": written.bad > 0, "replaces": self.is_stale}
            record_bad(self._lake, self._table, decoded, self._context.now(), **how)
            crash_point("table.bad_recorded")
        if self._lake.exists(self._location):
            # A batch is past the positions that it was read by: a person may have restored the table to others.
            self._require(self.progress, None)
        progress = self._advanced(counts)
        failure = None
        try:
            commit(progress)
            crash_point("table.committed")
        except Exception as error:
            if not is_conflict(error):
                raise
            failure = error
        self._require(progress, failure)
        self.progress = progress
        if self.is_stale:
            self.open()
        return written

    def _require(self, progress: TableProgress, failure: Exception | None) -> None:
        """Require that the newest batch of the table is this one."""
        found = read_progress(self._lake, self._location)
        if found == progress:
            return
        is_own = found.owner in (self._owner, self.progress.owner)
        if is_own or found.owner.startswith(UPKEEP) or found.batch == self.progress.batch:
            log.info("table.overtaken table=%s batch=%s by=%s", self._table.name, progress.batch, found.owner)
            raise Overtaken from failure
        raise SafetyError(
            f"another run writes the table {self._table.name}: {found.owner}",
            consequence="this run's batch was dropped, and the other one goes on",
            remedy="end one of the two",
            table=self._table.name,
        )

    def _advanced(self, counts: BatchCounts) -> TableProgress:
        positions: dict[str, dict[SourcePartition, int]] = {
            source: dict(at) for source, at in self.progress.positions.items()
        }
        deleted = dict(self.progress.deleted)
        for (source, place), one in counts.items():
            of_source = positions.setdefault(source, {})
            of_source[place] = max(of_source.get(place, 0), one.position)
            if one.deleted is not None and self._config.mode == "upsert":
                deleted[source] = max(deleted.get(source, one.deleted), one.deleted)
        # A query of a lost table goes on with its own numbers: those of the new one are above.
        least = 0 if self.progress.batch else int(self._context.now().timestamp())
        return TableProgress(max(self.progress.batch + 1, least), self._owner, positions, deleted)

    def _commit(self, rows: DataFrame, counts: BatchCounts, progress: TableProgress) -> None:
        signed, is_upserted = self._signed(progress), self._config.mode == "upsert"
        if self.is_stale:
            whole = newest_of_keys(rows).where(f"NOT {TOMBSTONE}") if is_upserted else rows
            self._replace(whole.drop(TOMBSTONE), signed)
            return
        self._add_columns(rows.drop(TOMBSTONE).schema)
        if is_upserted:
            merge_newest(self._with_deleted(rows, counts), self._lake.sql_name(self._location), **signed)
        else:
            self._lake.append(rows.drop(TOMBSTONE), self._location, **signed)

    def _signed(self, progress: TableProgress) -> dict[str, Any]:
        return {"app_id": app_of(self._table.name), "version": progress.batch, "signature": progress.to_text()}

    def _with_deleted(self, rows: DataFrame, counts: BatchCounts) -> DataFrame:
        """Add the tombstones of earlier batches that may be newer than a row of this one: the relay has them."""
        oldest: dict[str, int] = {}
        for (source, _), one in counts.items():
            if one.oldest is not None and one.oldest <= self.progress.deleted.get(source, one.oldest - 1):
                oldest[source] = min(oldest.get(source, one.oldest), one.oldest)
        if not oldest:
            return rows
        self._relay.refresh()
        earlier = self.rows(self.judge(self._relay.tombstones(self.progress.positions, oldest)))
        return rows.unionByName(earlier.where(TOMBSTONE))

    def _replace(self, rows: DataFrame, signed: dict[str, Any]) -> None:
        """Create the table, or replace rows, columns, settings and progress of the one that is there, in one commit."""
        self._table.refuse_partitions(rows.schema)
        properties = {**self._table.properties, **self._kept()}
        if self._lake.exists(self._location):
            known = self._lake.properties(self._location)
            properties = {name: text for name, text in known.items() if name.startswith("delta.")} | properties
        with viewed(rows, **signed) as view:
            comment = f"Records of {', '.join(self._table.topics)}: {self._config.mode}, values {self._config.values}"
            made = TableSchema(
                name=self._table.name,
                comment=comment,
                columns={},
                properties=properties,
                partition_by=self._config.partition_by,
            )
            self._lake.replace_typed(rows.sparkSession, view, self._location, made)

    def _kept(self) -> dict[str, str]:
        found = zip(KEPT.values(), (self._key.kept, self._value.kept), strict=True)
        return {name: text for name, text in found if text is not None}

    def _add_columns(self, wanted: StructType) -> None:
        """Remember what the table has seen, and add the columns that it lacks."""
        kept, known = self._kept(), self._lake.properties(self._location)
        if not kept.items() <= known.items():
            self._lake.set_properties(self._location, kept)
        if self._change(wanted) == ADDED:
            self._columns = None
            empty = self._relay.session.createDataFrame([], wanted)
            self._lake.append(empty, self._location, signature=self.progress.to_text(), adds_columns=True)
            log.info("table.columns table=%s", self._table.name)

    def _change(self, wanted: StructType) -> str:
        """Return how columns differ from the table's.

        Raises:
            UsageError: one has another type, by edited settings, and the relay has lost records of rows.
            Widens: one has another type.
        """
        if self._columns is None:
            self._columns = self._lake.typed(self._table.name).schema
        change = _change(self._columns, wanted)
        if change == OTHER and not self.may_rebuild:
            raise UsageError(
                f"columns of {self._table.name} have other types by the settings than its rows, whose records have left the relay",
                consequence="no record is written to it",
                remedy=f"take the edit back, or let older rows go: {self._table.rebuilding}",
                table=self._table.name,
            )
        if change == OTHER:
            raise Widens
        return change


def _seen(misfits: DataFrame, column: str, of: Format) -> Iterator[Any]:
    if of.may_grow:
        looked = misfits.select("_source", column).mapInArrow(looking_job(of, column), "seen string")
        yield from (json.loads(row.seen) for row in looked.distinct().collect())


def _change(have: DataType, want: DataType) -> str:
    """Return whether wanted columns are "" the same, only added ones, or of other types."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(have, StructType) and isinstance(want, StructType):
        known = {one.name: one.dataType for one in have.fields}
        found = {_change(known[one.name], one.dataType) if one.name in known else ADDED for one in want.fields}
        return OTHER if OTHER in found else ADDED if ADDED in found else ""
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        return _change(have.elementType, want.elementType)
    if isinstance(have, MapType) and isinstance(want, MapType):
        return _change(have.valueType, want.valueType)
    # Whether members may be null does not count.
    return "" if have.simpleString() == want.simpleString() else OTHER
