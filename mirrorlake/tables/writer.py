"""Write batches of relay records to a typed table, each once (law F).

A batch's commit carries its number as the version of an application transaction, and the positions after it. A second writer
of the table drops its batch of that number, and stops; after a commit of upkeep it reads the relay again.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from mirrorlake.context import Context
from mirrorlake.crash_points import crash_point
from mirrorlake.errors import ColumnUnknown, SafetyError, UsageError
from mirrorlake.lake import BAD_RECORDS, Lake, TableSchema, WrittenFile, quote
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.decode import COUNTED, REPORT, RowFormat, count, summed, writing_job
from mirrorlake.tables.definition import TypedTable, registries_of
from mirrorlake.tables.formats import COORDINATES, KEY, OF_BATCH, PARTITION, PLACE, RANK
from mirrorlake.tables.progress import (
    UPKEEP,
    Overtaken,
    TableProgress,
    TableRelay,
    app_of,
    is_conflict,
    read_progress,
    retried,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

Counts = list[dict[str, Any]]
"""The rows of `summed`."""

IDENTITY = ["_source", "_topic", KEY]
# The source is a part of the identity.
_ORDER = ["_timestamp", "_generation", "_partition", "_offset"]
_SETTINGS = {
    "app_id": "spark.databricks.delta.write.txnAppId",
    "version": "spark.databricks.delta.write.txnVersion",
    "signature": "spark.databricks.delta.commitInfo.userMetadata",
}
_NEW_COLUMNS = json.dumps({"app": "mirrorlake.table.columns"})
# All tables of a process write it, and each MERGE would overtake another one.
_OF_BAD_RECORDS = threading.Lock()
# Spark's `try_add` of a date is null if computing its operand fails. An operand without branches is not optimized away.
_FAILS = "try_add(date_add(DATE '2000-01-01', length(to_json(named_struct('x', {})))), INTERVAL '1' DAY) IS NULL"


class Widens(Exception):
    """A batch was dropped: columns must have other types, so the table is to be built again from the relay."""


@dataclass(frozen=True, slots=True)
class Written:
    records: int = 0
    bad: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.records + other.records, self.bad + other.bad)


class TableWriter:
    """Write one typed table; `owner` is the name of this run, and in `session` the relays are read.

    Attributes:
        is_stale: whether the next batch is the whole relay, from which the table is built again.
        may_rebuild: whether a column may widen: the relay holds the records of all rows.
    """

    def __init__(self, context: Context, table: TypedTable, session: SparkSession, *, owner: str) -> None:
        self._context = context
        self._lake = context.lake
        self._table = table
        self._config = table.config
        self._session = session
        self._owner = owner
        self._location = context.lake.typed_location(table.name)
        self._registries = registries_of(context, table.config)
        self.progress = TableProgress()
        self.is_stale = self.may_rebuild = True

    def open(self, *, anew: bool = False) -> None:
        """Read what the table has, and how far it is. With `anew` it is built again, in the way of a new one."""
        is_there = self._lake.exists(self._location)
        self.progress = read_progress(self._lake, self._table.name)
        self.is_stale = anew or not is_there or self.progress.is_stale
        self.may_rebuild = self.may_rebuild or self.is_stale
        kept, self._partition_by = dict[str, str](), self._config.partition_by
        if not self.is_stale:
            kept, self._partition_by = self._lake.properties(self._location), self._lake.partition_by(self._location)
            self._table.refuse_edits(kept)
        self._columns: StructType | None = None
        self._rows = RowFormat.of(self._context, self._table, kept, self._registries)
        self._kept = self._rows.kept

    def write(self, records: DataFrame) -> Written:
        """Write a batch, past the table's positions; where `is_stale` the whole relay, which replaces what the table had.

        Raises:
            Widens: the table is to be built again.
            Overtaken: another process changed the table meanwhile.
            SafetyError: another run writes the table.
            UsageError: a record is no row, and `bad_records` is `stop`; or the settings' expressions fail.
        """
        self._rows = self._rows.begun()
        return self._write_files(records) or self._write(records)

    def _write(self, records: DataFrame) -> Written:
        decoded = self._decode(records).persist()
        try:
            counts, _ = _reported(decoded.select(*COUNTED), count)
            if not counts and not (self.is_stale and self._lake.exists(self._location)):
                # A new table has no columns yet, which expressions of the settings may name.
                return Written()
            if any(one["misfits"] for one in counts) or not self._is_whole(decoded):
                self._grow(decoded)
                decoded.unpersist()
                decoded = self._decode(records, is_last=True).persist()
                counts, _ = _reported(decoded.select(*COUNTED), count)
            rows = self.rows(decoded)
            return self._finish(decoded, counts, lambda progress: self._commit(rows, counts, progress))
        finally:
            decoded.unpersist()

    def _write_files(self, records: DataFrame) -> Written | None:
        """Write an appended batch by files of workers, or return None if it needs more: a batch needs one job then."""
        if self.is_stale or self._config.mode != "append" or not self._lake.takes_files(self._location):
            return None
        decoded = self._decode(records)
        if not self._is_whole(decoded) or self._lacks(decoded.drop(*OF_BATCH).schema):
            return None
        keeps_faults = self._config.bad_records == "null"
        job = writing_job(self._location, self._partition_by, keeps_faults=keeps_faults)
        counts, files = _reported(decoded, job)
        if not counts or any(one["misfits"] for one in counts):
            return None if counts else Written()
        crash_point("table.files_written")
        return self._finish(
            decoded, counts, lambda progress: self._lake.commit_files(self._location, files, **self._signed(progress))
        )

    # -- decoding -------------------------------------------------------------------------------------------------------

    def _decode(self, records: DataFrame, *, is_last: bool = False) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = replace(self._rows, takes_misfits=not is_last and self._rows.may_grow)
        columns = [*COORDINATES, "key", "value", *(["headers"] if rows.views else [])]
        decoded = records.select(*columns).mapInArrow(rows.decode_all, from_arrow_schema(rows.schema))
        return with_derived(decoded, self._table, is_last=is_last)

    def _is_whole(self, decoded: DataFrame) -> bool:
        """Return whether no expression of the settings waits for a column that these records may bring."""
        return self._config.columns.keys() <= {*decoded.columns}

    def judge(self, records: DataFrame) -> DataFrame:
        """Decode records by the columns that the table has, with what keeps one from being a row."""
        return self._decode(records, is_last=True)

    def rows(self, decoded: DataFrame) -> DataFrame:
        """Return the rows of decoded records, with the table's columns and `_tombstone`."""
        from pyspark.sql import functions as F

        is_row = "NOT _filtered" if self._config.bad_records == "null" else "NOT _filtered AND _fault IS NULL"
        rows = decoded.where(is_row)
        # As Delta has it in a column by which a table is partitioned.
        texts = [name for name, kind in rows.dtypes if kind == "string" and name in self._partition_by]
        rows = rows.withColumns({name: F.nullif(F.col(f"`{name}`"), F.lit("")) for name in texts}) if texts else rows
        return rows.drop(*(name for name in OF_BATCH if name != "_tombstone"))

    def _grow(self, decoded: DataFrame) -> None:
        misfits = decoded.where("_misfit IS NOT NULL").select("_source", "_raw_key", "_raw_value")
        looked = misfits.mapInArrow(self._rows.look, "of string, seen string").distinct().collect()
        wider = self._rows.grown(
            ((one["of"], one["seen"]) for one in looked),
            self._registries,
            widens=self._config.changes == "add" or self.is_stale,
            rebuilds=self.may_rebuild,
        )
        if not self.is_stale and self._rows.is_rebuilt_for(wider):
            raise Widens
        self._rows = wider

    # -- commits --------------------------------------------------------------------------------------------------------

    def _finish(self, decoded: DataFrame, counts: Counts, commit: Callable[[TableProgress], None]) -> Written:
        """Record the bad records of a batch, commit its rows, and go on from its progress if it is the newest batch."""
        written = Written(sum(one["records"] for one in counts), sum(one["bad"] for one in counts))
        has_bad = written.bad > 0 and self._config.bad_records != "null"
        if has_bad or (self.is_stale and count_bad(self._lake, self._table.name)):
            record_bad(self._lake, self._table, decoded, self._context.now(), replaces=self.is_stale)
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
        found = read_progress(self._lake, self._table.name)
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

    def _advanced(self, counts: Counts) -> TableProgress:
        positions: dict[str, dict[SourcePartition, int]] = {
            source: dict(at) for source, at in self.progress.positions.items()
        }
        for one in counts:
            source, *place = (one[name] for name in PARTITION)
            at, of_source = SourcePartition(*place), positions.setdefault(source, {})
            of_source[at] = max(of_source.get(at, 0), one["position"])
        # A query of a lost table goes on with its own numbers: those of the new one are above.
        least = 0 if self.progress.batch else int(self._context.now().timestamp())
        deleted = max([self.progress.deleted, *(one["deleted"] or 0 for one in counts)])
        return TableProgress(max(self.progress.batch + 1, least), self._owner, positions, deleted)

    def _commit(self, rows: DataFrame, counts: Counts, progress: TableProgress) -> None:
        signed, is_upserted = self._signed(progress), self._config.mode == "upsert"
        if self.is_stale:
            whole = newest_of_keys(rows).where("NOT _tombstone") if is_upserted else rows
            self._replace(whole.drop("_tombstone"), signed)
            return
        self._add_columns(rows.drop("_tombstone").schema)
        if is_upserted:
            merge_newest(self._with_deleted(rows, counts), self._lake.sql_name(self._location), **signed)
        else:
            self._lake.append_frame(rows.drop("_tombstone"), self._location, **signed)

    def _signed(self, progress: TableProgress) -> dict[str, Any]:
        return {"app_id": app_of(self._table.name), "version": progress.batch, "signature": progress.to_text()}

    def _with_deleted(self, rows: DataFrame, counts: Counts) -> DataFrame:
        """Add the tombstones of earlier batches that may be newer than a row of this one: the relay has them."""
        oldest = min((one["oldest"] for one in counts if one["oldest"] is not None), default=None)
        if oldest is None or oldest > self.progress.deleted:
            return rows
        relay = TableRelay(self._lake, self._table, self._session)
        earlier = self.rows(self.judge(relay.tombstones(self.progress.positions, oldest)))
        return rows.unionByName(earlier.where("_tombstone"))

    def _replace(self, rows: DataFrame, signed: dict[str, Any]) -> None:
        """Create the table, or replace rows, columns, settings and progress of the one that is there, in one commit."""
        self._table.refuse_partitions(rows.schema)
        known = self._lake.properties(self._location) if self._lake.exists(self._location) else {}
        of_delta = {name: text for name, text in known.items() if name.startswith("delta.")}
        made = TableSchema(
            name=self._table.name,
            comment=f"Records of {', '.join(self._table.topics)}: {self._config.mode}, values {self._config.values}",
            columns={},
            properties={**of_delta, **self._table.properties, **self._rows.kept},
            partition_by=self._config.partition_by,
        )
        with viewed(rows, **signed) as view:
            self._lake.replace_typed(rows.sparkSession, view, self._location, made)

    def _add_columns(self, wanted: StructType) -> None:
        """Remember what the table has seen, and add the columns that it lacks.

        Raises:
            UsageError: one has another type, by edited settings, and the relay has lost records of rows.
            Widens: one has another type.
        """
        if self._rows.kept != self._kept:
            self._lake.set_properties(self._location, self._rows.kept)
            self._kept = self._rows.kept
        if not self._lacks(wanted):
            return
        if _differ(self._columns, wanted, adds=False):
            if self.may_rebuild:
                raise Widens
            raise UsageError(
                f"columns of {self._table.name} have other types by the settings than its rows, whose records have left the relay",
                consequence="no record is written to it",
                remedy=f"take the edit back, or let older rows go: {self._table.rebuilding}",
                table=self._table.name,
            )
        empty, self._columns = self._session.createDataFrame([], wanted), None
        # No progress: another process may have committed a newer one meanwhile.
        self._lake.append_frame(empty, self._location, signature=_NEW_COLUMNS, adds_columns=True)
        log.info("table.columns table=%s", self._table.name)

    def _lacks(self, wanted: StructType) -> bool:
        """Return whether the table has not all wanted columns, each of the same type."""
        if self._columns is None:
            self._columns = self._lake.typed(self._table.name).schema
        return _differ(self._columns, wanted, adds=True)


