"""Views for SQL: all relays as one, and a topic whose values are JSON with its members as columns.

They are SQL texts rather than DataFrames: a view of a DataFrame keeps showing the table as it was when the view was
created, while a view of a text reads the table each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.lake.lake import quote

# The view over all relays.
RECORDS = "records"

_PLACE = ("topic", "generation", "partition", "offset", "timestamp", "timestamp_type")
_BYTES = ("key", "value")
_TYPE = re.compile(r"`(?:[^`]|``)*`|OBJECT<|DECIMAL\(\d+,\s*\d+\)|\bVOID\b")


def records_sql(relays: Mapping[str, str]) -> str:
    """Write the query of all relays (by alias, as SQL names them), with `source`, `key_text` and `value_text`.

    The two texts are null where the bytes are null or not UTF-8.

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
    """Write the query of one topic's records (see `records_sql`)."""
    return f"SELECT * FROM ({records_sql(relays)}) WHERE topic = {quote(topic)}"  # noqa: S608 - quoted


def json_sql(relays: Mapping[str, str], topic: str, schema: str) -> str:
    """Write the query of one topic's records with the members of their values: `value.amount`; `schema` is a DDL string.

    `value` is null for tombstones and for what is not a JSON object; `value_text` tells them apart.
    """
    text = "value_text"
    return (
        f"SELECT source, {', '.join(f'`{name}`' for name in _PLACE)}, landed_at, key_text AS key,"  # noqa: S608 - quoted
        f" CASE WHEN startswith(ltrim({text}), '{{') AND try_parse_json({text}) IS NOT NULL"
        f" THEN from_json({text}, {quote(schema)}) END AS value, {text}"
        f" FROM ({topic_sql(relays, topic)})"
    )


def json_type(records: DataFrame, *, newest: int) -> DataFrame:
    """Return one row and column `type`: the type of the newest JSON objects among the values; null where there is none.

    `newest` records are looked at; the rows are read once.
    """
    objects = records.where(F.ltrim("value_text").startswith("{"))
    latest = objects.orderBy(F.col("landed_at").desc(), F.col("offset").desc()).limit(newest)
    return latest.agg(F.schema_of_variant_agg(F.try_parse_json("value_text")).alias("type"))


def ddl_of(variant: str) -> str:
    """Convert a type as Spark reports it for variants into one that `from_json` takes.

    Numbers with a fraction become DOUBLE: the narrowest decimal of some records would lose the next larger one.

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
    """Return a topic's name as SQL takes it without quotes.

    Example:
        >>> view_name("payments.card-eu")
        'payments_card_eu'
    """
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[0].isdigit() else name
