"""Convert a table's columns to Arrow types, and rows of Python values to Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mirrorlake.lake.table_schema import TableSchema

_SIMPLE = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_WORD = re.compile(r"\w+|[<>,:]")


def arrow_types(table: TableSchema) -> dict[str, pa.DataType]:
    return {name: arrow_type(kind) for name, (kind, _) in table.columns.items()}


@lru_cache(maxsize=64)
def arrow_type(kind: str) -> pa.DataType:
    return _next(_WORD.findall(kind)[::-1])


def _next(words: list[str]) -> pa.DataType:
    word = words.pop()
    if word in _SIMPLE:
        return _SIMPLE[word]
    inner: list[Any] = []
    while words.pop() != ">":
        if word == "struct":
            name, _ = words.pop(), words.pop()
            inner.append(pa.field(name, _next(words)))
        else:
            inner.append(_next(words))
    return {"array": pa.list_, "map": pa.map_, "struct": lambda *fields: pa.struct(fields)}[word](*inner)


def arrow_table(table: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows, by column names, as an Arrow table; a column missing in a row is null."""
    return pa.Table.from_pylist(rows, schema=pa.schema(arrow_types(table)))
