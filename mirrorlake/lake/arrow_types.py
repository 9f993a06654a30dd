"""The columns of a table as Arrow types, and rows of Python values as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlglot import exp

from mirrorlake.lake.table_schema import TableSchema

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
    return {name: arrow_type(kind) for name, (kind, _) in table.columns.items()}


@lru_cache(maxsize=64)
def arrow_type(kind: str) -> pa.DataType:
    """Return the type of a column by its name in Spark's SQL."""
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


def arrow_table(table: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows, by the names of the columns, as an Arrow table; a column that a row leaves out is null."""
    return pa.Table.from_pylist(rows, schema=pa.schema(arrow_types(table)))
