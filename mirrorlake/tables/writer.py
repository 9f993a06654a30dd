"""Write batches of relay records to a typed table, each once (law F).

A batch's commit carries its number as the version of an application transaction, and the positions after it. A second writer
of the table drops its batch of that number, reads the positions, and stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from mirrorlake.errors import SafetyError
from mirrorlake.lake import APPEND_ONLY, REMOVABLE, Lake, TableSchema
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.bad_records import record_bad
from mirrorlake.tables.codecs import CODECS
from mirrorlake.tables.columns import column_changes, default_of, merged_schema, recast
from mirrorlake.tables.commits import UPKEEP, Overtaken, app_of, is_conflict
from mirrorlake.tables.decoding import (
    COORDINATES,
    FAULT,
    FILTERED,
    KEY,
    MISFIT,
    RAW_KEY,
    RAW_VALUE,
    RESERVED,
    TOMBSTONE,
    RowFormat,
    decoding_job,
)
from mirrorlake.tables.definition import DELETION_VECTORS, TypedTable
from mirrorlake.tables.merge import is_small, merge_few, merge_newest
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
from mirrorlake.tables.worker_files import INNER, PartitionCount, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlake.schemas import SchemaRegistry

log = logging.getLogger(__name__)

KEY_TYPE, VALUE_TYPE = "mirrorlake.key_type", "mirrorlake.value_type"


@dataclass(frozen=True, slots=True)
class Written:
    """The counts of batches: records read, and bad ones among them."""

    records: int = 0
    bad: int = 0

    @classmethod
    def of(cls, counts: Sequence[PartitionCount]) -> Written:
        """Return the counts of all source partitions together."""
        return cls(sum(one.records for one in counts), sum(one.bad for one in counts))

    def __add__(self, other: Written) -> Written:
        return Written(self.records + other.records, self.bad + other.bad)


class TableWriter:
    """Write one typed table.

    Args:
        lake: the lake.
        table: the table.
        owner: the name of this run.
        now: the clock.
        registries: returns the schema registry of a source.
        through: the rules that apply to records first.
    """

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
        self.progress = TableProgress()

    def open(self) -> None:
        """Read the columns and the progress of the table, which another run may have written."""
        self._is_new = not self._lake.exists(self._location)
        kept = {} if self._is_new else self._lake.properties(self._location)
        if not self._is_new:
            self._table.refuse_edits(kept)
            if kept.get(DELETION_VECTORS, "false") != self._table.protocol[DELETION_VECTORS]:
                self._lake.alter_typed(self._location, self._table.protocol)
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
        if self._table.config.mode == "append" and not self._is_new and self._lake.takes_files(self._location):
            written = self._write_files(records)
            if written is not None:
                return written
        decoded = self._decoded(records)
        try:
            counts = self._counts(decoded)
            if any(one.misfits for one in counts):
                self._grow(records, decoded)
                decoded.unpersist()
                decoded = self._decoded(records, is_last=True)
                counts = self._counts(decoded)
            rows = self._rows(decoded)

            def commit(progress: TableProgress) -> None:
                self._require_columns(rows.drop(TOMBSTONE).schema)
                self._add(rows, progress, records=Written.of(counts).records)

            return self._finish(decoded, counts, commit)
        finally:
            decoded.unpersist()

    def _write_files(self, records: DataFrame) -> Written | None:
        """Write a batch by files of workers, or return None if columns must change first: a batch needs one job then."""
        decoded = self._decode(records)
        rows = self._with_derived(decoded)
        if self._columns is None:
            self._columns = self._lake.typed(self._table.name).schema
        if not column_changes(self._columns, rows.drop(*INNER).schema).is_empty:
            return None
        files, counts = write_files(rows, self._location, keeps_faults=self._table.config.bad_records == "null")
        if any(one.misfits for one in counts):
            return None
        return self._finish(
            decoded, counts, lambda progress: self._lake.commit_files(self._location, files, **self._signed(progress))
        )

    def rows(self, records: DataFrame) -> DataFrame:
        """Return the rows that records are, by the columns that the table has, and `_tombstone` (see `judge`)."""
        return self._rows(self._decode_known(records))

    def judge(self, records: DataFrame) -> DataFrame:
        """Return records as rows by the columns that the table has, with what keeps one from being a row.

        Raises:
            RegistryUnreachable: a schema is not known yet, and its registry does not answer.
        """
        return self._with_derived(self._decode_known(records))

    @property
    def types(self) -> dict[str, str]:
        """The table's properties that hold the types of keys and values."""
        found = {KEY_TYPE: self._key.to_text(), VALUE_TYPE: self._value.to_text()}
        return {name: text for name, text in found.items() if text is not None}

    def create_like(self, other: TableWriter) -> None:
        """Create the table with the columns of another one."""
        self._create(self._lake.typed(other._table.name).schema, other.types)

    # -- decoding ---------------------------------------------------------------------------------------------------

    def _formats(self, *, is_last: bool) -> RowFormat:
        return RowFormat(
            key=self._key.format(),
            value=self._value.format(),
            takes_misfits=not is_last and (self._key.may_grow or self._value.may_grow),
            needs_key=self._table.config.mode == "upsert",
            through=self._through,
        )

    def _decode_known(self, records: DataFrame) -> DataFrame:
        """Decode records by the columns that the table has, after reading the schemas that they name."""
        if isinstance(self._value, RegistryColumns) or isinstance(self._key, RegistryColumns):
            decoded = self._decode(records)
            if decoded.where(f"{MISFIT} IS NOT NULL").limit(1).count():
                self._grow(records, decoded)
        return self._decode(records, is_last=True)

    def _decoded(self, records: DataFrame, *, is_last: bool = False) -> DataFrame:
        return self._decode(records, is_last=is_last).persist()

    def _decode(self, records: DataFrame, *, is_last: bool = False) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = self._formats(is_last=is_last)
        columns = [*COORDINATES, "key", "value", *(["headers"] if self._through else [])]
        return records.select(*columns).mapInArrow(decoding_job(rows), from_arrow_schema(rows.schema))

    def _counts(self, decoded: DataFrame) -> list[PartitionCount]:
        from pyspark.sql import functions as F

        # In the order of the fields.
        counts = (F.count("*"), F.count(FAULT), F.count(MISFIT), F.max("_offset") + 1)
        grouped = decoded.groupBy("_source", "_topic", "_generation", "_partition").agg(*counts)
        return [PartitionCount(*row) for row in grouped.collect()]

    def _grow(self, records: DataFrame, decoded: DataFrame) -> None:
        """Widen the types by the records that do not fit."""
        misfits = records.join(
            decoded.where(f"{MISFIT} IS NOT NULL").select(*list(COORDINATES)[:5]), list(COORDINATES)[:5], "left_semi"
        )
        if self._through is not None:
            misfits = misfits.mapInArrow(passing_job(self._through), misfits.schema)
        for columns, name in ((self._key, "key"), (self._value, "value")):
            if columns.may_grow:
                columns.grow(misfits, name)

    # -- rows -------------------------------------------------------------------------------------------------------

    def _rows(self, decoded: DataFrame) -> DataFrame:
        """Return the rows of a decoded batch, with the table's columns and `_tombstone`."""
        rows = decoded if self._table.config.bad_records == "null" else decoded.where(f"{FAULT} IS NULL")
        return self._with_derived(rows.where(f"NOT {FILTERED}")).drop(FAULT, FILTERED, MISFIT, RAW_KEY, RAW_VALUE)

    def _with_derived(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.withColumns({name: F.expr(text) for name, text in self._table.config.columns.items()})

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
        positions = _advanced(self.progress.positions, counts)
        progress = TableProgress(self.progress.batch + 1, self._owner, positions)
        failure = None
        try:
            commit(progress)
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

    def _add(self, rows: DataFrame, progress: TableProgress, *, records: int) -> None:
        signed = self._signed(progress)
        if self._table.config.mode == "upsert" and is_small(self._lake, self._location, records):
            merge_few(self._lake, rows, self._location, **signed)
        elif self._table.config.mode == "upsert":
            merge_newest(rows, self._lake.sql_name(self._location), f"batch_{abs(hash(self._location))}", **signed)
        else:
            self._lake.append(rows.drop(TOMBSTONE), self._location, **signed)

    def _signed(self, progress: TableProgress) -> dict[str, Any]:
        return {"app_id": app_of(self._table.name), "version": progress.batch, "signature": progress.to_text()}

    # -- columns ----------------------------------------------------------------------------------------------------

    def _require_columns(self, wanted: StructType) -> None:
        """Create the table, add its missing columns, and widen those of a narrower type."""
        types = self.types
        self._columns = None
        if not self._lake.exists(self._location):
            self._create(wanted, types)
            self._is_new = False
            return
        known = self._lake.properties(self._location)
        if not types.items() <= known.items():
            self._lake.set_properties(self._location, types)
        table = self._lake.typed(self._table.name)
        changed = column_changes(table.schema, wanted)
        defaults = {path: value for path, value in self._value.defaults().items() if ".".join(path) in changed.added}
        if changed.recast or defaults:
            self._rewrite(table, wanted, defaults)
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

    def _create(self, wanted: StructType, types: Mapping[str, str]) -> None:
        columns = {one.name: (one.dataType.simpleString(), self._comment(one.name)) for one in wanted.fields}
        title = (
            f"Records of {', '.join(self._table.topics)}: {self._table.config.mode}, values {self._table.config.values}"
        )
        properties = {**APPEND_ONLY, **REMOVABLE, **self._table.properties, **types}
        table = TableSchema(name=self._table.name, comment=title, columns=columns, properties=properties)
        self._lake.create_typed(self._location, table)

    def _comment(self, column: str) -> str:
        config = self._table.config
        if column in config.columns:
            return f"Derived: {config.columns[column]}"
        return _COMMENTS.get(column, f"Key of the record, {config.keys}" if column == KEY else "Member of the value")

    def _rewrite(self, table: DataFrame, wanted: StructType, defaults: Mapping[tuple[str, ...], Any]) -> None:
        """Write the whole table anew with wider types and the defaults of new columns, in one commit."""
        from pyspark.sql import functions as F

        known = {one.name: one.dataType for one in table.schema.fields}
        values = [F.col(f"`{name}`") for name in known if name not in RESERVED]
        # A tombstone's row has no value.
        has_value = (
            F.coalesce(*(F.when(one.isNotNull(), F.lit(1)) for one in values)).isNotNull() if values else F.lit(True)
        )
        columns = [
            recast(F.col(f"`{one.name}`"), known[one.name], one.dataType, defaults, (one.name,)).alias(one.name)
            if one.name in known
            else F.when(has_value, default_of((one.name,), one.dataType, defaults)).alias(one.name)
            for one in merged_schema(table.schema, wanted).fields
        ]
        writer = table.select(*columns).write.mode("overwrite").option("overwriteSchema", "true")
        self._lake.save_typed(writer.option("userMetadata", self.progress.to_text()), self._location)


_COMMENTS = {
    "_source": "Alias of the source cluster",
    "_topic": "Source topic",
    "_generation": "Generation of the source partition",
    "_partition": "Source partition",
    "_offset": "Upstream offset",
    "_timestamp": "Record timestamp",
    "value": "Value of the record",
}


def _advanced(
    positions: Mapping[str, Mapping[SourcePartition, int]], counts: Iterable[PartitionCount]
) -> dict[str, dict[SourcePartition, int]]:
    after = {source: dict(at) for source, at in positions.items()}
    for one in counts:
        known, place = after.setdefault(one.source, {}), SourcePartition(one.topic, one.generation, one.partition)
        known[place] = max(known.get(place, 0), one.position)
    return after
