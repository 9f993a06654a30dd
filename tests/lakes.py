"""Lakes in a folder of this machine, without Spark, and records that stand in their relays."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import RELAY, FolderTables, Lake, TableSchema, write_files
from mirrorlake.lake.arrow_types import arrow_types

SCHEMA = pa.schema(list(arrow_types(RELAY).items()))
# Parquet holds microseconds, Kafka and the statistics milliseconds.
LANDED_AT = datetime(2026, 11, 22, 12, 0, 0, 123_456, timezone.utc)


def no_session() -> Any:
    """Stand for a session that nobody may ask for."""
    raise AssertionError("a lake in a folder needs no Spark")


def lake_in(folder: Path | str, *tables: TableSchema, relays: Iterable[str] = (), **options: Any) -> Lake:
    """Return a lake in a folder, with these side tables and the relays of these clusters."""
    lake, made = Lake(no_session, LakeConfig(root=str(folder)), **options), FolderTables()
    for alias in relays:
        made.create(lake.relay_location(alias), RELAY)
    for table in tables:
        made.create(lake.meta_location(table), table)
    return lake


def rows(topic: str, partition: int, *offsets: int, **columns: Any) -> list[dict[str, Any]]:
    """Return records of the relay; every second one has a key and headers, every third no value."""
    return [
        {
            "topic": topic,
            "generation": 1,
            "partition": partition,
            "offset": offset,
            "timestamp": LANDED_AT - timedelta(seconds=offset),
            "timestamp_type": 0,
            "key": b"k" if offset % 2 else None,
            "value": b"" if offset % 3 else None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if offset % 2 else None,
            "landed_at": LANDED_AT,
        }
        | columns
        for offset in offsets
    ]


def batch(*several: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return records of the relay as one batch."""
    return pa.RecordBatch.from_pylist([row for some in several for row in some], SCHEMA)


class Relay:
    """A relay in a folder, whose batches are appended as a lander appends them."""

    def __init__(self, path: Path | str) -> None:
        self.path, self.tables, self.batches = str(path), FolderTables(), 0
        self.tables.create(self.path, RELAY)

    def land(self, *several: list[dict[str, Any]], app_id: str = "land", signature: str = "{}", **written: Any) -> None:
        """Append one batch."""
        self.batches += 1
        files = list(write_files(self.path, SCHEMA, [batch(*several)], **written))
        self.tables.commit(self.path, files, app_id=app_id, version=self.batches, signature=signature)

    def records(self, topic: str = "") -> list[dict[str, Any]]:
        """Return what the table holds, of one topic or all, in the order of its partitions."""
        held = [row for row in DeltaTable(self.path).to_pyarrow_table().to_pylist() if topic in ("", row["topic"])]
        return sorted(held, key=lambda row: (row["topic"], row["generation"], row["partition"], row["offset"]))

    def offsets(self, topic: str = "orders") -> list[int]:
        """Return the offsets of a topic, in order."""
        return sorted(row["offset"] for row in self.records(topic))

    def files(self) -> int:
        """Return how many files the table has."""
        return len(DeltaTable(self.path).file_uris())
