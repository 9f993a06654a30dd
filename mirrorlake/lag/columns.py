"""Columns of Arrow tables, as NumPy integers and as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NOTHING = np.iinfo(np.int64).min
"""Marks an unknown number."""
TIME = pa.timestamp("us", "UTC")


def numbers(values: pa.ChunkedArray | pa.Array) -> Ints:
    """Return numbers or times as integers, NOTHING for null."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_timestamp(column.type):
        column = column.cast(TIME)
    column = column.cast(pa.int64())
    return np.asarray(column.fill_null(NOTHING) if column.null_count else column)


def lists(values: pa.ChunkedArray) -> tuple[Ints, dict[str, Ints]]:
    column = values.combine_chunks()
    flat = column.flatten()
    return np.diff(np.asarray(column.offsets)).astype(np.int64), {
        field.name: numbers(flat.field(field.name)) for field in flat.type
    }


def rows(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)
