"""SQL over the lake: relays, all records and side tables by their names, and typed views of topics whose values are JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from mirrorlake.errors import UsageError
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import SIDE_TABLES
from mirrorlake.records.sql import RECORDS, ddl_of, json_sql, json_type, records_sql, topic_sql, view_name


def sql(lake: Lake, sources: Iterable[str], query: str, values: Mapping[str, Any]) -> DataFrame:
    """Answer a query in which the tables of the lake have names (see `Mirror.sql`).

    Temporary views of the session are made for the names that occur in the query.

    Raises:
        UsageError: a table in the query does not exist yet.
    """
    words = {word.lower() for word in re.findall(r"\w+", query)}
    if RECORDS in words:
        _make(lake, RECORDS, records_sql(_relays(lake, sources)))
    for name, location in _tables(lake, sources).items():
        if name.lower() in words:
            if not lake.exists(location):
                raise _missing(name)
            _make(lake, name, f"TABLE {lake.sql_name(location)}")
    return lake.spark.sql(query, args=dict(values))


def json_view(
    lake: Lake, sources: Iterable[str], topic: str, *, name: str | None, schema: str | None, newest: int
) -> DataFrame:
    """Make a typed view of one topic and return it (see `Mirror.json_view`).

    Raises:
        UsageError: no record of the topic holds a JSON object, and no schema is given.
    """
    relays = _relays(lake, sources)
    found = schema
    if found is None:
        [row] = json_type(lake.spark.sql(topic_sql(relays, topic)), newest=newest).collect()
        if row.type is None or not row.type.startswith("OBJECT<"):
            raise UsageError(
                f"no value of {topic} in the relays of {', '.join(sorted(relays))} is a JSON object",
                consequence="no view was made",
                remedy='look at them: mirror.sql("SELECT * FROM records"), or give the view\'s schema',
                topic=topic,
            )
        found = ddl_of(row.type)
    view = name or view_name(topic)
    _make(lake, view, json_sql(relays, topic, found))
    return lake.spark.table(view)


def _relays(lake: Lake, sources: Iterable[str]) -> dict[str, str]:
    """Name the existing relays as SQL does; a source that was never landed has none yet."""
    places = {alias: lake.relay_location(alias) for alias in sources}
    found = {alias: lake.sql_name(location) for alias, location in places.items() if lake.exists(location)}
    if not found:
        raise _missing(RECORDS)
    return found


def _tables(lake: Lake, sources: Iterable[str]) -> dict[str, str]:
    relays = {f"relay_{view_name(alias)}": lake.relay_location(alias) for alias in sources}
    return relays | {table.name: lake.meta_location(table) for table in SIDE_TABLES}


def _missing(name: str) -> UsageError:
    return UsageError(
        f"{name} is not in the lake yet",
        consequence="the query was not run",
        remedy="mirrorlake apply makes the tables",
    )


def _make(lake: Lake, name: str, text: str) -> None:
    lake.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {text}")