def _reported(decoded: DataFrame, job: Callable[..., Any]) -> tuple[Counts, list[WrittenFile]]:
    """Return the numbers of each source partition, and the files that workers wrote."""
    from pyspark.sql.pandas.types import from_arrow_schema

    report = decoded.mapInArrow(job, from_arrow_schema(REPORT)).toArrow()
    files = [WrittenFile(*json.loads(one)) for one in report.column("file").drop_null().to_pylist()]
    return summed(report.filter(pc.is_null(report.column("file")))).to_pylist(), files


def _differ(have: Any, want: Any, *, adds: bool) -> bool:
    """Return whether a type of Spark is another one; with `adds` also if it has more members."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(have, StructType) and isinstance(want, StructType):
        known = {one.name: one.dataType for one in have}
        mine = [one for one in want if one.name in known]
        return (adds and len(mine) < len(want)) or any(
            _differ(known[one.name], one.dataType, adds=adds) for one in mine
        )
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        return _differ(have.elementType, want.elementType, adds=adds)
    if isinstance(have, MapType) and isinstance(want, MapType):
        return _differ(have.valueType, want.valueType, adds=adds)
    # Whether members may be null does not count.
    return bool(have.simpleString() != want.simpleString())


# -- derived columns ----------------------------------------------------------------------------------------------------


def with_derived(decoded: DataFrame, table: TypedTable, *, is_last: bool) -> DataFrame:
    """Return decoded records with the columns of the settings; those that an expression fails for are faults.

    Unless this `is_last`, none is added where an expression names a column that may come with these records.

    Raises:
        ColumnUnknown: an expression names a column that no record has brought.
        UsageError: an expression names a column that is not in `schema:`, or is none of one row.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if not table.config.columns:
        return decoded
    # A part that two expressions share would be computed before them, and fail outside of `try_add`.
    decoded.sparkSession.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    is_row = F.col("_fault").isNull() & ~F.col("_filtered")
    if table.config.mode == "upsert":
        # A tombstone only deletes a row.
        is_row = is_row & ~F.col("_tombstone")
    faults, derived = [F.col("_fault")], {}
    for name, text in table.config.columns.items():
        fails = F.lit(f"the column {name} of the settings cannot be computed of it")
        faults.append(F.when(is_row & F.expr(_FAILS.format(text)), fails))
        derived[name] = F.when(is_row, F.expr(text))
        try:
            decoded.select(derived[name], faults[-1])
        except AnalysisException as error:
            if not is_last:
                return decoded
            # Their columns come with the records.
            is_unknown = table.config.is_inferred and "UNRESOLVED_COLUMN" in str(error)
            raise (ColumnUnknown if is_unknown else UsageError)(
                f"{table.config.place}.columns.{name}: the table {table.name} cannot compute it:"
                f" {str(error).partition(chr(10))[0]}",
                consequence="no record is written to it",
                remedy="mend the expression, or write the columns that it names in `schema:`;"
                f" then mirrorlake resume --table {table.name}",
                table=table.name,
            ) from None
    return decoded.withColumn("_fault", F.coalesce(*faults)).withColumns(derived)


