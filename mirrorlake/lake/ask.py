"""One text for a question, answered by DuckDB from a folder's files or by the Spark session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mirrorlake.config.predicates import engine
from mirrorlake.lake.translation import in_duckdb

if TYPE_CHECKING:
    import pyarrow as pa

_VALUE = re.compile(r":(\w+)")


def answer_from_files(text: str, datasets: Mapping[str, Any], values: Mapping[str, Any]) -> pa.Table:
    """Answer a question in Spark's SQL from datasets of Arrow."""
    with engine() as connection:
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        try:
            # DuckDB refuses values that a text does not name.
            named = {name: values[name] for name in _VALUE.findall(text) if name in values}
            return connection.sql(in_duckdb(text), params=named).to_arrow_table()
        finally:
            for name in datasets:
                connection.unregister(name)


def rows_of(table: pa.Table) -> list[Any]:
    """Return rows with their columns as attributes: times in UTC, structs as dictionaries, maps as pairs."""
    return [SimpleNamespace(**row) for row in table.to_pylist()]
