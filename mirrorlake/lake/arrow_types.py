"""The columns of a table as Arrow types, and rows of Python values as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlglot import exp

from mirrorlake.lake.schema import TableSchema

_SIMPLE: Mapping[Any, pa.DataType] = {
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}


def arrow_types(table: TableSchema) -> dict[str, pa.DataType]:
    """Return the type of each column, in their order."""
    return {name: _arrow_type(kind) for name, (kind, _) in table.columns.items()}


@lru_cache(maxsize=64)
def _arrow_type(kind: str) -> pa.DataType:
    return _of(exp.DataType.build(kind, dialect="spark"))


def _of(kind: exp.DataType) -> pa.DataType:
    inner = kind.expressions
    if kind.this == exp.DataType.Type.ARRAY:
        return pa.list_(_of(inner[0]))
    if kind.this == exp.DataType.Type.MAP:
        return pa.map_(_of(inner[0]), _of(inner[1]))
    if kind.this == exp.DataType.Type.STRUCT:
        return pa.struct([pa.field(part.name, _of(part.kind)) for part in inner])
    return _SIMPLE[kind.this]


def arrow_table(table: TableSchema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows, each with the columns' values in their order, as an Arrow table; a struct's value is a tuple.

    Raises:
        ValueError: a row has more or fewer values than the table has columns.
    """
    types = arrow_types(table)
    columns = list(zip(*rows, strict=True)) or [() for _ in types]
    arrays = [
        pa.array([_value(value, kind) for value in column], kind)
        for column, kind in zip(columns, types.values(), strict=True)
    ]
    return pa.table(arrays, names=list(types))


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(part, field.type) for field, part in zip(kind, value, strict=True)}
    if pa.types.is_list(kind):
        return [_value(part, kind.value_type) for part in value]
    if pa.types.is_map(kind):
        return list(value.items())
    return value