# -- keys ---------------------------------------------------------------------------------------------------------------


def newest_of_keys(rows: DataFrame) -> DataFrame:
    """Return the newest row of each key, a tombstone or not."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # A third cheaper than `max_by`, as Spark drops most rows before it shuffles (2026-11-29).
    newest_first = Window.partitionBy(*IDENTITY).orderBy(*(F.desc(name) for name in _ORDER))
    return rows.withColumn(RANK, F.row_number().over(newest_first)).where(f"{RANK} = 1").drop(RANK)


def merge_newest(rows: DataFrame, table: str, **signed: Any) -> None:
    """Merge a batch's newest row of each key into a table, in one commit; a newer tombstone deletes the key's row."""
    source, target = (", ".join(f"{of}.{name}" for name in _ORDER) for of in "st")
    newer = f"WHEN MATCHED AND ({source}) > ({target})"
    clauses = f"{newer} AND s._tombstone THEN DELETE {newer} THEN UPDATE SET {{updates}}"
    clauses += " WHEN NOT MATCHED AND NOT s._tombstone THEN INSERT {inserts}"
    merge(newest_of_keys(rows), table, IDENTITY, clauses, **signed)


def merge(rows: DataFrame, table: str, on: list[str], clauses: str, **signed: Any) -> None:
    """Run a MERGE of rows, `s`, into a table, `t`; `{updates}` and `{inserts}` of the clauses are the table's columns of rows."""
    names = [name for name in rows.columns if name != "_tombstone"]
    updates = ", ".join(f"t.`{name}` = s.`{name}`" for name in names)
    columns, values = (", ".join(f"{of}`{name}`" for name in names) for of in ("", "s."))
    # A row of nulls in place of a bad record has no key. Spark joins by `=` at less cost.
    same = " AND ".join(f"t.`{name}` {'<=>' if name == KEY else '='} s.`{name}`" for name in on)
    made = clauses.format(updates=updates, inserts=f"({columns}) VALUES ({values})")
    with viewed(rows, **signed) as view:
        rows.sparkSession.sql(f"MERGE INTO {table} t USING {view} s ON {same} {made}")


