"""Compute the columns of the settings' expressions, and find the records of which they cannot be computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrorlake.errors import ColumnUnknown, UsageError
from mirrorlake.tables.decoding import FAULT
from mirrorlake.tables.definition import TypedTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Spark's `try_add` of a date is null if computing its operand fails. An operand without branches is not optimized away.
_FAILS = "try_add(date_add(DATE '2000-01-01', length(to_json(named_struct('x', {})))), INTERVAL '1' DAY) IS NULL"


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
        return F.when(F.col(FAULT).isNull(), F.expr(text)) if is_guarded else F.expr(text)

    columns = table.config.columns
    try:
        return rows.withColumns({name: value(text) for name, text in columns.items()})
    except AnalysisException as error:
        raise _refused(rows, table, error) from None


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

    columns = table.config.columns
    if not columns:
        return decoded
    # A part that two expressions share would be computed before them, and fail outside of `try_add`.
    decoded.sparkSession.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    reasons = [
        F.when(F.expr(_FAILS.format(text)), F.lit(f"the column {name} of the settings cannot be computed of it"))
        for name, text in columns.items()
    ]
    try:
        return decoded.withColumn(FAULT, F.coalesce(F.col(FAULT), *reasons))
    except AnalysisException:
        return decoded
