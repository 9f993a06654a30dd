"""Read and write the columns of a batch for rules, a whole column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Flags = np.ndarray[Any, np.dtype[np.bool_]]

FRAME = 5  # bytes: the magic byte 0 and the schema id, big-endian (Confluent's wire format)


def with_column(records: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    place = records.schema.get_field_index(name)
    columns = [column if i == place else records.column(i) for i in range(records.num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=records.schema)


def text_of(column: pa.Array) -> pa.Array:
    """Return bytes as text, null if they are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(item) for item in column.to_pylist()], pa.string())


def _decoded(item: bytes | None) -> str | None:
    try:
        return None if item is None else item.decode()
    except UnicodeDecodeError:
        return None


def header_text(column: pa.Array, name: str) -> pa.Array:
    """Return each record's last value of a header as text, or null."""
    lengths = header_counts(column)
    flat = pc.list_flatten(column)
    places = np.flatnonzero(pc.equal(flat.field(0), name).to_numpy(zero_copy_only=False).astype(bool))
    rows = np.repeat(np.arange(len(column)), lengths)[places]
    last = np.full(len(column), -1)
    # Assignment in order makes the last value win.
    last[rows] = places
    return text_of(flat.field(1).take(pa.array(last, mask=last < 0)))


def header_counts(column: pa.Array) -> np.ndarray[Any, Any]:
    counts: np.ndarray[Any, Any] = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return counts


def edit_headers(column: pa.Array, *, dropped: Sequence[str], renamed: dict[str, str]) -> pa.Array:
    """Drop and rename headers; order, repeats and nulls stay."""
    lengths, flat = header_counts(column), pc.list_flatten(column)
    names, values = flat.field(0), flat.field(1)
    if dropped:
        stays = pc.invert(pc.is_in(names, pa.array(dropped, names.type)))
        rows = np.repeat(np.arange(len(column)), lengths)[stays.to_numpy(zero_copy_only=False)]
        lengths = np.bincount(rows, minlength=len(column))
        names, values = names.filter(stays), values.filter(stays)
    # Compare with the old names: two headers may swap their names.
    before = names
    for old, new in renamed.items():
        names = pc.if_else(pc.equal(before, old), pa.scalar(new, names.type), names)
    entries = pa.StructArray.from_arrays([names, values], fields=list(column.type.value_type))
    bounds = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(bounds, entries, type=column.type, mask=pc.is_null(column))


def framed_rows(column: pa.Array) -> Flags | None:
    """Flag the values with a schema registry's frame (magic byte 0, then a schema id); None if there are none."""
    magic = pc.starts_with(column, pattern=b"\0")
    if not pc.any(magic).as_py():
        return None
    long_enough = pc.greater_equal(pc.binary_length(column), FRAME)
    rows: Flags = pc.fill_null(pc.and_(magic, long_enough), False).to_numpy(zero_copy_only=False)
    return rows if rows.any() else None
