"""Read the tables of a lake: by delta-rs and DuckDB if this machine reaches their files, else by the Spark session."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake.addresses import LakeAddresses
from mirrorlake.lake.arrow_types import arrow_table, arrow_types
from mirrorlake.lake.broken import broken_table
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.duckdb_query import query_files, to_rows
from mirrorlake.lake.fixed_relay import FixedRelay, FolderRelay, SessionRelay
from mirrorlake.lake.lake_query import LakeQuery, NamedTable, Relays
from mirrorlake.lake.relay_files import COLUMNS
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.schema import GAPS, RELAY
from mirrorlake.lake.spark_tables import SparkTables
from mirrorlake.lake.table_content import TableContent
from mirrorlake.lake.table_schema import TableSchema
from mirrorlake.lake.version import refuse_other_version
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.runtime import Store, load_pyspark, open_folder, require_usable_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader

# 100 000 narrow rows are some 10 MB.
_MAX_BROADCAST_ROWS = 100_000
# The newest commits nearly always suffice: two take 1.2 ms of CPU to read, fifty 4.6 (2026-11-26), on a store a request each.
_HISTORY_READS = (2, 20, 200)
# The limit of one cached answer.
_MAX_CACHED_BYTES = 4_000_000
# Of questions with changing values, only the newest are asked again.
_MAX_CACHED = 64


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table; `signature` is the document in its user metadata, empty without one.

    `restored_to` is the version that a RESTORE has restored, -1 without one.
    """

    version: int
    signature: Mapping[str, Any]
    operation: str = field(default="", compare=False)
    restored_to: int = field(default=-1, compare=False)
    at: datetime | None = field(default=None, compare=False)


