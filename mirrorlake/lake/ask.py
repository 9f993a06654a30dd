"""One text for a question, answered by DuckDB from a folder's files or by the Spark session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from mirrorlake.config.predicates import engine

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE = re.compile(r"\{(\w+)\}")
_VALUE = re.compile(r":(\w+)")


def tables_of(text: str) -> tuple[str, ...]:
    """List the tables that a question names in braces."""
    return tuple(dict.fromkeys(_TABLE.findall(text)))


def answer_from_files(text: str, datasets: Mapping[str, Any], values: Mapping[str, Any]) -> pa.Table:
    """Answer a question in Spark's SQL from datasets of Arrow."""
    with engine() as connection:
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        try:
            # DuckDB refuses values that a text does not name.
            named = {name: values[name] for name in _VALUE.findall(text) if name in values}
            return connection.sql(_in_duckdb(text), params=named).to_arrow_table()
        finally:
            for name in datasets:
                connection.unregister(name)


def rows_of(table: pa.Table) -> list[Any]:
    """Return rows with their columns as attributes: times in UTC, structs as dictionaries, maps as pairs."""
    return [SimpleNamespace(**row) for row in table.to_pylist()]


@lru_cache(maxsize=256)
def _in_duckdb(text: str) -> str:
    tree = sqlglot.parse_one(_TABLE.sub(r"\1", text), read="spark")
    return tree.transform(_word_of_duckdb).sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE)


def _word_of_duckdb(node: exp.Expr) -> exp.Expr:
    """Replace what sqlglot leaves as it stands in Spark's SQL, or gives another meaning."""
    if isinstance(node, exp.Quantile):
        # Spark's percentile interpolates.
        return exp.Anonymous(this="quantile_cont", expressions=[node.this, node.args["quantile"]])
    if isinstance(node, exp.Anonymous) and node.name.lower() == "timestamp_micros":
        return exp.Anonymous(this="make_timestamptz", expressions=node.expressions)
    if isinstance(node, exp.UnixMillis):
        # epoch_ms takes the calendar of a time zone: 3 times as long.
        micros = exp.Anonymous(this="epoch_us", expressions=[node.this])
        return exp.Paren(this=exp.IntDiv(this=micros, expression=exp.Literal.number(1000)))
    return node
