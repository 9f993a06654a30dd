"""Query the lake with SQL: typed tables, relays, all records and side tables by name, and views of JSON values.

Views are SQL texts rather than DataFrames: a view of a DataFrame shows the table of the moment when it was created, a view
of a text reads the table each time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import SIDE_TABLES, Lake, quote
from mirrorlake.tables import RECORDS, find_tables, view_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_PLACE = ("topic", "generation", "partition", "offset", "timestamp", "timestamp_type")
_BYTES = ("key", "value")
_QUESTION = re.compile(r"\s*(?:\(\s*)*(?:SELECT|WITH)\b", re.IGNORECASE)
_TYPE = re.compile(r"`(?:[^`]|``)*`|OBJECT<|DECIMAL\(\d+,\s*\d+\)|\bVOID\b")


def run_sql(context: Context, query: str, values: Mapping[str, Any]) -> DataFrame:
    """Run a query with the tables of the lake by name (see `Mirror.sql`).

    The session gets temporary views for the names in the query.

    Raises:
        UsageError: a table in the query does not exist yet.
    """
    lake = context.lake
    if RECORDS in _words(query):
        _make(lake, RECORDS, records_sql(_relays(lake, context.config.sources)))
    for name, location in _named_tables(context, query).items():
        _make(lake, name, f"TABLE {lake.sql_name(location)}")
    return lake.spark.sql(query, args=dict(values))


def run_query(context: Context, query: str, values: Mapping[str, Any]) -> pa.Table:
    """Run a query, without Spark if delta-rs reaches its tables (see `Mirror.query`).

    Raises:
        UsageError: a table does not exist yet, the text is no query, or DuckDB refuses it.
    """
    import duckdb
    from sqlglot.errors import SqlglotError

    if not _QUESTION.match(query):
        raise UsageError(
            "query takes a SELECT", consequence="it was not run", remedy="mirror.sql runs all else by Spark"
        )
    tables = _named_tables(context, query)
    if RECORDS in _words(query):
        return run_sql(context, query, values).toArrow()
    try:
        answer = context.lake.query_named(query, tables, values)
    except (duckdb.Error, SqlglotError) as error:
        raise UsageError(
            f"DuckDB cannot answer the query: {str(error).splitlines()[0]}",
            consequence="nothing was read",
            remedy="mirror.sql asks Spark, which knows your views, too",
        ) from error
    return run_sql(context, query, values).toArrow() if answer is None else answer


def json_view(context: Context, topic: str, *, name: str | None, schema: str | None, newest: int) -> DataFrame:
    """Create a view of one topic and return it (see `Mirror.json_view`).

    Raises:
        UsageError: no record of the topic has a JSON object, and no schema is given; or a table has the view's name.
    """
    lake, view = context.lake, name or view_name(topic)
    if view.lower() in map(str.lower, _tables(context)):
        raise UsageError(
            f"{view} is a table of the lake, which queries would take for the view",
            consequence="no view was made",
            remedy=f'query {view} by mirror.sql, or name the view: name="{view}_json"',
            topic=topic,
        )
    relays = _relays(lake, context.config.sources)
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
    _make(lake, view, json_sql(relays, topic, found))
    return lake.spark.table(view)


def _relays(lake: Lake, sources: Iterable[str]) -> dict[str, str]:
    """Return the SQL names of the existing relays; a source that was never landed has none."""
    places = {alias: lake.relay_location(alias) for alias in sources}
    found = {alias: lake.sql_name(location) for alias, location in places.items() if lake.exists(location)}
    if not found:
        raise _missing(RECORDS)
    return found


def _words(query: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w+", query)}


def _named_tables(context: Context, query: str) -> dict[str, str]:
    """Return the locations of the tables that a query may mean by its words.

    Raises:
        UsageError: one does not exist yet, or the name is that of two typed tables.
    """
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
    return typed | relays | {table.name: [lake.meta_location(table)] for table in SIDE_TABLES}


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


def topic_sql(relays: Mapping[str, str], topic: str) -> str:
    """Return the query of one topic's records (see `records_sql`)."""
    return f"SELECT * FROM ({records_sql(relays)}) WHERE topic = {quote(topic)}"  # noqa: S608 - quoted


def json_sql(relays: Mapping[str, str], topic: str, schema: str) -> str:
    """Return the query of one topic's records with typed values (`value.amount`); `schema` is a DDL string.

    `value` is null for tombstones and for values that are not JSON objects; `value_text` distinguishes them.
    """
    text = "value_text"
    return (
        f"SELECT source, {', '.join(f'`{name}`' for name in _PLACE)}, landed_at, key_text AS key,"  # noqa: S608 - quoted
        f" CASE WHEN startswith(ltrim({text}), '{{') AND try_parse_json({text}) IS NOT NULL"
        f" THEN from_json({text}, {quote(schema)}) END AS value, {text}"
        f" FROM ({topic_sql(relays, topic)})"
    )


def json_type(records: DataFrame, *, newest: int) -> DataFrame:
    """Return one row and column `type`: the type of the JSON objects among the values, or null.

    The `newest` objects count; the rows are read once.
    """
    from pyspark.sql import functions as F

    objects = records.where(F.ltrim("value_text").startswith("{"))
    latest = objects.orderBy(F.col("landed_at").desc(), F.col("offset").desc()).limit(newest)
    return latest.agg(F.schema_of_variant_agg(F.try_parse_json("value_text")).alias("type"))


def ddl_of(variant: str) -> str:
    """Convert Spark's type of a variant into a DDL type for `from_json`.

    Decimals become DOUBLE: the narrowest decimal of some records cannot hold a larger later one.

    Example:
        >>> ddl_of("OBJECT<amount: DECIMAL(5,2), note: VOID, tags: ARRAY<STRING>>")
        'STRUCT<amount: DOUBLE, note: STRING, tags: ARRAY<STRING>>'
    """

    def mend(found: re.Match[str]) -> str:
        text = found.group()
        if text.startswith("`"):
            return text
        return {"OBJECT<": "STRUCT<", "VOID": "STRING"}.get(text, "DOUBLE")

    return _TYPE.sub(mend, variant)
