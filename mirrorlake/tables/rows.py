"""What Spark's SQL does with decoded rows: derived columns, the newest record of each key, and the table `bad_records`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mirrorlake.errors import ColumnUnknown, UsageError
from mirrorlake.lake import BAD_RECORDS, Lake, quote
from mirrorlake.tables.decode import FAULT, FILTERED, PLACE, RAW_KEY, RAW_VALUE, TOMBSTONE
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.formats import KEY
from mirrorlake.tables.progress import retried

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

IDENTITY = ["_source", "_topic", KEY]
# The source is a part of the identity.
_ORDER = ["_timestamp", "_generation", "_partition", "_offset"]
_SETTINGS = {
    "app_id": "spark.databricks.delta.write.txnAppId",
    "version": "spark.databricks.delta.write.txnVersion",
    "signature": "spark.databricks.delta.commitInfo.userMetadata",
}
_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_LOOKUP = threading.Lock()
# All tables of a process write it, and each MERGE would overtake another one.
_OF_BAD_RECORDS = threading.Lock()
KNOWN_BAD = "SELECT count(*) AS records FROM {bad_records} WHERE table_name = :name"
# Spark's `try_add` of a date is null if computing its operand fails. An operand without branches is not optimized away.
_FAILS = "try_add(date_add(DATE '2000-01-01', length(to_json(named_struct('x', {})))), INTERVAL '1' DAY) IS NULL"


# -- derived columns ----------------------------------------------------------------------------------------------------


def is_of_data(error: BaseException) -> bool:
    """Return whether a value made an expression fail: SQL's class of data exceptions, and `raise_error`."""
    return re.search(r"SQLSTATE: (22|P0)", str(error)) is not None


def with_derived(rows: DataFrame, table: TypedTable, *, is_guarded: bool = False) -> DataFrame:
    """Return decoded records with the columns of the settings; with `is_guarded`, faults of `mark_failures` have none.

    Raises:
        ColumnUnknown: an expression names a column that no record has brought.
        UsageError: an expression names a column that is not in `schema:`, or is none of one row.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    def value(text: str) -> Column:
        return F.when(F.expr(_is_computed(table)), F.expr(text)) if is_guarded else F.expr(text)

    try:
        return rows.withColumns({name: value(text) for name, text in table.config.columns.items()})
    except AnalysisException as error:
        raise _refused(rows, table, error) from None


def _is_computed(table: TypedTable) -> str:
    """Return the condition of records whose expressions count: those of a tombstone do not, where it only deletes a row."""
    deletes = f" AND NOT {TOMBSTONE}" if table.config.mode == "upsert" else ""
    return f"{FAULT} IS NULL AND NOT {FILTERED}{deletes}"


def _refused(rows: DataFrame, table: TypedTable, error: Exception) -> UsageError:
    from pyspark.errors import AnalysisException

    place = f"{table.config.place}.columns"
    for name, text in table.config.columns.items():
        try:
            rows.selectExpr(f"{text} AS `{name}`")
        except AnalysisException as own:
            place, error = f"{place}.{name}", own
            break
    # Their columns come with the records.
    is_unknown = table.config.is_inferred and "UNRESOLVED_COLUMN" in str(error)
    return (ColumnUnknown if is_unknown else UsageError)(
        f"{place}: the table {table.name} cannot compute it: {str(error).partition(chr(10))[0]}",
        consequence="no record is written to it",
        remedy=f"mend the expression, or write the columns that it names in `schema:`; then mirrorlake resume --table {table.name}",
        table=table.name,
    )


def mark_failures(decoded: DataFrame, table: TypedTable) -> DataFrame:
    """Return decoded records, of which those that an expression fails for are faults, if all expressions can be resolved."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if not table.config.columns:
        return decoded
    # A part that two expressions share would be computed before them, and fail outside of `try_add`.
    decoded.sparkSession.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    reasons = [
        F.when(
            F.expr(f"{_is_computed(table)} AND {_FAILS.format(text)}"),
            F.lit(f"the column {name} of the settings cannot be computed of it"),
        )
        for name, text in table.config.columns.items()
    ]
    try:
        return decoded.withColumn(FAULT, F.coalesce(F.col(FAULT), *reasons))
    except AnalysisException:
        return decoded


