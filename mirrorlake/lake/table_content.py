"""What a table holds, for a person who looks at it: its columns, its size and its newest rows, without Spark."""

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
    """A column: its name, its type in SQL, and its comment."""

    name: str
    type: str
    comment: str = ""


class NewestRows:
    """The rows with the latest times in a column, then by other columns; the statistics of the log choose their files."""

    def __init__(self, by: str, *others: str, count: int) -> None:
        self._by = by
        self._order = [(name, "descending") for name in (by, *others)]
        self._count = count

    def files(self, actions: pa.Table) -> pa.Table:
        """Return the add actions of files that may have one of the rows; all if the log does not tell."""
        names = ["num_records", *(f"{end}.{self._by}" for end in ("min", "max"))]
        if not set(names) <= set(actions.column_names) or not len(actions):
            return actions
        rows, least, greatest = (actions[name].combine_chunks() for name in names)
        known = np.flatnonzero(pc.and_(pc.is_valid(least), pc.is_valid(rows)).to_numpy(zero_copy_only=False))
        times = least.take(pa.array(known)).to_numpy(zero_copy_only=False)
        newest = known[np.argsort(times, kind="stable")[::-1]]
        # So many rows are at least as new as the oldest one of these files.
        enough = np.cumsum(rows.take(pa.array(newest)).to_numpy(zero_copy_only=False)) >= self._count
        if not enough.any():
            return actions
        bound = least[int(newest[np.argmax(enough)])]
        return actions.filter(pc.fill_null(pc.greater_equal(greatest, bound), True))

    def rows(self, dataset: Any, columns: Sequence[str]) -> pa.Table:
        """Read the rows of a dataset, the newest first; rows without a time only where others are too few."""
        # The times alone first: a row may be large.
        times = dataset.to_table(columns=[self._by]).column(0).drop_null().sort("descending")
        newer = pc.field(self._by) >= times[self._count - 1] if len(times) >= self._count else None
        scanner = dataset.scanner(columns=[*columns], filter=newer, batch_readahead=1, fragment_readahead=1)
        return scanner.to_table().sort_by(self._order).slice(0, self._count)


class TableContent:
    """The content of a table in a folder of this machine or an object store."""

    def __init__(self, folder: FolderTables, location: str) -> None:
        self._folder = folder
        self._location = location

    def columns(self) -> tuple[TableColumn, ...]:
        """Return the columns in their order."""
        fields = self._folder.schema(self._location).fields
        return tuple(
            TableColumn(one.name, sql_type(one.type), str(one.metadata.get("comment") or "")) for one in fields
        )

    def size(self) -> tuple[int | None, int]:
        """Return the number of rows, None if the log does not tell it, and of bytes."""
        _, files = self._folder.files(self._location, _Whole())
        counts = files["num_records"]
        rows = None if counts.null_count else pc.sum(counts).as_py() or 0
        return rows, pc.sum(files["size_bytes"]).as_py() or 0

    def newest_rows(self, columns: Sequence[str], *, by: Sequence[str], count: int) -> pa.Table:
        """Return these columns of the newest rows, the newest first, by columns among them of which the first has times."""
        part = NewestRows(*by, count=count)
        return part.rows(self._folder.dataset(self._location, {}, part), columns)


class _Whole:
    def files(self, actions: pa.Table) -> pa.Table:
        return actions


def sql_type(kind: Any) -> str:
    """Return a type of delta-rs as it is written in SQL.

    >>> from deltalake import Field
    >>> sql_type(StructType([Field("n", "long"), Field("tags", ArrayType("string", True))]))
    'STRUCT<n: BIGINT, tags: ARRAY<STRING>>'
    """
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{one.name}: {sql_type(one.type)}' for one in kind.fields)}>"
    return _SQL.get(kind.type, str(kind.type).upper())
