"""Query the lake with SQL: typed tables, relays, all records and side tables by name.

Views are SQL texts rather than DataFrames: a view of a DataFrame shows the table of the moment when it was created, a view
of a text reads the table each time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import (
    OFFSET_MAP,
    QUARANTINE,
    SIDE_TABLES,
    WITHHELD,
    Lake,
    RelayPart,
    quarantine_sql,
    quote,
    withheld_sql,
)
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables import RECORDS, find_tables, view_name
from mirrorlake.topics import settings_in_force

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_PLACE = ("topic", "generation", "partition", "offset", "timestamp", "timestamp_type")
_BYTES = ("key", "value")
_QUARANTINED = """
    SELECT source_topic AS topic, generation, source_partition AS partition, min(first_upstream) AS first,
        max(last_upstream) + 1 AS end_at
    FROM {offset_map} WHERE kind = 'quarantined' GROUP BY source_topic, generation, source_partition
"""
_QUESTION = re.compile(r"\s*(?:\(\s*)*(?:SELECT|WITH)\b", re.IGNORECASE)


def run_sql(context: Context, query: str, values: Mapping[str, Any]) -> DataFrame:
    """Run a query with the tables of the lake by name (see `Mirror.sql`).

    The session gets temporary views for the names in the query.
    """
    lake = context.lake
    if RECORDS in _words(query):
        _make(lake, RECORDS, records_sql(_relay_names(context, RECORDS)))
    for name, location in _named_tables(context, query).items():
        table = lake.sql_name(location)
        if name == WITHHELD:
            text = withheld_sql(table)
        elif name == QUARANTINE:
            text = quarantine_sql(table, _relay_names(context, name), _flow_sources(context))
        else:
            text = f"TABLE {table}"
        _make(lake, name, text)
    return lake.spark.sql(query, args=dict(values))


def run_query(context: Context, query: str, values: Mapping[str, Any]) -> pa.Table:
    import duckdb
    from sqlglot.errors import SqlglotError

    if not _QUESTION.match(query):
        raise UsageError(
            "query takes a SELECT", consequence="it was not run", remedy="mirror.sql runs all else by Spark"
        )
    tables = _named_tables(context, query)
    if RECORDS in _words(query):
        return run_sql(context, query, values).toArrow()
    lake, views, part = context.lake, dict[str, str](), None
    if location := tables.pop(WITHHELD, None):
        tables[OFFSET_MAP.name] = location
        views[WITHHELD] = withheld_sql(OFFSET_MAP.name)
    if location := tables.pop(QUARANTINE, None):
        if lake.is_spark_only:
            return run_sql(context, query, values).toArrow()
        relays = {alias: f"quarantined_{view_name(alias)}" for alias in _relays(context, QUARANTINE)}
        tables |= {name: lake.relay_location(alias) for alias, name in relays.items()}
        tables[OFFSET_MAP.name] = location
        views[QUARANTINE] = quarantine_sql(OFFSET_MAP.name, relays, _flow_sources(context))
        part = _quarantined_part(lake)
    parts = {name: part for name in tables if part and name.startswith("quarantined_")}
    try:
        answer = context.lake.query_named(query, tables, values, views=views, parts=parts)
    except (duckdb.Error, SqlglotError) as error:
        raise UsageError(
            f"DuckDB cannot answer the query: {str(error).splitlines()[0]}",
            consequence="nothing was read",
            remedy="mirror.sql asks Spark, which knows your views, too",
        ) from error
    return run_sql(context, query, values).toArrow() if answer is None else answer


def _flow_sources(context: Context) -> dict[str, str]:
    """Return the aliases of the sources of the known flows and their redrives."""
    others = settings_in_force.flows_of_other_files(context.config, context.control().state())
    flows = [flow for flow in (*context.config.flows, *others) if flow.source in context.config.sources]
    return {name: flow.source for flow in flows for name in (flow.name, flow.redrive_name)}


def _quarantined_part(lake: Lake) -> RelayPart:
    rows = lake.query(_QUARANTINED)
    sources = [SourcePartition(row.topic, row.generation, row.partition) for row in rows]
    firsts = {source: int(row.first) for source, row in zip(sources, rows, strict=True)}
    ends = {source: int(row.end_at) for source, row in zip(sources, rows, strict=True)}
    return RelayPart(firsts, ends=ends, others=False)


def _relays(context: Context, view: str) -> list[str]:
    """Return the aliases of the sources with a relay, which a view reads."""
    lake = context.lake
    found = [alias for alias in context.config.sources if lake.exists(lake.relay_location(alias))]
    if not found:
        raise _missing(view)
    return found


def _relay_names(context: Context, view: str) -> dict[str, str]:
    lake = context.lake
    return {alias: lake.sql_name(lake.relay_location(alias)) for alias in _relays(context, view)}


def _words(query: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w+", query)}


def _named_tables(context: Context, query: str) -> dict[str, str]:
    words, found = _words(query), dict[str, str]()
    for name, locations in _tables(context, told=words).items():
        if name.lower() not in words:
            continue
        if len(locations) > 1:
            raise UsageError(
                f"{name} is the name of {len(locations)} typed tables: {', '.join(locations)}",
                consequence="the query was not run",
                remedy=f"give one of them another `name:`, or query {context.lake.sql_name(locations[0])}",
            )
        if context.lake.exists(locations[0]):
            found[name] = locations[0]
        elif re.search(rf"\b(?:from|join|table)\s+`?{name}\b", query, re.IGNORECASE):
            raise _missing(name)
    return found


def _tables(context: Context, *, told: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the locations of the lake's tables by name in SQL.

    Those of mirrorlake hide typed tables of their name; the log says so for the names of `told`.
    """
    lake, typed = context.lake, dict[str, list[str]]()
    for table in find_tables(context):
        name, location = view_name(table.name).lower(), lake.typed_location(table.name)
        if not table.is_hidden:
            typed.setdefault(name, []).append(location)
        elif name in told:
            log.warning(
                "sql.hidden name=%s is a table of mirrorlake; the typed table is %s", name, lake.sql_name(location)
            )
    relays = {f"relay_{view_name(alias)}": [lake.relay_location(alias)] for alias in context.config.sources}
    views = {name: [lake.meta_location(OFFSET_MAP)] for name in (WITHHELD, QUARANTINE)}
    return typed | relays | views | {table.name: [lake.meta_location(table)] for table in SIDE_TABLES}


def _missing(name: str) -> UsageError:
    return UsageError(
        f"{name} is not in the lake yet",
        consequence="the query was not run",
        remedy="mirrorlake apply makes the tables of mirrorlake; a typed table comes with its first records",
    )


def _make(lake: Lake, name: str, text: str) -> None:
    lake.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {text}")


def records_sql(relays: Mapping[str, str]) -> str:
    """Return the query of all relays (SQL names by alias), with `source`, `key_text` and `value_text`.

    The two texts are null if the bytes are null or not UTF-8.

    Example:
        >>> records_sql({"east": "delta.`/lake/relay/east`"}).endswith("FROM delta.`/lake/relay/east`")
        True
    """
    columns = [
        *(f"`{name}`" for name in (*_PLACE, *_BYTES, "headers", "landed_at")),
        *(f"try_validate_utf8(CAST(`{name}` AS STRING)) AS {name}_text" for name in _BYTES),
    ]
    return "\nUNION ALL\n".join(
        f"SELECT {quote(alias)} AS source, {', '.join(columns)} FROM {relay}"  # noqa: S608 - the lake's own names
        for alias, relay in sorted(relays.items())
    )