def partitioned(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return rows with NULL for an empty text that is a partition's value, as Delta has it."""
    from pyspark.sql import functions as F

    texts = [name for name, kind in rows.dtypes if kind == "string" and name in by]
    return rows.withColumns({name: F.nullif(F.col(f"`{name}`"), F.lit("")) for name in texts}) if texts else rows


# -- keys ---------------------------------------------------------------------------------------------------------------


def newest_of_keys(rows: DataFrame) -> DataFrame:
    """Return the newest row of each key, a tombstone or not."""
    from pyspark.sql import functions as F

    packed = rows.select(*IDENTITY, F.struct(*rows.columns).alias("row"))
    newest = packed.groupBy(*IDENTITY).agg(
        F.max_by("row", F.struct(*(F.col("row")[name] for name in _ORDER))).alias("row")
    )
    return newest.select(*(F.col("row")[name].alias(name) for name in rows.columns))


def merge_newest(rows: DataFrame, table: str, **signed: Any) -> None:
    """Merge a batch's newest row of each key into a table, in one commit; a newer tombstone deletes the key's row."""
    newer = f"{_struct('s')} > {_struct('t')}"
    merge(
        newest_of_keys(rows),
        table,
        IDENTITY,
        f"WHEN MATCHED AND {newer} AND s.{TOMBSTONE} THEN DELETE WHEN MATCHED AND {newer} THEN UPDATE SET {{updates}}"
        f" WHEN NOT MATCHED AND NOT s.{TOMBSTONE} THEN INSERT {{inserts}}",
        **signed,
    )


def _struct(alias: str) -> str:
    return f"({', '.join(f'{alias}.{name}' for name in _ORDER)})"


def merge(rows: DataFrame, table: str, on: list[str], clauses: str, **signed: Any) -> None:
    """Run a MERGE of rows, `s`, into a table, `t`; `{updates}` and `{inserts}` of the clauses are the table's columns of rows."""
    names = [name for name in rows.columns if name != TOMBSTONE]
    updates = ", ".join(f"t.`{name}` = s.`{name}`" for name in names)
    columns, values = (", ".join(f"{of}`{name}`" for name in names) for of in ("", "s."))
    # A row of nulls in place of a bad record has no key. Spark joins by `=` at less cost.
    same = " AND ".join(f"t.`{name}` {'<=>' if name == KEY else '='} s.`{name}`" for name in on)
    made = clauses.format(updates=updates, inserts=f"({columns}) VALUES ({values})")
    with viewed(rows, **signed) as view:
        rows.sparkSession.sql(f"MERGE INTO {table} t USING {view} s ON {same} {made}")


# -- statements that commit ---------------------------------------------------------------------------------------------


def commits_of(session: SparkSession) -> threading.Lock:
    """Return the lock to hold around each SQL statement that commits: the transaction of one is a setting of the whole session."""
    with _LOOKUP:
        return _LOCKS.setdefault(session, threading.Lock())


@contextmanager
def viewed(rows: DataFrame, **signed: Any) -> Iterator[str]:
    """Yield the name of a view of rows, for one SQL statement that commits with `app_id`, `version` and `signature`."""
    session, view = rows.sparkSession, f"rows_{id(rows)}"
    with commits_of(session):
        rows.createOrReplaceTempView(view)
        for name, value in signed.items():
            session.conf.set(_SETTINGS[name], str(value))
        try:
            yield view
        finally:
            for name in signed:
                session.conf.unset(_SETTINGS[name])
            session.catalog.dropTempView(view)


def record_bad(
    lake: Lake, table: TypedTable, decoded: DataFrame, now: datetime, *, has_bad: bool, replaces: bool
) -> None:
    """Record the bad records of a decoded batch; one that is there already stays as it is. `replaces` deletes all others.

    Raises:
        UsageError: `bad_records` is `stop`.
    """
    from pyspark.sql import functions as F

    bad = decoded.where(f"{FAULT} IS NOT NULL")
    if table.config.bad_records == "stop" and (first := bad.orderBy(*PLACE).limit(1).collect()):
        place = "{_source} {_topic}/{_partition}@{_offset}".format(**first[0].asDict())
        raise UsageError(
            f"{place} is no row of {table.name}: {first[0][FAULT]}",
            consequence="the table waits before this record",
            remedy="mend the settings, or write bad_records: quarantine",
            table=table.name,
        )
    is_kept = table.config.bad_records == "quarantine"
    if replaces:
        known = lake.query_rows(KNOWN_BAD, name=table.name, missing_ok=True)
        replaces = bool(known and known[0].records)
    if not replaces and not (is_kept and has_bad):
        return
    bad = bad if is_kept else bad.limit(0)
    named = {"key": RAW_KEY, "value": RAW_VALUE, "reason": FAULT, "timestamp": "_timestamp"}
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