@contextmanager
def viewed(rows: DataFrame, **signed: Any) -> Iterator[str]:
    """Yield the name of a view of rows, for one SQL statement that commits with `app_id`, `version` and `signature`."""
    session, view = rows.sparkSession, f"rows_{id(rows)}"
    # One statement at a time: the transaction is a setting of the whole session.
    with vars(session).setdefault("_mirrorlake_commits", threading.Lock()):
        rows.createOrReplaceTempView(view)
        for name, value in signed.items():
            session.conf.set(_SETTINGS[name], str(value))
        try:
            yield view
        finally:
            for name in signed:
                session.conf.unset(_SETTINGS[name])
            session.catalog.dropTempView(view)


# -- bad records --------------------------------------------------------------------------------------------------------


def record_bad(lake: Lake, table: TypedTable, decoded: DataFrame, now: datetime, *, replaces: bool) -> None:
    """Record the bad records of a decoded batch; one that is there already stays as it is. `replaces` deletes all others.

    Raises:
        UsageError: `bad_records` is `stop`.
    """
    from pyspark.sql import functions as F

    bad = decoded.where("_fault IS NOT NULL")
    if table.config.bad_records == "stop" and (first := bad.orderBy(*PLACE).limit(1).collect()):
        place = "{_source} {_topic}/{_partition}@{_offset}".format(**first[0].asDict())
        raise UsageError(
            f"{place} is no row of {table.name}: {first[0]['_fault']}",
            consequence="the table waits before this record",
            remedy="mend the settings, or write bad_records: quarantine",
            table=table.name,
        )
    bad = bad if table.config.bad_records == "quarantine" else bad.limit(0)
    named = {"key": "_raw_key", "value": "_raw_value", "reason": "_fault", "timestamp": "_timestamp"}
    rows = bad.select(
        F.lit(table.name).alias("table_name"),
        *(F.col(name).alias(name[1:]) for name in PLACE),
        *(F.col(name).alias(column) for column, name in named.items()),
        F.lit(now).alias("recorded_at"),
    )
    lake.create_side_table(BAD_RECORDS)
    same = f"t.table_name = {quote(table.name)}"
    clauses = f"AND {same} WHEN NOT MATCHED THEN INSERT {{inserts}}"
    clauses += f" WHEN NOT MATCHED BY SOURCE AND {same} THEN DELETE" if replaces else ""
    location = lake.sql_name(lake.meta_location(BAD_RECORDS))
    with _OF_BAD_RECORDS:
        # Other processes write it, too.
        retried(lambda: merge(rows, location, [name[1:] for name in PLACE], clauses), table.name)


def count_bad(lake: Lake, name: str) -> int:
    """Return the number of a table's bad records."""
    query = "SELECT count(*) AS records FROM {bad_records} WHERE table_name = :name"
    return sum(int(row.records) for row in lake.query(query, name=name, missing_ok=True))
