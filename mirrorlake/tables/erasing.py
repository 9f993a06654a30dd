"""Erase the rows of a typed table that come from erased records; the relay has lost these before.

First an empty batch is claimed: a batch of a running query with such a record is dropped, and read again from the relay. Then one
MERGE deletes the rows. Of an upserted key, the next older record in the relay comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.commits import UPKEEP, claim_batch, retried
from mirrorlake.tables.decoding import KEY, TOMBSTONE
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.make import make_writer
from mirrorlake.tables.merge import newest_of_keys
from mirrorlake.tables.relay_records import records_of_table, with_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Ranges = Sequence[tuple[int, int]]
_PLACE = ("_source", "_topic", "_generation", "_partition", "_offset")
_KEY = ("_source", "_topic", KEY)
_VIEW = "erased_rows"


class RowEraser:
    """Erase rows of typed tables that come from records of one source; `spans` are the erased upstream offsets as `(first, end)`."""

    def __init__(self, context: Context, source: str, spans: Mapping[SourcePartition, Ranges]) -> None:
        self._context = context
        self._lake = context.lake
        self._source = source
        self._spans = spans

    def erase(self, name: str, table: TypedTable | None) -> int:
        """Erase rows of one table, and return their number; `table` is None if no entry of the settings makes it."""
        claim_batch(self._lake, name)
        count = retried(partial(self._replace, name, table), name)
        # Without rows of erased records, too: newer ones of their keys may have replaced them.
        retried(partial(self._lake.purge_deleted, self._lake.typed_location(name)), name)
        return count

    def _replace(self, name: str, table: TypedTable | None) -> int:
        rows = self._lake.typed(name)
        is_upserted = table is not None and table.config.mode == "upsert"
        erased = self._erased(rows).select(*_PLACE, *([KEY] if is_upserted else [])).persist()
        try:
            count: int = erased.count()
            if count:
                older = self._older(erased, table) if table is not None and is_upserted else None
                self._merge(name, rows.columns, erased, older)
        finally:
            erased.unpersist()
        return count

    def _erased(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        spans = [(*asdict(at).values(), *span) for at, several in self._spans.items() for span in several]
        columns = "topic string, generation int, partition int, first bigint, end bigint"
        erased = F.broadcast(rows.sparkSession.createDataFrame(spans, columns))
        is_of = [F.col(f"_{name}") == F.col(name) for name in ("topic", "generation", "partition")]
        within = (F.col("_offset") >= F.col("first")) & (F.col("_offset") < F.col("end"))
        return rows.where(F.col("_source") == self._source).join(erased, [*is_of, within], "left_semi")

    def _older(self, erased: DataFrame, table: TypedTable) -> DataFrame:
        """Return the newest record that the relay still has of each key, a tombstone or a row."""
        writer = make_writer(self._context, table, owner=UPKEEP)
        writer.open()
        records = records_of_table(with_sources({self._source: self._lake.relay(self._source)}), table)
        return newest_of_keys(writer.rows(records).join(erased.select(*_KEY), list(_KEY), "left_semi"))

    def _merge(self, name: str, columns: Sequence[str], erased: DataFrame, older: DataFrame | None) -> None:
        from pyspark.sql import functions as F

        changes = erased.select(*(F.col(column).alias(f"erased{column}") for column in _PLACE))
        update = ""
        if older is not None:
            kept = older.where(f"NOT {TOMBSTONE}").select(*_KEY, F.struct(*older.columns).alias("older"))
            changes = erased.join(kept, list(_KEY), "left").select(
                *(F.col(column).alias(f"erased{column}") for column in _PLACE), "older"
            )
            assigned = ", ".join(f"t.`{c}` = {f's.older.`{c}`' if c in older.columns else 'NULL'}" for c in columns)
            update = f"WHEN MATCHED AND s.older IS NOT NULL THEN UPDATE SET {assigned} "
        same = " AND ".join(f"t.{column} = s.erased{column}" for column in _PLACE)
        session = erased.sparkSession
        changes.createOrReplaceTempView(_VIEW)
        try:
            session.sql(
                f"MERGE INTO {self._lake.sql_name(self._lake.typed_location(name))} t USING {_VIEW} s ON {same} "
                f"{update}WHEN MATCHED THEN DELETE"
            )
        finally:
            session.catalog.dropTempView(_VIEW)
