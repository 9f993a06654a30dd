"""The content of a table that a person reads: its columns, size and newest rows, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.schema import ArrayType, MapType, StructType

from mirrorlake.lake.delta_rs import FolderTables

_SQL = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: str
    comment: str = ""


class TableContent:
    def __init__(self, folder: FolderTables, location: str) -> None:
        self._folder = folder
        self._location = location

    def columns(self) -> tuple[TableColumn, ...]:
        fields = self._folder.schema(self._location).fields
        return tuple(
            TableColumn(one.name, sql_type(one.type), str(one.metadata.get("comment") or "")) for one in fields
        )

    @property
    def is_readable(self) -> bool:
        """Whether rows are read without Spark: no reader needs deletion vectors, by which a file's rows may be replaced ones."""
        return not self._folder.has_deletion_vectors(self._location)

    def size(self) -> tuple[int | None, int]:
        """Return the number of rows, None if the log does not tell it, and of bytes."""
        files = self._folder.statistics(self._location)
        counts = files["num_records"]
        rows = None if counts.null_count or not self.is_readable else pc.sum(counts).as_py() or 0
        return rows, pc.sum(files["size_bytes"]).as_py() or 0

    def newest_rows(self, columns: Sequence[str], *, by: Sequence[str], count: int) -> pa.Table:
        """Return these columns of the newest rows, the newest first; rows without a time only where others are too few.

        `by` are columns among them, of which the first has times. Files without such a row are not read.
        """
        time = pc.field(by[0])
        least = _least_time(self._folder.statistics(self._location), by[0], count)
        dataset = self._folder.dataset(self._location, {})
        # The times alone first: a row may be large.
        times = dataset.to_table(columns=[by[0]], filter=None if least is None else time >= least).column(0)
        newest = times.drop_null().sort("descending")
        # Statistics truncate times to milliseconds.
        newer = time >= pc.floor_temporal(newest[count - 1], unit="millisecond") if len(newest) >= count else None
        scanner = dataset.scanner(columns=[*columns], filter=newer, batch_readahead=1, fragment_readahead=1)
        return scanner.to_table().sort_by([(name, "descending") for name in by]).slice(0, count)


def _least_time(files: pa.Table, by: str, count: int) -> pa.Scalar | None:
    """Return a time that so many rows reach by the statistics of their files, or None if the log does not tell."""
    names = ["num_records", f"min.{by}"]
    if not set(names) <= set(files.column_names):
        return None
    known = files.select(names).drop_null().sort_by([(f"min.{by}", "descending")])
    enough = np.flatnonzero(np.cumsum(known["num_records"].to_numpy()) >= count)
    return known[f"min.{by}"][int(enough[0])] if len(enough) else None


def sql_type(kind: Any) -> str:
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{one.name}: {sql_type(one.type)}' for one in kind.fields)}>"
    return _SQL.get(kind.type, str(kind.type).upper())
