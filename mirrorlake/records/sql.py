"""Query the lake with SQL: relays, all records and side tables by name, and typed views of topics with JSON values.

Views are SQL texts rather than DataFrames: a view of a DataFrame shows the table of the moment when it was created, a view
of a text reads the table each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mirrorlake.errors import UsageError
from mirrorlake.lake import SIDE_TABLES, Lake, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The view over all relays.
RECORDS = "records"

_PLACE = ("topic", "generation", "partition", "offset", "timestamp", "timestamp_type")
_BYTES = ("key", "value")
_TYPE = re.compile(r"`(?:[^`]|``)*`|OBJECT<|DECIMAL\(\d+,\s*\d+\)|\bVOID\b")


def run_sql(lake: Lake, sources: Iterable[str], query: str, values: Mapping[str, Any]) -> DataFrame:
    """Run a query with the tables of the lake by name (see `Mirror.sql`).

    The session gets temporary views for the names in the query.

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
    """Create a typed view of one topic and return it (see `Mirror.json_view`).

    Raises:
        UsageError: no record of the topic has a JSON object, and no schema is given.
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
    """Return the SQL names of the existing relays; a source that was never landed has none."""
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


def view_name(topic: str) -> str:
    """Return a topic's name as an SQL identifier without quotes.

    Example:
        >>> view_name("payments.card-eu")
        'payments_card_eu'
    """
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[0].isdigit() else name
