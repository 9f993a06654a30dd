"""Run a query in Spark's SQL by DuckDB on a folder's files, from the same text as the Spark session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from mirrorlake.config.predicates import engine
from mirrorlake.lake.translation import in_duckdb

if TYPE_CHECKING:
    import pyarrow as pa

_VALUE = re.compile(r":(\w+)")
# Encoding fewer values as a dictionary saves no time.
_FEW = 100


def query_files(
    text: str,
    datasets: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    views: Mapping[str, str] = MappingProxyType({}),
    has_braces: bool = True,
) -> pa.Table:
    """Return the answer of a query in Spark's SQL over Arrow datasets, and views of them (see `in_duckdb`)."""
    with engine() as connection:
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        try:
            for name, view in views.items():
                connection.sql(in_duckdb(view, has_braces=has_braces)).create_view(name)
            # DuckDB refuses values that the query does not name.
            named = {name: values[name] for name in _VALUE.findall(text) if name in values}
            return connection.sql(in_duckdb(text, has_braces=has_braces), params=named).to_arrow_table()
        finally:
            for name in views:
                connection.execute(f"DROP VIEW IF EXISTS {name}")
            for name in datasets:
                connection.unregister(name)


def to_rows(table: pa.Table) -> list[Any]:
    """Return rows with their columns as attributes: times in UTC, structs as dictionaries, maps as pairs."""
    names, columns = table.column_names, [_values(column) for column in table.columns]
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the same as `to_pylist`, in a fraction of its time for many numbers, times or names."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) and not column.null_count:
        return list(column.to_numpy().tolist())
    if not (pa.types.is_timestamp(kind) or pa.types.is_string(kind)) or len(column) < _FEW:
        return list(column.to_pylist())
    # Many rows have the same times and topics.
    encoded = column.combine_chunks().dictionary_encode()
    values = [*encoded.dictionary.to_pylist(), None]
    return [values[at] for at in encoded.indices.fill_null(len(values) - 1).to_numpy().tolist()]
