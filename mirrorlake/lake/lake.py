"""Create and write the tables of a lake; `addresses` and `reader` locate and read them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import LakeConfig
from mirrorlake.crash_points import crash_point
from mirrorlake.errors import UsageError
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.duckdb_query import query_files
from mirrorlake.lake.reader import LakeReader
from mirrorlake.lake.relay_writer import RelayWriter, WrittenFile, require_seen
from mirrorlake.lake.schema import RELAY, SIDE_TABLES
from mirrorlake.lake.side_files import delete_rows
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.lake.table_schema import TableSchema
from mirrorlake.runtime import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


class Lake(LakeReader):
    """The tables of one lake.

    Args:
        spark: the session that reads and writes, or a function that returns it at its first use: a query of a folder needs none.
            The lake never stops it.
        config: `root`, or `catalog` and `schema` on Unity Catalog.
        sees_all: whether the session sees, or once started would see, the same files as this process: a table that is not in the
            folder then does not exist, and tables are created without Spark.
        store: the object store with the tables, for a process that got it instead of the settings.
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        config: LakeConfig,
        *,
        sees_all: Callable[[], bool] = lambda: False,
        store: Store | None = None,
    ) -> None:
        super().__init__(spark, config, sees_all=sees_all, store=store)
        self._writer = RelayWriter()

    def create_all(self, aliases: Iterable[str]) -> list[str]:
        """Create the missing relays of these aliases and the missing side tables, and return their locations."""
        missing = self.missing(aliases)
        with ThreadPoolExecutor(max_workers=4) as pool:
            # Relays first: once they are in a folder of this machine, the rest needs no Spark.
            for is_relay in (True, False):
                chosen = [item for item in missing.items() if (item[1] is RELAY) == is_relay]
                list(pool.map(lambda item: self._create(*item), chosen))
        return list(missing)

    def create_side_table(self, table: TableSchema) -> None:
        """Create one side table unless it exists."""
        if not self.exists(self.meta_location(table)):
            self._create(self.meta_location(table), table)

    def replace_typed(self, session: SparkSession, rows: str, location: str, table: TableSchema) -> None:
        """Create a typed table with the rows of a view, or replace all that it has, in one commit; Spark alone writes them."""
        self.refuse_spark(f"the table {table.name}")
        self._through_spark.replace(session, rows, location, table)

    def create_view(self, name: str, query: str) -> str:
        """Create a view, or replace it, and return its name; in a folder, which has no place for one, it is the session's."""
        kind, view = ("VIEW", self.view_name(name)) if self.is_catalog else ("TEMPORARY VIEW", name)
        self.spark.sql(f"CREATE OR REPLACE {kind} {view} AS {query}")
        return view

    def forget_table(self, location: str) -> None:
        """Forget what is known of a table that was moved away: another one may take its place."""
        self._folder.forget(location)
        self._through_spark.forget_log()

    def takes_files(self, location: str) -> bool:
        """Return whether files that workers wrote can be committed to a table without Spark."""
        return self._is_seen(location)

    def commit_files(
        self, location: str, files: Sequence[WrittenFile], *, app_id: str, version: int, signature: str
    ) -> None:
        """Commit files that workers wrote, as `append_frame` does.

        Raises:
            SafetyError: this process does not see one of them.
        """
        if ":/" not in location:
            require_seen(location, files)
        self._folder.commit(location, files, app_id=app_id, version=version, signature=signature)

    def compact_by_spark(self, location: str) -> tuple[int, int, int]:
        """Compact a table with deletion vectors; return the number of old files, their bytes, and the number of new files."""
        return self._through_spark.compact(location)

    def vacuum_by_spark(self, location: str, *, keep: timedelta) -> None:
        """Delete files that left a table with deletion vectors before `keep`."""
        self._through_spark.vacuum(location, keep=keep)

    def purge_deleted(self, location: str) -> None:
        """Take deleted rows out of the files that a table names: those behind deletion vectors are still in them."""
        if self.has_deletion_vectors(location):
            self._through_spark.purge(location)

    def partition_by(self, location: str) -> tuple[str, ...]:
        """Return the columns by which a table is partitioned."""
        return self._engine(location).partition_by(location)

    def missing(self, aliases: Iterable[str]) -> dict[str, TableSchema]:
        """Return the tables that `create_all` would create, by location."""
        self._session_tables.forget()
        wanted = {self.relay_location(alias): RELAY for alias in aliases}
        wanted |= {self.meta_location(table): table for table in SIDE_TABLES}
        with ThreadPoolExecutor(max_workers=4) as pool:
            there = list(pool.map(self.exists, wanted))
        return {location: table for (location, table), found in zip(wanted.items(), there, strict=True) if not found}

    def open_maintenance(self, location: str) -> TableMaintenance | None:
        """Open a table for maintenance, or return None if only Spark reaches it."""
        return TableMaintenance(location) if self._is_seen(location) else None

    def append_frame(
        self,
        frame: DataFrame,
        location: str,
        *,
        app_id: str = "",
        version: int = 0,
        signature: str = "",
        adds_columns: bool = False,
    ) -> None:
        """Append rows; with `app_id`, drop a version that is not above the last one of that id (Delta protocol, SetTransaction).

        `app_id` prevents a zombie from writing twice, because its versions are old. `signature` goes into the table's history
        as the commit's user metadata. `adds_columns` adds the columns that the table lacks.
        """
        # By delta-rs, because the tables of a store may have one kind of writer only.
        if not signature and (self._store is not None or self._is_seen(location)):
            self._folder.append(location, frame.toArrow(), app_id=app_id, version=version)
            return
        if self._store is not None:
            files = self._writer.write(frame, location, None)
            self._folder.commit(location, files, app_id=app_id, version=version, signature=signature)
            return
        writer = frame.write.mode("append")
        if adds_columns:
            writer = writer.option("mergeSchema", "true")
        if app_id:
            writer = writer.option("txnAppId", app_id).option("txnVersion", version)
        if signature:
            writer = writer.option("userMetadata", signature)
        self._through_spark.save(writer, location)

    def land(
        self,
        rows: DataFrame | None,
        alias: str,
        *,
        landed_at: datetime | None,
        app_id: str,
        version: int,
        signature: str,
    ) -> None:
        """Append to the relay of a source as `append_frame` does; without rows, commit only the version and the signature.

        `rows` have the relay's columns except `landed_at`, the time of the batch.

        If the relay is a folder of this machine, the workers write its files and delta-rs commits them: a small batch costs 300 ms
        of CPU instead of 1 830 (2026-11-22).
        """
        from pyspark.sql import functions as F

        location = self.relay_location(alias)
        if not self._is_seen(location):
            frame = self.spark.createDataFrame([], schema=RELAY.ddl)
            if rows is not None:
                frame = rows.withColumn("landed_at", F.lit(landed_at))
            self.append_frame(frame, location, app_id=app_id, version=version, signature=signature)
            return
        files = [] if rows is None else self._writer.write(rows, location, landed_at)
        if files:
            crash_point("land.file_written")
        self._folder.commit(location, files, app_id=app_id, version=version, signature=signature)

    def refuse_spark(self, what: str) -> None:
        """Raise `UsageError` for an operation of Spark's if the tables are on an object store."""
        if self._store is not None:
            raise UsageError(
                f"{what} needs Spark, but only delta-rs writes tables on an object store",
                consequence="nothing was changed: two kinds of writers of one table may each miss a commit of the other",
                remedy="copy the lake into a folder first (docs/object-stores.md)",
            )

    def replace(self, frame: DataFrame, location: str, *, where: str) -> None:
        """Replace the rows that fulfil a condition, in one commit."""
        self.refuse_spark(f"replacing records of {location}")
        self._through_spark.save(frame.write.mode("overwrite").option("replaceWhere", where), location)

    def append(
        self, table: TableSchema, rows: Sequence[Mapping[str, Any]], *, app_id: str = "", version: int = 0
    ) -> None:
        """Append rows, by column names, to a side table; a column missing in a row is null.

        Raises:
            ValueError: a row names a column that the table lacks.
        """
        unknown = set().union(*rows) - table.columns.keys()
        if unknown:
            raise ValueError(f"{table.name} has no column {', '.join(sorted(unknown))}")
        if rows:
            self._append_rows(table, rows, app_id, version)

    def delete_rows(self, table: TableSchema, where: str) -> None:
        """Delete the rows of a side table that fulfil a SQL condition."""
        location = self.meta_location(table)
        if self._is_seen(location):
            delete_rows(TableMaintenance(location), lambda rows: _holds(rows, where), why="delete")
        else:
            self.spark.sql(f"DELETE FROM {self._through_spark.sql_name(location)} WHERE {where}")  # noqa: S608

    def fence(self, table: TableSchema, *, app_id: str, version: int) -> None:
        """Commit no rows under an application id, so that later appends with an older version are dropped."""
        self._append_rows(table, [], app_id, version)

    def _append_rows(self, table: TableSchema, rows: Sequence[Mapping[str, Any]], app_id: str, version: int) -> None:
        location = self.meta_location(table)
        if self._is_seen(location):
            self._folder.append(location, arrow_table(table, rows), app_id=app_id, version=version)
            return
        frame = self.spark.createDataFrame(list(rows), schema=table.ddl).coalesce(1)
        self.append_frame(frame, location, app_id=app_id, version=version)

    def set_properties(self, location: str, values: Mapping[str, str]) -> None:
        """Set table properties in one commit."""
        self._engine(location).set_properties(location, values)

    def _create(self, location: str, table: TableSchema) -> None:
        is_near = self._has_folder and self._sees_all()
        if self._store is not None or is_near or (table is not RELAY and self._has_relays()):
            # The first table that Spark creates takes as long as the rest of the JVM's start.
            self._folder.create(location, table)
        else:
            self._through_spark.create(location, table)


def _holds(rows: pa.Table, where: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    answer = query_files(f"SELECT coalesce({where}, FALSE) AS holds FROM {{rows}}", {"rows": rows}, {})  # noqa: S608
    found: np.ndarray[Any, np.dtype[np.bool_]] = answer["holds"].to_numpy()
    return found
