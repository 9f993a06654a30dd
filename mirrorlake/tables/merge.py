"""Keep the newest record of each key: a MERGE that changes nothing when a batch is late or repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mirrorlake.tables.decoding import KEY, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TXN = "spark.databricks.delta.write.txn"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_LOOKUP = threading.Lock()
_NEWER = (
    "(s._generation > t._generation OR s._generation = t._generation AND CASE WHEN s._partition = t._partition"
    " THEN s._offset > t._offset ELSE (s._timestamp, s._partition) > (t._timestamp, t._partition) END)"
)


def merge_newest(rows: DataFrame, table: str, view: str, *, app_id: str, version: int, signature: str) -> None:
    """Merge a batch's newest row of each key into a table, in one commit; a newer tombstone deletes the key's row.

    `table` is a name in SQL, and `view` one that the batch may have in the session.
    """
    names = [name for name in rows.columns if name != TOMBSTONE]
    updates = ", ".join(f"t.`{name}` = s.`{name}`" for name in names)
    columns, values = ", ".join(f"`{name}`" for name in names), ", ".join(f"s.`{name}`" for name in names)
    session = rows.sparkSession
    newest_of_keys(rows).createOrReplaceTempView(view)
    try:
        with _commit_settings(session, app_id=app_id, version=version, signature=signature):
            session.sql(
                f"MERGE INTO {table} t USING {view} s"  # noqa: S608 - names of the lake and of columns
                f" ON t._source = s._source AND t._topic = s._topic AND t.{KEY} = s.{KEY}"
                f" WHEN MATCHED AND {_NEWER} AND s.{TOMBSTONE} THEN DELETE"
                f" WHEN MATCHED AND {_NEWER} THEN UPDATE SET {updates}"
                f" WHEN NOT MATCHED AND NOT s.{TOMBSTONE} THEN INSERT ({columns}) VALUES ({values})"
            )
    finally:
        session.catalog.dropTempView(view)


def newest_of_keys(rows: DataFrame) -> DataFrame:
    """Return the newest row of each key, by offset in one partition and by timestamp between partitions.

    A key that changes its partition has its records in several: their topic got more partitions.
    """
    from pyspark.sql import functions as F

    columns = rows.columns
    identity = ["_source", "_topic", KEY]
    packed = rows.select(*identity, "_generation", "_partition", "_timestamp", F.struct(*columns).alias("row"))
    of_partition = packed.groupBy(*identity, "_partition").agg(
        F.max_by("row", F.struct("_generation", "row._offset")).alias("row")
    )
    newest = of_partition.groupBy(*identity).agg(
        F.max_by("row", F.struct("row._generation", "row._timestamp", "row._partition")).alias("row")
    )
    return newest.select(*(F.col("row")[name].alias(name) for name in columns))


def commits_of(session: SparkSession) -> threading.Lock:
    """Return the lock to hold around each SQL statement that commits: the transaction of one is a setting of the whole session."""
    with _LOOKUP:
        return _LOCKS.setdefault(session, threading.Lock())


@contextmanager
def _commit_settings(session: SparkSession, *, app_id: str, version: int, signature: str) -> Iterator[None]:
    settings = {f"{_TXN}AppId": app_id, f"{_TXN}Version": str(version), _METADATA: signature}
    with commits_of(session):
        for name, value in settings.items():
            session.conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                session.conf.unset(name)