class LakeReader(LakeAddresses):
    """Read the tables of one lake; the arguments are those of `Lake`."""

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        config: LakeConfig,
        *,
        sees_all: Callable[[], bool],
        store: Store | None = None,
    ) -> None:
        super().__init__(config, store)
        self._sees_all = sees_all
        self._has_folder = config.folder() is not None and "DATABRICKS_RUNTIME_VERSION" not in os.environ
        self._tables = FolderTables()
        self._session_tables = SparkTables(spark, is_catalog=self.is_catalog, store=self._store)
        self._is_version_checked = False
        self._answers: dict[tuple[str, str], tuple[dict[str, int], pa.Table]] = {}
        self._worker_check = threading.Lock()
        self._are_workers_checked = False

    @property
    def spark(self) -> SparkSession:
        """The session; its first use checks that a cluster's workers reach the tables."""
        session = self._session_tables.session
        with self._worker_check:
            if not self._are_workers_checked:
                # This process and the workers share addresses unless only Spark reaches the tables.
                places = (str(self._root), self.checkpoint_root()) if self._has_relays() else ()
                require_usable_workers(session, tuple(dict.fromkeys(places)))
                self._are_workers_checked = bool(places) or not self._has_folder
        return session

    @property
    def _folder(self) -> FolderTables:
        self._require_version(self._tables)
        return self._tables

    @property
    def _through_spark(self) -> SparkTables:
        # Before any function of the lake imports a part of pyspark, beside a thread that starts the session.
        load_pyspark()
        self._session_tables.require_delta()
        self._require_version(self._session_tables)
        return self._session_tables

    def _require_version(self, tables: FolderTables | SparkTables) -> None:
        """Check the lake's version once, before anything else is read or written."""
        if self._is_version_checked:
            return
        location, looked = self.meta_location(GAPS), tables
        if self._without_spark and (self._store is not None or self._tables.has(location)):
            looked = self._tables
        is_near = looked is self._session_tables or self._without_spark
        if is_near and looked.has(location):
            refuse_other_version(looked.properties(location), self.address)
            self._is_version_checked = True

    def sql_name(self, location: str) -> str:
        return self._session_tables.sql_name(location)

    @property
    def is_spark_only(self) -> bool:
        """Whether only Spark reaches the tables: neither in a folder of this machine nor on a store with settings."""
        return not self._without_spark

    def exists(self, location: str) -> bool:
        if self._is_seen(location):
            return True
        if self._has_relays() or (self._has_folder and self._sees_all()):
            # All tables of a lake are in one folder.
            return False
        return self._through_spark.has(location)

    def relay(self, alias: str, *, version: int | None = None) -> DataFrame:
        return self._through_spark.read(self.relay_location(alias), version)

    def typed(self, name: str) -> DataFrame:
        return self._through_spark.read(self.typed_location(name))

    def content(self, location: str) -> TableContent | None:
        return TableContent(self._folder, location) if self._is_seen(location) else None

    def load_typed(self, reader: DataFrameReader, name: str) -> DataFrame:
        return self._through_spark.load(reader, self.typed_location(name))

    def load_relay(self, reader: DataFrameReader | DataStreamReader, alias: str) -> DataFrame:
        return self._through_spark.load(reader, self.relay_location(alias))

    def relay_log(self, alias: str) -> RelayLog | None:
        """Open the log of a source's relay, or return None if only Spark reaches it."""
        location = self.relay_location(alias)
        return RelayLog(self._folder, location) if self._is_seen(location) else None

    def fixed_relay(self, alias: str) -> FixedRelay:
        """Open the relay of a source at its newest version."""
        log = self.relay_log(alias)
        if log is not None:
            files = log.files({})
            return FolderRelay(log.version, files)
        version = self.version(self.relay_location(alias))
        # Maintenance cleans a table's log, so a version may be gone from it after minutes.
        return SessionRelay(version, self.relay(alias, version=version))

    def rows(
        self, alias: str, source: SourcePartition, ranges: Ranges, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the relay's records of some offsets, each offset once and in order (law D); `columns` begin with `offset`."""
        log = self.relay_log(alias) if ranges else None
        if log is None:
            return SessionRelay(-1, self.relay(alias)).rows(source, ranges, columns) if ranges else iter(())
        files = log.files_of(source, OffsetRange(ranges.first, ranges.end))
        return FolderRelay(log.version, files).rows(source, ranges, columns)

    def file_of(self, alias: str, source: SourcePartition, offset: int) -> str:
        """Return the address of the relay's file with a record, or "" without one."""
        span, log = OffsetRange(offset, offset + 1), self.relay_log(alias)
        if log is not None:
            return next((file.uri for file in log.files_of(source, span)), "")
        return SessionRelay(-1, self.relay(alias)).file_of(source, span)

    def meta(self, table: TableSchema) -> DataFrame:
        return self._through_spark.read(self.meta_location(table))

    def query(
        self,
        text: str,
        *,
        relay: str = "",
        part: RelayPart | None = None,
        relays: Relays = MappingProxyType({}),
        tables: Mapping[str, pa.Table] = MappingProxyType({}),
        missing_ok: bool = False,
        cache: bool = False,
        **values: Any,
    ) -> list[Any]:
        """Return the rows of a query over the newest tables, without Spark if the lake is a folder of this machine.

        In `text`, `{offset_map}` is that side table, `{relay}` the relay of source `relay`, `:name` a value. Of the relay, only files
        with a record of `part` are read. `relays` gives alias and part of further names in braces, `tables` their content.
        Compare times of the relay by `unix_micros` only, because file statistics truncate them to milliseconds.
        With `missing_ok`, the answer is [] if a table does not exist; `cache` keeps it until a table has a new version.
        """
        query = LakeQuery(text, {RELAY.name: (relay, part), **relays}, tables, values, cache)
        table = self.query_table(query, missing_ok=missing_ok)
        return [] if table is None else to_rows(table)

    def query_table(self, query: LakeQuery, *, missing_ok: bool = False) -> pa.Table | None:
        """Return the answer of `query` as an Arrow table, or None if a table does not exist and `missing_ok` is set."""
        locations = {name: self._locate(one) for name, one in query.lake_tables.items()}
        if missing_ok and not all(map(self.exists, locations.values())):
            return None
        if lacking := self._empty_tables(query):
            return self.query_table(replace(query, tables={**query.tables, **lacking}))
        if not all(map(self._is_seen, locations.values())):
            return self.query_frame(query).toArrow()
        # Read before the answer, so that the answer may be newer than the versions, never older.
        versions = {name: self._folder.version(place) for name, place in locations.items()} if query.cache else {}
        key = query.text, repr(sorted(query.values.items()))
        cached = self._answers.get(key) if query.cache else None
        if cached is not None and cached[0] == versions:
            return cached[1]
        datasets = {
            name: self._folder.dataset(locations[name], arrow_types(one.table), one.part)
            for name, one in query.lake_tables.items()
        }
        try:
            table = query_files(query.text, {**datasets, **query.tables}, query.values)
        except Exception as error:
            side = [locations[name] for name, one in query.lake_tables.items() if one.table is not RELAY]
            if named := broken_table(side):
                raise named from error
            raise
        if query.cache and table.nbytes <= _MAX_CACHED_BYTES:
            self._answers.pop(key, None)
            self._answers[key] = versions, table
            if len(self._answers) > _MAX_CACHED:
                # Another thread may drop the same one.
                self._answers.pop(next(iter(self._answers)), None)
        return table

    def query_named(
        self,
        text: str,
        locations: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        views: Mapping[str, str] = MappingProxyType({}),
        parts: Mapping[str, RelayPart] = MappingProxyType({}),
    ) -> pa.Table | None:
        """Return the answer of a user's query over tables by name, or None if only Spark reaches one of them.

        `views` are queries by name that the query may name, too; of a relay with a part in `parts`, no other file is read.
        """
        places = locations.values()
        if not (self._without_spark and all(map(self._is_seen, places))) or any(map(self.has_deletion_vectors, places)):
            return None
        datasets = {name: self._folder.dataset(place, {}, parts.get(name)) for name, place in locations.items()}
        return query_files(text, datasets, values, views=views, has_braces=False)

    def _empty_tables(self, query: LakeQuery) -> dict[str, pa.Table]:
        """Return empty tables for side tables that are not made yet."""
        found: dict[str, pa.Table] = {}
        for name, one in query.lake_tables.items():
            place = self._locate(one)
            if one.table is RELAY or self._is_seen(place) or self.exists(place):
                continue
            if self.exists(self.meta_location(GAPS)):
                found[name] = arrow_table(one.table, [])
        return found

    def query_frame(self, query: LakeQuery) -> DataFrame:
        from pyspark.sql import functions as F

        named = {}
        for name, given in query.given.items():
            frame = self.to_frame(given)
            named[name] = F.broadcast(frame) if len(given) <= _MAX_BROADCAST_ROWS else frame
        for name, one in query.lake_tables.items():
            if one.table is not RELAY:
                named[name] = self.meta(one.table)
            else:
                rows = self.relay(one.alias)
                named[name] = rows if one.part is None else one.part.rows(rows)
        return self.spark.sql(query.text, args=dict(query.values), **named)

    def to_frame(self, table: pa.Table) -> DataFrame:
        if len(table):
            return self.spark.createDataFrame(table)
        from pyspark.sql.pandas.types import from_arrow_schema

        # A Spark Connect client does not accept the types of a table without rows.
        return self.spark.createDataFrame([], schema=from_arrow_schema(table.schema))

    def _locate(self, one: NamedTable) -> str:
        return self.relay_location(one.alias) if one.table is RELAY else self.meta_location(one.table)

    def texts(self, folder: str) -> dict[str, str]:
        """Return the texts of a folder's files by name, or {} if there is no folder."""
        if self._store is None and (":/" in folder or not self._has_relays()):
            return self._session_tables.texts(folder)
        found, files = {}, open_folder(folder)
        # Spark ignores names that begin with a dot or an underscore, too.
        for name in files.names():
            if name and not name.startswith((".", "_")):
                # A running query removes old files of its checkpoint location.
                with suppress(FileNotFoundError, IsADirectoryError):
                    found[name] = files.read(name)
        return found

    def commits(self, location: str, *, since: int = -1) -> Iterator[Commit]:
        """Yield the commits of a table after a version, newest first; older ones are read only when they are asked for."""
        last = sys.maxsize
        for limit in (*_HISTORY_READS, None):
            history = self._engine(location).history(location, limit)
            for commit in history:
                if commit["version"] <= since:
                    return
                # Others may have committed since the last read.
                if commit["version"] < last:
                    last = commit["version"]
                    yield Commit(
                        last,
                        _signature(commit.get("userMetadata")),
                        str(commit.get("operation", "")),
                        _restored_to(commit.get("operationParameters")),
                        _committed_at(commit.get("timestamp")),
                    )
            # Fewer commits than asked for are no end: a power cut leaves empty files, which the history skips.
            if history and history[-1]["version"] == 0:
                return

    def version(self, location: str) -> int:
        return self._engine(location).version(location)

    def has_version(self, location: str, version: int) -> bool:
        return self._engine(location).has_version(location, version)

    def properties(self, location: str) -> dict[str, str]:
        return self._engine(location).properties(location)

    def has_deletion_vectors(self, location: str) -> bool:
        """Return whether a table's readers need deletion vectors, so that only Spark reads and maintains it."""
        return self._engine(location).has_deletion_vectors(location)

    def size(self, location: str) -> tuple[int, int]:
        return self._engine(location).size(location)

    def _is_seen(self, location: str) -> bool:
        # The table itself is checked, because a cluster's Spark may read the path in a distributed file system.
        return self._without_spark and self._folder.has(location)

    @property
    def _without_spark(self) -> bool:
        return self._has_folder or self._store is not None

    def _engine(self, location: str) -> FolderTables | SparkTables:
        return self._folder if self._is_seen(location) else self._through_spark

    def _has_relays(self) -> bool:
        if self._store is not None:
            # The settings name the store, whereas Spark may read a path in another file system.
            return True
        return self._has_folder and any(Path(f"{self._root}/relay").glob("*/_delta_log/*.json"))


def _restored_to(parameters: Mapping[str, Any] | None) -> int:
    version = str((parameters or {}).get("version"))
    return int(version) if version.isdigit() else -1


def _committed_at(stamp: Any) -> datetime | None:
    """Return a commit's time, which delta-rs has in milliseconds."""
    return datetime.fromtimestamp(stamp / 1000, timezone.utc) if isinstance(stamp, int | float) else stamp


def _signature(text: str | None) -> Mapping[str, Any]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
