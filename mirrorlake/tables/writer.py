"""Write batches of relay records to a typed table, each once (law F).

A batch's commit carries its number as the version of an application transaction, and the positions after it. A second writer
of the table drops its batch of that number, reads the positions, and stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.bad_records import record_bad
from mirrorlake.tables.codecs import CODECS
from mirrorlake.tables.columns import column_changes, rewritten
from mirrorlake.tables.commits import UPKEEP, Overtaken, app_of, is_conflict
from mirrorlake.tables.create import commented, create_table
from mirrorlake.tables.decoding import (
    COORDINATES,
    FAULT,
    FILTERED,
    MISFIT,
    RAW_KEY,
    RAW_VALUE,
    RESERVED,
    TOMBSTONE,
    RowFormat,
    decoding_job,
)
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.derived import is_of_data, mark_failures, with_derived
from mirrorlake.tables.merge import merge_newest
from mirrorlake.tables.payload_columns import (
    BINARY_COLUMNS,
    TEXT_COLUMNS,
    JsonColumns,
    PayloadColumns,
    RegistryColumns,
    given_columns,
)
from mirrorlake.tables.progress import TableProgress, read_progress
from mirrorlake.tables.registries import no_registry
from mirrorlake.tables.through import Through, passing_job
from mirrorlake.tables.worker_files import INNER, PartitionCount, Written, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlake.schemas import SchemaRegistry

log = logging.getLogger(__name__)

KEY_TYPE, VALUE_TYPE = "mirrorlake.key_type", "mirrorlake.value_type"


class TableWriter:
    """Write one typed table; `owner` is the name of this run, and `through` are the rules that apply to records first."""

    def __init__(
        self,
        lake: Lake,
        table: TypedTable,
        *,
        owner: str,
        now: Callable[[], datetime],
        registries: Callable[[str], SchemaRegistry] = no_registry,
        through: Through | None = None,
    ) -> None:
        self._lake = lake
        self._table = table
        self._owner = owner
        self._now = now
        self._location = lake.typed_location(table.name)
        self._registries = registries
        self._through = through
        self._key: PayloadColumns = TEXT_COLUMNS
        self._value: PayloadColumns = TEXT_COLUMNS
        self._is_new = True
        self._columns: StructType | None = None
        self.partition_by: tuple[str, ...] = table.config.partition_by
        self.progress = TableProgress()

    def open(self) -> None:
        self._is_new = not self._lake.exists(self._location)
        kept = {} if self._is_new else self._lake.properties(self._location)
        if not self._is_new:
            self._table.refuse_edits(kept)
            self.partition_by = self._lake.partition_by(self._location)
        self._key = self._columns_of("keys", kept.get(KEY_TYPE))
        self._value = self._columns_of("values", kept.get(VALUE_TYPE))
        self.progress = TableProgress() if self._is_new else read_progress(self._lake, self._location)

    def _columns_of(self, of: Literal["keys", "values"], kept: str | None) -> PayloadColumns:
        config = self._table.config
        payloads = getattr(config, of)
        taken = RESERVED | config.columns.keys() if of == "values" else frozenset[str]()
        if payloads in ("text", "binary"):
            return TEXT_COLUMNS if payloads == "text" else BINARY_COLUMNS
        widens = config.changes == "add" or self._is_new
        if payloads == "json":
            if of == "values" and not config.is_inferred:
                return given_columns(config.given_type, taken=taken)
            return JsonColumns(kept, taken=taken, widens=widens)
        return RegistryColumns(
            CODECS[payloads],
            kept,
            registries=self._registries,
            sources=tuple(self._table.topics),
            taken=taken,
            widens=widens,
        )

    def write(self, records: DataFrame) -> Written:
        """Write a batch: a frame with the columns of `COORDINATES`, `key` and `value`, past the table's positions.

        Raises:
            Overtaken: upkeep or an erasure changed the table meanwhile.
            SafetyError: another run writes the table.
            UsageError: a record is no row, and `bad_records` is `stop`; or the settings' expressions fail.
        """
        try:
            return self._write_plain(records)
        except Exception as error:
            if not (self._table.config.columns and is_of_data(error)):
                raise
            log.info("table.guarded table=%s error=%s", self._table.name, type(error).__name__)
            return self._write_rows(records, is_guarded=True)

    def _write_plain(self, records: DataFrame) -> Written:
        if self._table.config.mode == "append" and not self._is_new and self._lake.takes_files(self._location):
            written = self._write_files(records)
            if written is not None:
                return written
        return self._write_rows(records)

    def _write_rows(self, records: DataFrame, *, is_guarded: bool = False) -> Written:
        decoded = self._decoded(records, is_guarded=is_guarded)
        try:
            counts = self._counts(decoded)
            if not counts:
                # A new table has no columns yet, which expressions of the settings may name.
                return Written()
            if any(one.misfits for one in counts):
                self._grow(records, decoded)
                decoded.unpersist()
                decoded = self._decoded(records, is_last=True, is_guarded=is_guarded)
                counts = self._counts(decoded)
            rows = self._rows(decoded, is_guarded=is_guarded)

            def commit(progress: TableProgress) -> None:
                self._require_columns(rows.drop(TOMBSTONE).schema)
                self._add(rows, progress)

            return self._finish(decoded, counts, commit)
        finally:
            decoded.unpersist()

    def _write_files(self, records: DataFrame) -> Written | None:
        """Write a batch by files of workers, or return None if columns must change first: a batch needs one job then."""
        decoded = self._decode(records)
        try:
            rows = self._with_derived(decoded)
        except UsageError:
            # It may name a column that comes with these records.
            return None
        if self._columns is None:
            self._columns = self._lake.typed(self._table.name).schema
        if not column_changes(self._columns, rows.drop(*INNER).schema).is_empty:
            return None
        files, counts = write_files(
            rows, self._location, self.partition_by, keeps_faults=self._table.config.bad_records == "null"
        )
        if any(one.misfits for one in counts):
            return None
        crash_point("table.files_written")
        return self._finish(
            decoded, counts, lambda progress: self._lake.commit_files(self._location, files, **self._signed(progress))
        )

    def rows(self, records: DataFrame) -> DataFrame:
        """Return the rows that records are, by the columns that the table has, and `_tombstone` (see `judge`)."""
        return self._rows(self._decode_known(records), is_guarded=True)

    def judge(self, records: DataFrame) -> DataFrame:
        """Return records as rows by the columns that the table has, with what keeps one from being a row."""
        return self._with_derived(self._decode_known(records), is_guarded=True)

    @property
    def types(self) -> dict[str, str]:
        found = {KEY_TYPE: self._key.to_text(), VALUE_TYPE: self._value.to_text()}
        return {name: text for name, text in found.items() if text is not None}

    def create_like(self, other: TableWriter) -> None:
        create_table(self._lake, self._table, self._lake.typed(other._table.name).schema, other.types)

    # -- decoding ---------------------------------------------------------------------------------------------------

    def _formats(self, *, is_last: bool, is_guarded: bool) -> RowFormat:
        return RowFormat(
            key=self._key.format(),
            value=self._value.format(),
            takes_misfits=not is_last and (self._key.may_grow or self._value.may_grow),
            needs_key=self._table.config.mode == "upsert",
            through=self._through,
            keeps_raw=is_guarded,
        )

    def _decode_known(self, records: DataFrame) -> DataFrame:
        if isinstance(self._value, RegistryColumns) or isinstance(self._key, RegistryColumns):
            decoded = self._decode(records)
            if decoded.where(f"{MISFIT} IS NOT NULL").limit(1).count():
                self._grow(records, decoded)
        return mark_failures(self._decode(records, is_last=True), self._table)

    def _decoded(self, records: DataFrame, *, is_last: bool = False, is_guarded: bool = False) -> DataFrame:
        return self._decode(records, is_last=is_last, is_guarded=is_guarded).persist()

    def _decode(self, records: DataFrame, *, is_last: bool = False, is_guarded: bool = False) -> DataFrame:
        """Decode records; with `is_guarded`, those that a derived column fails for are faults once all columns are known."""
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = self._formats(is_last=is_last, is_guarded=is_guarded)
        columns = [*COORDINATES, "key", "value", *(["headers"] if self._through else [])]
        decoded = records.select(*columns).mapInArrow(decoding_job(rows), from_arrow_schema(rows.schema))
        return mark_failures(decoded, self._table) if is_guarded else decoded

    def _counts(self, decoded: DataFrame) -> list[PartitionCount]:
        from pyspark.sql import functions as F

        # In the order of the fields.
        counts = (F.count("*"), F.count(FAULT), F.count(MISFIT), F.max("_offset") + 1)
        grouped = decoded.groupBy("_source", "_topic", "_generation", "_partition").agg(*counts)
        return [PartitionCount(*row) for row in grouped.collect()]

    def _grow(self, records: DataFrame, decoded: DataFrame) -> None:
        misfits = records.join(
            decoded.where(f"{MISFIT} IS NOT NULL").select(*list(COORDINATES)[:5]), list(COORDINATES)[:5], "left_semi"
        )
        if self._through is not None:
            misfits = misfits.mapInArrow(passing_job(self._through), misfits.schema)
        for columns, name in ((self._key, "key"), (self._value, "value")):
            if columns.may_grow:
                columns.grow(misfits, name)

    # -- rows -------------------------------------------------------------------------------------------------------

    def _rows(self, decoded: DataFrame, *, is_guarded: bool = False) -> DataFrame:
        """Return the rows of a decoded batch, with the table's columns and `_tombstone`."""
        rows = decoded if self._table.config.bad_records == "null" else decoded.where(f"{FAULT} IS NULL")
        rows = self._with_derived(rows.where(f"NOT {FILTERED}"), is_guarded=is_guarded)
        return rows.drop(FAULT, FILTERED, MISFIT, RAW_KEY, RAW_VALUE)

    def _with_derived(self, rows: DataFrame, *, is_guarded: bool = False) -> DataFrame:
        from pyspark.sql import functions as F

        rows = with_derived(rows, self._table, is_guarded=is_guarded)
        texts = [name for name, kind in rows.dtypes if kind == "string" and name in self.partition_by]
        # An empty text is null as a partition's value.
        return rows.withColumns({name: F.nullif(F.col(f"`{name}`"), F.lit("")) for name in texts}) if texts else rows

    def _finish(
        self, decoded: DataFrame, counts: Sequence[PartitionCount], commit: Callable[[TableProgress], None]
    ) -> Written:
        """Record the bad records of a batch, commit its rows, and go on from its progress if it is the newest batch.

        Raises:
            Overtaken: upkeep, or a claim of this run, took its number: the batch was dropped, and is to be read again.
            SafetyError: another run writes the table.
        """
        written = Written.of(counts)
        if not counts:
            return written
        if written.bad:
            record_bad(self._lake, self._table, decoded, self._now())
            crash_point("table.bad_recorded")
        positions = _advanced(self.progress.positions, counts)
        progress = TableProgress(self.progress.batch + 1, self._owner, positions)
        failure = None
        try:
            commit(progress)
            crash_point("table.committed")
        except Exception as error:
            if not is_conflict(error):
                raise
            failure = error
        found = read_progress(self._lake, self._location)
        if found == progress:
            self.progress = progress
            return written
        if found.owner.startswith(UPKEEP) or found.owner in (self._owner, self.progress.owner):
            log.info("table.overtaken table=%s batch=%s by=%s", self._table.name, progress.batch, found.owner)
            raise Overtaken from failure
        raise SafetyError(
            f"another run writes the table {self._table.name}: {found.owner}",
            consequence="this run's batch was dropped, and the other one goes on",
            remedy="end one of the two",
            table=self._table.name,
        )

    def _add(self, rows: DataFrame, progress: TableProgress) -> None:
        signed = self._signed(progress)
        if self._table.config.mode == "upsert":
            merge_newest(rows, self._lake.sql_name(self._location), f"batch_{abs(hash(self._location))}", **signed)
        else:
            self._lake.append(rows.drop(TOMBSTONE), self._location, **signed)

    def _signed(self, progress: TableProgress) -> dict[str, Any]:
        return {"app_id": app_of(self._table.name), "version": progress.batch, "signature": progress.to_text()}

    # -- columns ----------------------------------------------------------------------------------------------------

    def _require_columns(self, rows: StructType) -> None:
        """Create the table, add its missing columns, and widen those of a narrower type."""
        types, self._columns = self.types, None
        if not self._lake.exists(self._location):
            create_table(self._lake, self._table, rows, types)
            self._is_new = False
            return
        known = self._lake.properties(self._location)
        if not types.items() <= known.items():
            self._lake.set_properties(self._location, types)
        table = self._lake.typed(self._table.name)
        wanted = commented(rows, self._table)
        changed = column_changes(table.schema, wanted)
        defaults = {path: value for path, value in self._value.defaults().items() if ".".join(path) in changed.added}
        if changed.recast or defaults:
            writer = rewritten(table, wanted, defaults).write.mode("overwrite").option("overwriteSchema", "true")
            writer = writer.partitionBy(*self.partition_by).option("userMetadata", self.progress.to_text())
            self._lake.save_typed(writer, self._location)
        elif changed.added:
            empty = table.sparkSession.createDataFrame([], wanted)
            self._lake.append(empty, self._location, signature=self.progress.to_text(), adds_columns=True)
        if changed.added or changed.recast:
            log.info(
                "table.columns table=%s added=%s recast=%s",
                self._table.name,
                ",".join(changed.added),
                ",".join(changed.recast),
            )


def _advanced(
    positions: Mapping[str, Mapping[SourcePartition, int]], counts: Iterable[PartitionCount]
) -> dict[str, dict[SourcePartition, int]]:
    after = {source: dict(at) for source, at in positions.items()}
    for one in counts:
        known, place = after.setdefault(one.source, {}), SourcePartition(one.topic, one.generation, one.partition)
        known[place] = max(known.get(place, 0), one.position)
    return after
