"""Record what is no row of a typed table in the table `bad_records`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS, Lake, quote
from mirrorlake.tables.commits import retried
from mirrorlake.tables.decoding import FAULT, RAW_KEY, RAW_VALUE
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.merge import commits_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY = ("table_name", "source", "topic", "generation", "partition", "offset")
_COLUMNS = {
    **{name: f"_{name}" for name in (*_KEY[1:], "timestamp")},
    "key": RAW_KEY,
    "value": RAW_VALUE,
    "reason": FAULT,
}


def record_bad(lake: Lake, table: TypedTable, decoded: DataFrame, now: datetime) -> None:
    """Record the bad records of a decoded batch as the table's settings say; one that is there already stays as it is.

    Raises:
        UsageError: `bad_records` is `stop`.
    """
    from pyspark.sql import functions as F

    bad = decoded.where(f"{FAULT} IS NOT NULL")
    if table.config.bad_records == "null":
        return
    if table.config.bad_records == "stop":
        raise _stopped(table, bad)
    rows = bad.select(
        F.lit(table.name).alias("table_name"),
        *(F.col(name).alias(column) for column, name in _COLUMNS.items()),
        F.lit(now).alias("recorded_at"),
    )
    lake.create_side_table(BAD_RECORDS)
    view = f"bad_{abs(hash(table.name))}"
    rows.createOrReplaceTempView(view)
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in _KEY)
    merge = (
        f"MERGE INTO {lake.sql_name(lake.meta_location(BAD_RECORDS))} t USING {view} s ON {same}"
        f" AND t.table_name = {quote(table.name)} WHEN NOT MATCHED THEN INSERT *"
    )
    with commits_of(rows.sparkSession):
        # Other processes write it, too.
        retried(lambda: rows.sparkSession.sql(merge), table.name)
    rows.sparkSession.catalog.dropTempView(view)


def _stopped(table: TypedTable, bad: DataFrame) -> UsageError:
    [first] = bad.orderBy("_source", "_topic", "_partition", "_offset").limit(1).collect()
    place = f"{first['_source']} {first['_topic']}/{first['_partition']}@{first['_offset']}"
    return UsageError(
        f"{place} is no row of {table.name}: {first[FAULT]}",
        consequence="the table waits before this record",
        remedy="mend the settings, or write bad_records: quarantine",
        table=table.name,
    )
