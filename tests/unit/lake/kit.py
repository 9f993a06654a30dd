"""Relays whose files and commits are a lander's: spans in the log, a numbered batch a commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from mirrorlake.lake import FolderTables, WrittenFile, write_files
from tests.kit.lake import TABLES, LakeBuilder, Row

SCHEMA = TABLES["relay"]


def batch(*several: list[Row]) -> pa.RecordBatch:
    """Return records of the relay as one batch."""
    return pa.RecordBatch.from_pylist([row for some in several for row in some], SCHEMA)


def written(path: Path | str, *several: list[Row], **options: Any) -> list[WrittenFile]:
    """Write records as a worker does; nobody has committed them yet."""
    return list(write_files(str(path), SCHEMA, [batch(*several)], **options))


class Relay(LakeBuilder):
    """A lake whose relay takes a batch a turn."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path, self.tables, self.batches = self.location("relay"), FolderTables(), 0

    def turn(self, *several: list[Row], app_id: str = "land", signature: str = "{}", **options: Any) -> Relay:
        self.batches += 1
        files = written(self.path, *several, **options)
        self.tables.commit(self.path, files, app_id=app_id, version=self.batches, signature=signature)
        return self

    def records(self, topic: str = "") -> list[Row]:
        """Return what the relay holds, of one topic or all, in the order of its partitions."""
        held = [row for row in DeltaTable(self.path).to_pyarrow_table().to_pylist() if topic in ("", row["topic"])]
        return sorted(held, key=lambda row: (row["topic"], row["generation"], row["partition"], row["offset"]))

    def offsets(self, topic: str = "orders") -> list[int]:
        return sorted(row["offset"] for row in self.records(topic))

    def files(self) -> int:
        return len(DeltaTable(self.path).file_uris())
