"""Partition values as texts of Delta's log, and the rows of each.

Files written here have the partition columns, too: a file that no commit names any more still tells whose rows it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa


def split_rows(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each partition, or all rows if there are no partition columns."""
    if not columns:
        yield rows
        return
    numbers = rows.select(list(columns)).append_column("row", pa.array(range(len(rows)), pa.int64()))
    for chosen in numbers.group_by(list(columns), use_threads=False).aggregate([("row", "list")]).column("row_list"):
        yield rows.take(chosen.values)


def folder_values(name: str) -> dict[str, str]:
    """Return the partition values in the path of a file that Spark wrote, by its name in the log."""
    parts = (part.partition("=") for part in unquote(name).split("/")[:-1])
    return {column: unquote(value) for column, _, value in parts}


def partition_texts(rows: pa.Table, columns: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return the partition columns with their value, which all rows share (Delta protocol, Partition Value Serialization)."""
    return [(name, partition_text(rows.column(name)[0].as_py())) for name in columns]


def partition_text(value: Any) -> str | None:
    """Return a partition value as text, or None for null; an empty text is null in Delta."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case datetime():
            return f"{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
    return str(value)
