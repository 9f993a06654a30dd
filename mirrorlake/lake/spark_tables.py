"""Access Delta tables through the Spark session: those not in a folder of this machine, and operations only Spark has."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, stop_after_attempt, wait_random_exponential

from mirrorlake.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
    from pyspark.sql.streaming import DataStreamReader

    from mirrorlake.lake.table_schema import TableSchema
    from mirrorlake.runtime import Store


log = logging.getLogger(__name__)

# Delta's error classes for a path without a table: no folder, other files, a log without a commit.
_NO_TABLE = (
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_SCHEMA_NOT_SET",
    "PATH_NOT_FOUND",
)


# Commits of 64 MB each, so that a batch that comes meanwhile conflicts with one of them. Files of 32 MB stay.
_COMPACTION = {
    "spark.databricks.delta.optimize.batchSize": "64m",
    "spark.databricks.delta.optimize.minFileSize": str(32 << 20),
}

_VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Delta lists folders in so many tasks, 10 000 by default: on two cores, these alone take minutes for a table of ten files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
}


class SparkTables:
    """Access tables by their location, as `FolderTables` does.

    `spark` may be a function that returns the session at its first use. `is_catalog`: locations are names in a catalog, not
    paths. Spark only reads in the object store `store` (`Lake`).
    """

    def __init__(
        self, spark: SparkSession | Callable[[], SparkSession], *, is_catalog: bool, store: Store | None = None
    ) -> None:
        self._given = spark
        self._is_catalog = is_catalog
        self._store = store
        self._there: set[str] = set()
        # The sessions that were prepared and checked last.
        self._prepared: SparkSession | None = None
        self._with_delta: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        session = self._given() if callable(self._given) else self._given
        if self._store is not None and session is not self._prepared:
            # Loads pyspark, which a command that only queries does not need.
            from mirrorlake.runtime import set_up_hadoop

            set_up_hadoop(session, self._store)
            self._prepared = session
        return session

    def require_delta(self) -> None:
        from mirrorlake.runtime import require_parts

        if (session := self.session) is not self._with_delta:
            require_parts(session)
            self._with_delta = session

    def sql_name(self, location: str) -> str:
        self._require_reader()
        return location if self._is_catalog else f"delta.`{location}`"

    def has(self, location: str) -> bool:
        """Return whether a table exists; a positive answer is cached until `forget`."""
        if location in self._there:
            return True
        if found := self._is_there(location):
            self._there.add(location)
        return found

    def forget(self) -> None:
        """Drop the cached answers, because a table may have been removed since."""
        self._there.clear()

    def _is_there(self, location: str) -> bool:
        from pyspark.errors import AnalysisException

        from mirrorlake.runtime import is_connect

        if self._is_catalog:
            return bool(self.session.catalog.tableExists(location))
        if not is_connect(self.session):
            from delta.tables import DeltaTable

            return bool(DeltaTable.isDeltaTable(self.session, location))
        try:
            # `isDeltaTable` needs a plugin on the server.
            _ = self.session.read.format("delta").load(location).schema
        except AnalysisException as error:
            if any(sign in str(error) for sign in _NO_TABLE):
                return False
            raise
        return True

    def read(self, location: str, version: int | None = None) -> DataFrame:
        reader = self.session.read
        return self.load(reader if version is None else reader.option("versionAsOf", version), location)

    def load(self, reader: DataFrameReader | DataStreamReader, location: str) -> DataFrame:
        """Read a table by a batch or stream reader with options."""
        self._require_reader()
        return reader.table(location) if self._is_catalog else reader.format("delta").load(location)

    def _require_reader(self) -> None:
        if self._store is None:
            return
        from mirrorlake.runtime import reads_store

        if not reads_store(self.session, self._store):
            raise StoreError(
                f"Spark cannot read {self._store.root}: its Java has no file system for this address",
                consequence="commands without Spark SQL still work",
                remedy="start Spark with --packages org.apache.hadoop:hadoop-aws:3.4.1, in the version of its Hadoop "
                "(docs/object-stores.md)",
            )

    def save(self, writer: DataFrameWriter, location: str) -> None:
        writer = writer.format("delta").option("compression", "zstd")
        (writer.saveAsTable if self._is_catalog else writer.save)(location)

    def create(self, location: str, table: TableSchema) -> None:
        """Create a table, even if another process is creating it or died while it did."""
        spark = self.session
        columns = ", ".join(
            f"`{name}` {kind} COMMENT {quote(comment)}" for name, (kind, comment) in table.columns.items()
        )
        properties = ", ".join(f"{quote(key)} = {quote(value)}" for key, value in table.properties.items())
        by = ", ".join(f"`{name}`" for name in table.partition_by)
        partitions = f"PARTITIONED BY ({by}) " if by else ""
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.sql_name(location)} ({columns}) USING delta {partitions}"
            f"COMMENT {quote(table.comment)} TBLPROPERTIES ({properties})"
        )
        attempts = Retrying(
            stop=stop_after_attempt(5), wait=wait_random_exponential(multiplier=0.2, max=2), reraise=True
        )
        for attempt in attempts:
            with attempt:
                if attempt.retry_state.attempt_number > 1 and self.has(location):
                    return
                if attempt.retry_state.attempt_number > 3:
                    # A killed creator leaves a folder that CREATE TABLE always refuses, and an append does not.
                    rows = spark.createDataFrame([], schema=table.ddl).write.partitionBy(*table.partition_by)
                    self.save(rows.mode("append"), location)
                    spark.sql(f"ALTER TABLE {self.sql_name(location)} SET TBLPROPERTIES ({properties})")
                    return
                spark.sql(statement)
        if self._is_catalog and "DATABRICKS_RUNTIME_VERSION" in os.environ:
            self._keep_as_written(location)

    def replace(self, session: SparkSession, rows: str, location: str, table: TableSchema) -> None:
        """Create a table with the rows of a session's view, or replace all that it has, in one commit."""
        properties = ", ".join(f"{quote(key)} = {quote(value)}" for key, value in table.properties.items())
        by = ", ".join(f"`{name}`" for name in table.partition_by)
        partitions = f"PARTITIONED BY ({by}) " if by else ""
        session.sql(
            f"CREATE OR REPLACE TABLE {self.sql_name(location)} USING delta {partitions}"  # noqa: S608 - names of the lake
            f"COMMENT {quote(table.comment)} TBLPROPERTIES ({properties}) AS SELECT * FROM {rows}"
        )

    def forget_log(self) -> None:
        """Let Spark forget logs: it takes files of the same names for the same."""
        self._there.clear()
        self.session.catalog.clearCache()
        self.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # noqa: SLF001 - Python has no name for it

    def _keep_as_written(self, location: str) -> None:
        """Disable Unity Catalog's rewriting of a table's files, which is harmless but expensive."""
        from pyspark.errors import PySparkException

        statement = f"ALTER TABLE {location} DISABLE PREDICTIVE OPTIMIZATION"
        try:
            self.session.sql(statement)
        except PySparkException as error:
            why = str(error).partition("\n")[0][:200]
            log.warning("lake.optimized_by_others table=%s why=%s next=%s", location, why, statement)

    def history(self, location: str, limit: int | None) -> list[dict[str, Any]]:
        """List version, operation and user metadata of the newest commits, newest first."""
        from pyspark.sql import functions as F

        bounded = "" if limit is None else f" LIMIT {limit}"
        history = self.session.sql(f"DESCRIBE HISTORY {self.sql_name(location)}{bounded}")
        columns = ("version", "userMetadata", "operation", "operationParameters", "timestamp")
        rows = history.select(*columns).orderBy(F.desc("version"))
        return [
            {**row.asDict(), "version": int(row.version), "timestamp": row.timestamp.astimezone(timezone.utc)}
            for row in rows.collect()
        ]

    def version(self, location: str) -> int:
        history = self.session.sql(f"DESCRIBE HISTORY {self.sql_name(location)} LIMIT 1")
        [row] = history.select("version").collect()
        return int(row.version)

    def has_version(self, location: str, version: int) -> bool:
        from pyspark.errors import AnalysisException

        try:
            _ = self.read(location, version).schema
        except AnalysisException as error:
            if "VERSION_NOT_FOUND" in str(error):
                return False
            raise
        return True

    def properties(self, location: str) -> dict[str, str]:
        # DESCRIBE DETAIL would count files and bytes, too.
        rows = self.session.sql(f"SHOW TBLPROPERTIES {self.sql_name(location)}").collect()
        return {row.key: row.value for row in rows}

    def partition_by(self, location: str) -> tuple[str, ...]:
        [row] = self.session.sql(f"DESCRIBE DETAIL {self.sql_name(location)}").select("partitionColumns").collect()
        return tuple(row.partitionColumns)

    def set_properties(self, location: str, values: Mapping[str, str]) -> None:
        pairs = ", ".join(f"{quote(key)} = {quote(value)}" for key, value in values.items())
        self.session.sql(f"ALTER TABLE {self.sql_name(location)} SET TBLPROPERTIES ({pairs})")

    def has_deletion_vectors(self, location: str) -> bool:
        [row] = self.session.sql(f"DESCRIBE DETAIL {self.sql_name(location)}").select("tableFeatures").collect()
        return "deletionVectors" in row.tableFeatures

    def compact(self, location: str) -> tuple[int, int, int]:
        """Compact small files, and those with many deleted rows; return the number of old files, their bytes, new files."""
        with _settings(self.session, _COMPACTION):
            [row] = self.session.sql(f"OPTIMIZE {self.sql_name(location)}").collect()
        one = row.metrics
        return int(one.numFilesRemoved), int(one.filesRemoved.totalSize or 0), int(one.numFilesAdded)

    def purge(self, location: str) -> None:
        with _settings(self.session, _COMPACTION):
            self.session.sql(f"REORG TABLE {self.sql_name(location)} APPLY (PURGE)")

    def vacuum(self, location: str, *, keep: timedelta) -> None:
        """Delete the files that were removed from a table before `keep`, and older ones that no commit names."""
        with _settings(self.session, _VACUUM):
            hours = max(1, round(keep / timedelta(hours=1)))
            self.session.sql(f"VACUUM {self.sql_name(location)} RETAIN {hours} HOURS")

    def texts(self, folder: str) -> dict[str, str]:
        """Return the texts of a folder's files by name, or {} if there is no folder."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        name = F.col("_metadata.file_name").alias("name")
        try:
            rows = self.session.read.text(folder, wholetext=True).select(name, "value").collect()
        except AnalysisException:
            return {}
        return {row.name: row.value for row in rows}

    def size(self, location: str) -> tuple[int, int]:
        detail = self.session.sql(f"DESCRIBE DETAIL {self.sql_name(location)}")
        [row] = detail.select("numFiles", "sizeInBytes").collect()
        return int(row.numFiles), int(row.sizeInBytes)


@contextmanager
def _settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    before = {name: session.conf.get(name, None) for name in values}
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.unset(name) if value is None else session.conf.set(name, value)


def quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
