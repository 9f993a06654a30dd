"""The lake: where each table is, how it is created, read and appended to."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.config.schema import LakeConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake.arrow_types import arrow_table, arrow_types
from mirrorlake.lake.ask import answer_from_files, rows_of
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.question import NamedTable, Question, Relays
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.relay_writer import RelayWriter
from mirrorlake.lake.schema import RELAY, SIDE_TABLES, TableSchema
from mirrorlake.lake.spark_tables import SparkTables
from mirrorlake.lake.texts import texts_by_spark, texts_of
from mirrorlake.lake.upkeep import TableUpkeep
from mirrorlake.runtime import Store, attach_stores, folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader

# Of narrow rows: some 10 MB.
_MOST_BROADCAST = 100_000
_PLAIN = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table; `signature` is the document that its writer signed it with, empty without one."""

    version: int
    signature: Mapping[str, Any]


class Lake:
    """Address and reach the tables of one lake.

    Args:
        spark: the session that reads and writes, or what gives it when it is first needed: a question about a folder needs
            none. Never stopped here.
        config: `root`, or `catalog` and `schema` on Unity Catalog.
        sees_all: whether a session does not stand yet, and would see what this process sees: then what is not in the folder
            is not there, and no session is started to say so.
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        config: LakeConfig,
        *,
        sees_all: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sees_all = sees_all
        self._store = _attached(config)
        self._root = config.location() if self._store is None else self._store.root
        self._namespace = config.namespace()
        self._checkpoints = config.checkpoint_location() if self._store is None else f"{self._root}/checkpoints"
        self._has_folder = config.folder() is not None and "DATABRICKS_RUNTIME_VERSION" not in os.environ
        self._folder = FolderTables()
        self._through_spark = SparkTables(spark, is_catalog=self.is_catalog, store=self._store)
        self._writer = RelayWriter()

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._through_spark.session

    def relay_location(self, alias: str) -> str:
        """Address the relay of a source cluster: its path or its name in the catalog."""
        return self._place(f"relay/{alias}", f"relay_{_identifier(alias)}")

    def meta_location(self, table: TableSchema) -> str:
        """Address a side table."""
        return self._place(f"meta/{table.name}", table.name)

    def checkpoint_root(self) -> str:
        """The folder that holds the checkpoint locations of all streams."""
        return self._checkpoints.rstrip("/")

    def sql_name(self, location: str) -> str:
        """Write a location as SQL takes it."""
        return self._through_spark.sql_name(location)

    @property
    def is_catalog(self) -> bool:
        """Whether the tables have names in a catalog, not paths."""
        return self._namespace is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether only Spark reaches the tables: they are neither in a folder of this machine nor on a store with settings."""
        return not self._without_spark

    @property
    def store(self) -> Store | None:
        """The object store with the tables that is reached without Spark; None for any other lake."""
        return self._store

    def view_name(self, name: str) -> str:
        """Name a view in the schema of a catalog's tables."""
        return self._place(name, name)

    def exists(self, location: str) -> bool:
        """Tell whether a table exists."""
        if self._is_seen(location):
            return True
        if self._has_relays() or (self._has_folder and self._sees_all()):
            # A lake that is seen in a folder has no table elsewhere.
            return False
        return self._through_spark.has(location)

    def create_all(self, aliases: Iterable[str]) -> list[str]:
        """Create what is missing: a relay per source alias, and the side tables; return their locations."""
        missing = self.missing(aliases)
        with ThreadPoolExecutor(max_workers=4) as pool:
            # Relays first: where Spark puts them into a folder of this machine, the rest needs no Spark.
            for is_relay in (True, False):
                chosen = [item for item in missing.items() if (item[1] is RELAY) == is_relay]
                list(pool.map(lambda item: self._create(*item), chosen))
        return list(missing)

    def create_side_table(self, table: TableSchema) -> None:
        """Create one side table where it is missing."""
        if not self.exists(self.meta_location(table)):
            self._create(self.meta_location(table), table)

    def missing(self, aliases: Iterable[str]) -> dict[str, TableSchema]:
        """Return the tables that `create_all` would create, by location."""
        wanted = {self.relay_location(alias): RELAY for alias in aliases}
        wanted |= {self.meta_location(table): table for table in SIDE_TABLES}
        with ThreadPoolExecutor(max_workers=4) as pool:
            there = list(pool.map(self.exists, wanted))
        return {location: table for (location, table), found in zip(wanted.items(), there, strict=True) if not found}

    def relay(self, alias: str, *, version: int | None = None) -> DataFrame:
        """Read the relay of a source cluster as it is now, or as it was at a version."""
        return self._through_spark.read(self.relay_location(alias), version)

    def relay_stream(self, reader: DataStreamReader, alias: str) -> DataFrame:
        """Read the relay of a source cluster as a stream."""
        return self._through_spark.load(reader, self.relay_location(alias))

    def relay_log(self, alias: str) -> RelayLog | None:
        """Open the log of a source's relay; None where the relay is not seen without Spark."""
        location = self.relay_location(alias)
        return RelayLog(self._folder, location) if self._is_seen(location) else None

    def upkeep(self, location: str) -> TableUpkeep | None:
        """Open a table for its upkeep; None where it is not seen without Spark."""
        return TableUpkeep(location) if self._is_seen(location) else None

    def meta(self, table: TableSchema) -> DataFrame:
        """Read a side table with the columns that this release knows; null where a lake of an older release lacks one."""
        from pyspark.sql import functions as F

        frame = self._through_spark.read(self.meta_location(table))
        lacking = {
            name: F.lit(None).cast(kind) for name, (kind, _) in table.columns.items() if name not in frame.columns
        }
        return frame.withColumns(lacking) if lacking else frame

    def ask(
        self,
        text: str,
        *,
        relay: str = "",
        part: RelayPart | None = None,
        relays: Relays = MappingProxyType({}),
        tables: Mapping[str, pa.Table] = MappingProxyType({}),
        missing_ok: bool = False,
        **values: Any,
    ) -> list[Any]:
        """Answer a question about tables as they are now, without Spark where the lake is a folder of this machine.

        Args:
            text: a query in Spark's SQL; `{offset_map}` stands for that side table, `{relay}` for a relay, `:name` for a value.
                Times of the relay are compared by `unix_micros` only: file statistics cut them to milliseconds.
            relay: the alias of the source whose relay is meant.
            part: the part of it that matters; files without a record of it are not read.
            relays: of a question about several sources, what each of its names in braces stands for: a relay's alias and part.
            tables: what else the question names in braces.
            missing_ok: a table that does not exist has no rows to answer with: the answer is empty.
            values: the values.

        Example:
            >>> lake.ask("SELECT max(epoch) AS epoch FROM {offset_map} WHERE flow = :flow", flow="east->central")  # doctest: +SKIP
            [namespace(epoch=1795338937)]
        """
        asked = Question(text, {RELAY.name: (relay, part), **relays}, tables, values)
        found = self.answer(asked, missing_ok=missing_ok)
        return [] if found is None else rows_of(found)

    def answer(self, question: Question, *, missing_ok: bool = False) -> pa.Table | None:
        """Answer a question as `ask` does, in columns: for answers of many rows. None where a table does not exist."""
        places = {name: self._place_of(one) for name, one in question.lake_tables.items()}
        if missing_ok and not all(map(self.exists, places.values())):
            return None
        if not all(map(self._is_seen, places.values())):
            return self.frame(question).toArrow()
        datasets = {
            name: self._folder.dataset(places[name], arrow_types(one.table), one.part)
            for name, one in question.lake_tables.items()
        }
        return answer_from_files(question.text, {**datasets, **question.tables}, question.values)

    def frame(self, question: Question) -> DataFrame:
        """Give the answer to a question as a frame of the session, which reads the tables when it is asked."""
        from pyspark.sql import functions as F

        named = {}
        for name, given in question.given.items():
            frame = self.spark.createDataFrame(given)
            named[name] = F.broadcast(frame) if len(given) <= _MOST_BROADCAST else frame
        for name, one in question.lake_tables.items():
            if one.table is not RELAY:
                named[name] = self.meta(one.table)
            else:
                rows = self.relay(one.alias)
                named[name] = rows if one.part is None else one.part.rows(rows)
        return self.spark.sql(question.text, args=dict(question.values), **named)

    def _place_of(self, one: NamedTable) -> str:
        return self.relay_location(one.alias) if one.table is RELAY else self.meta_location(one.table)

    def texts(self, folder: str) -> dict[str, str]:
        """Read the files of a folder as texts by their names; a missing folder has none."""
        if self._store is not None or (self._has_relays() and ":/" not in folder):
            return texts_of(folder_of(folder))
        return texts_by_spark(self.spark, folder)

    def _is_seen(self, location: str) -> bool:
        # Seen to be there, not concluded from the path: on a cluster Spark may mean a distributed file system by it.
        return self._without_spark and self._folder.has(location)

    @property
    def _without_spark(self) -> bool:
        return self._has_folder or self._store is not None

    def _engine(self, location: str) -> FolderTables | SparkTables:
        """Choose who reaches a table: delta-rs needs no Spark."""
        return self._folder if self._is_seen(location) else self._through_spark

    def append(
        self,
        frame: DataFrame,
        location: str,
        *,
        app_id: str = "",
        version: int = 0,
        signature: str = "",
        adds_columns: bool = False,
    ) -> None:
        """Append rows; with `app_id`, a version that is not above the last one of that id is dropped (Delta protocol, SetTransaction).

        `app_id` is what keeps a zombie from writing twice: its versions are old. `signature` goes into the table's
        history as the commit's user metadata. `adds_columns` gives a table of an older release the columns that came since.
        """
        if self._store is not None:
            self._append_arrow(frame, location, app_id=app_id, version=version, signature=signature)
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
        """Append to the relay of a source as `append` does; no rows only leave the version and the signature.

        `rows` have the relay's columns but for `landed_at`, the time of the batch.

        Where the relay is a folder of this machine, the workers write its files and delta-rs commits them: 1 830 ms of CPU
        for a small batch are 300 (2026-11-22).
        """
        from pyspark.sql import functions as F

        location = self.relay_location(alias)
        if not self._is_seen(location):
            frame = self.spark.createDataFrame([], schema=RELAY.ddl)
            if rows is not None:
                frame = rows.withColumn("landed_at", F.lit(landed_at))
            self.append(frame, location, app_id=app_id, version=version, signature=signature)
            return
        files = [] if rows is None else self._writer.write(rows, location, landed_at)
        self._folder.commit(location, files, app_id=app_id, version=version, signature=signature)

    def _append_arrow(self, frame: DataFrame, location: str, *, app_id: str, version: int, signature: str) -> None:
        """Append what Spark computes by delta-rs: of a store's tables one kind of writer only (DESIGN 7)."""
        if signature:
            files = self._writer.write(frame, location, None)
            self._folder.commit(location, files, app_id=app_id, version=version, signature=signature)
        else:
            self._folder.append(location, frame.toArrow(), app_id=app_id, version=version)

    def _refuse_spark(self, what: str) -> None:
        if self._store is not None:
            raise UsageError(
                f"{what} is Spark's work, and tables on an object store are written by delta-rs alone",
                consequence="nothing was changed: two kinds of writers of one table may each miss a commit of the other",
                remedy="copy the lake into a folder for it (docs/object-stores.md)",
            )

    def replace(self, frame: DataFrame, location: str, *, where: str) -> None:
        """Put rows in the place of those that a condition holds for, in one commit."""
        self._refuse_spark(f"replacing records of {location}")
        self._through_spark.save(frame.write.mode("overwrite").option("replaceWhere", where), location)

    def append_rows(
        self, table: TableSchema, rows: Sequence[Mapping[str, Any]], *, app_id: str = "", version: int = 0
    ) -> None:
        """Append rows, by the names of the columns, to a side table; a column that a row leaves out is null.

        Raises:
            ValueError: a row names a column that the table lacks.
        """
        unknown = set().union(*rows) - table.columns.keys()
        if unknown:
            raise ValueError(f"{table.name} has no column {', '.join(sorted(unknown))}")
        if rows:
            self._append_rows(table, rows, app_id, version)

    def fence(self, table: TableSchema, *, app_id: str, version: int) -> None:
        """Append nothing under an application id: what comes with an older version from now on is dropped."""
        self._append_rows(table, [], app_id, version)

    def _append_rows(self, table: TableSchema, rows: Sequence[Mapping[str, Any]], app_id: str, version: int) -> None:
        location = self.meta_location(table)
        if (table.engine == "delta-rs" or self._store is not None) and self._is_seen(location):
            self._folder.append(location, arrow_table(table, rows), app_id=app_id, version=version)
            return
        frame = self.spark.createDataFrame(list(rows), schema=table.ddl).coalesce(1)
        self.append(frame, location, app_id=app_id, version=version, adds_columns=True)

    def commits(self, location: str, *, limit: int | None = None) -> list[Commit]:
        """List the newest commits of a table, newest first; without a limit all that its history still holds."""
        newest = self._engine(location).history(location, limit)
        return [Commit(commit["version"], _signature(commit.get("userMetadata"))) for commit in newest]

    def version(self, location: str) -> int:
        """Read the number of a table's newest version."""
        return self._engine(location).version(location)

    def has_version(self, location: str, version: int) -> bool:
        """Tell whether a table has a version; cheap, because no job runs."""
        return self._engine(location).has_version(location, version)

    def properties(self, location: str) -> dict[str, str]:
        """Read the table properties."""
        return self._engine(location).properties(location)

    def set_properties(self, location: str, values: Mapping[str, str]) -> None:
        """Set table properties, all of them in one commit."""
        self._engine(location).set_properties(location, values)

    def size(self, location: str) -> tuple[int, int]:
        """Count the files and bytes of a table's newest version."""
        return self._engine(location).size(location)

    def _create(self, location: str, table: TableSchema) -> None:
        if self._store is not None or (table is not RELAY and self._has_relays()):
            self._folder.create(location, table)
        else:
            self._through_spark.create(location, table)

    def _has_relays(self) -> bool:
        if self._store is not None:
            # Its settings say that it is meant; of a path Spark may think otherwise.
            return True
        return self._has_folder and any(Path(f"{self._root}/relay").glob("*/_delta_log/*.json"))

    def _place(self, folder: str, table: str) -> str:
        if self._namespace is None:
            return f"{self._root}/{folder}"
        catalog, schema = self._namespace
        return f"`{catalog}`.`{schema}`.`{table}`"


def _attached(config: LakeConfig) -> Store | None:
    """Attach the object store that the settings tell how to reach."""
    told = config.store()
    if told is None:
        return None
    root, values = told
    # Hadoop's spelling, which delta-rs and Arrow take as well.
    store = Store(f"s3a{root[2:]}" if root.startswith("s3:") else root, values)
    attach_stores(store)
    return store


def _identifier(alias: str) -> str:
    return alias if _PLAIN.fullmatch(alias) else "".join(c if _PLAIN.fullmatch(c) else f"_{ord(c):x}_" for c in alias)


def _signature(text: str | None) -> Mapping[str, Any]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
