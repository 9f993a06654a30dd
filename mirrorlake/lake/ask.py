"""One text for a question, answered by DuckDB from a folder's files or by the Spark session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import sqlglot

from mirrorlake.config.predicates import engine

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE = re.compile(r"\{(\w+)\}")


def tables_of(text: str) -> tuple[str, ...]:
    """List the tables that a question names in braces."""
    return tuple(dict.fromkeys(_TABLE.findall(text)))


def answer_from_files(text: str, datasets: Mapping[str, Any], values: Mapping[str, Any]) -> list[Any]:
    """Answer a question in Spark's SQL from datasets of Arrow."""
    with engine() as connection:
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        try:
            return rows_of(connection.sql(_in_duckdb(text), params=dict(values)).to_arrow_table())
        finally:
            for name in datasets:
                connection.unregister(name)


def rows_of(table: pa.Table) -> list[Any]:
    """Return rows with their columns as attributes: times in UTC, structs as dictionaries, maps as pairs."""
    return [SimpleNamespace(**row) for row in table.to_pylist()]


@lru_cache(maxsize=256)
def _in_duckdb(text: str) -> str:
    [statement] = sqlglot.transpile(_TABLE.sub(r"\1", text), read="spark", write="duckdb")
    return statement
