"""Avro records, each read with the schema that it was written with.

There is no reader's schema, so no defaults and no aliases: a member that a writer's schema lacks is missing in its values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import MAX_PREC, Context, Decimal
from typing import Any
from uuid import UUID

from mirrorlake.tables.kinds import MAX_COLUMNS, Kind, count_columns, merged
from mirrorlake.tables.registry import FRAME_BYTES, NotATable, Schema, parse_schema_id

# Kinds of types, and the logical types by which fastavro makes their values; `mirrorlake-` ones are below.
_KINDS: dict[str, tuple[Kind, str | None]] = {
    "null": ("null", None),
    "boolean": ("boolean", None),
    "int": ("int", None),
    "int-date": ("date", "date"),
    "int-time-millis": ("text", "mirrorlake-time"),
    # No column of times has the digits of `timestamp-nanos`.
    "long": ("long", None),
    "long-time-micros": ("text", "mirrorlake-time"),
    "long-timestamp-millis": ("timestamp", "timestamp-millis"),
    "long-timestamp-micros": ("timestamp", "timestamp-micros"),
    "long-local-timestamp-millis": ("timestamp", "timestamp-millis"),
    "long-local-timestamp-micros": ("timestamp", "timestamp-micros"),
    "float": ("double", None),
    "double": ("double", None),
    "bytes": ("binary", None),
    "fixed": ("binary", None),
    "fixed-uuid": ("text", "mirrorlake-uuid"),
    # A uuid is its text as it came.
    "string": ("text", None),
}
_MAX_PRECISION = 38
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EXACT = Context(prec=MAX_PREC)
# Nothing that a reader without a schema of its own needs; a wrong default is no reason to refuse a schema.
_NOTES = {"doc", "default", "aliases"}


def locate(payload: bytes) -> tuple[tuple[int], int] | None:
    schema_id = parse_schema_id(payload)
    return None if schema_id is None else ((schema_id,), FRAME_BYTES)


def compiled(schema: Schema, named: tuple[Any, ...]) -> tuple[Kind, Any]:  # noqa: ARG001  a schema has one type
    """Return the kind of a schema's values, and the schema that `parser` takes."""
    from fastavro import parse_schema

    types: dict[str, Any] = {}
    try:
        for reference in schema.all_references():
            parse_schema(_document(reference.schema.text), types)
        return _Types(types).read(parse_schema(_document(schema.text), types))
    except NotATable:
        raise
    except Exception as error:
        raise NotATable(f"its schema is not Avro: {type(error).__name__}") from None


def _document(text: str) -> Any:
    return json.loads(text, object_hook=lambda given: {name: given[name] for name in given if name not in _NOTES})


class _Types:
    """The named types of schemas that fastavro parsed. Each is defined where it is met first, so a schema has all that it needs."""

    def __init__(self, parsed: Mapping[str, Any]) -> None:
        self._parsed = parsed
        # The kind of a type and a short name; None as long as its own fields are read.
        self._met: dict[str, tuple[Kind, str] | None] = {}

    def read(self, given: Any) -> tuple[Kind, Any]:
        """Return the kind of a type, and the type that its values are read with."""
        kind: Kind = "null"
        if isinstance(given, list):
            branches = []
            for one in given:
                inner, branch = self.read(one)
                kind = merged(kind, inner)
                branches.append(branch)
            return kind, branches
        if isinstance(given, str):
            return self._named(self._parsed[given]) if given not in _KINDS else (_KINDS[given][0], given)
        name = given["type"]
        if name == "map":
            kind, values = self.read(given["values"])
            return {"map": kind}, {"type": "map", "values": values}
        if name == "array":
            kind, items = self.read(given["items"])
            if kind in ("null", {"members": {}}):
                raise NotATable("its schema has a list of values without bytes, which is as long as a payload says")
            return {"list": kind}, {"type": "array", "items": items}
        return self._named(given) if name in ("record", "error", "enum", "fixed") else _scalar(given)

    def _named(self, given: Any) -> tuple[Kind, Any]:
        name = given["name"]
        if name in self._met:
            known = self._met[name]
            if known is None:
                raise NotATable(f"the type {name} contains itself, and a table has no such column")
            return known
        self._met[name] = None
        short = f"t{len(self._met)}"
        kind: Kind = "text"
        if given["type"] == "enum":
            made = {"type": "enum", "symbols": given["symbols"]}
        elif given["type"] == "fixed":
            kind, made = _scalar(given)
        else:
            members = [(one["name"], *self.read(one["type"])) for one in given["fields"]]
            kind = {"members": {member: inner for member, inner, _ in members}}
            made = {"type": "record", "fields": [{"name": member, "type": one} for member, _, one in members]}
            # Counted in each record: of records that hold others several times the last one would never be counted.
            if count_columns(kind) > MAX_COLUMNS:
                raise NotATable(f"its schema has more than {MAX_COLUMNS} columns")
        self._met[name] = kind, short
        return kind, {**made, "name": short}


def _scalar(given: Mapping[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """Return the kind and the type of a primitive or fixed one; a logical type that Avro does not know for it is left out."""
    name, precision, scale = given["type"], given.get("precision") or 0, given.get("scale") or 0
    logical = given.get("logicalType")
    made = {"type": name, "size": given["size"]} if name == "fixed" else {"type": name}
    if logical == "decimal" and name in ("bytes", "fixed") and precision:
        kind = f"decimal({precision},{scale})" if precision <= _MAX_PRECISION else "text"
        made |= {"logicalType": f"mirrorlake-{kind.partition('(')[0]}", "precision": precision, "scale": scale}
        return kind, made
    plain, reads = _KINDS.get(f"{name}-{logical}", _KINDS[name])
    return plain, made | ({"logicalType": reads} if reads else {})


def is_plain(made: Any) -> bool:
    """Return whether each place has values of one type; those of several are cast to what holds all of them."""
    if isinstance(made, list):
        return sum(one != "null" for one in made) < 2 and all(map(is_plain, made))
    if not isinstance(made, dict):
        return True
    inner = [one["type"] for one in made.get("fields", ())]
    return all(map(is_plain, [*inner, *(made[part] for part in ("items", "values") if part in made)]))


def parser(made: Any) -> Callable[[bytes], Any]:
    from fastavro import parse_schema, schemaless_reader
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update(_READERS)
    schema = parse_schema(made)

    def parse(body: bytes) -> Any:
        stream = io.BytesIO(body)
        try:
            value = schemaless_reader(stream, schema, None)
        except Exception as error:
            raise ValueError(_reason(error)) from None
        if stream.read(1):
            raise ValueError("bytes are left over")
        return value

    return parse


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError | IndexError):
        return "it ends too soon"
    if isinstance(error, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    return "a time or a number in it is out of range"


# fastavro calls these with a value, the type that it was written with, and a reader's.


def _time(micros: int, *_: Any) -> str:
    if not 0 <= micros < 86_400_000_000:
        raise ValueError
    return (_EPOCH + timedelta(microseconds=micros)).time().isoformat()


def _decimal(data: bytes, given: Mapping[str, Any], *_: Any) -> Decimal:
    """Return a decimal; of one with more digits than its type has, fastavro would round some away."""
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10 ** given["precision"]:
        raise ValueError
    return Decimal(unscaled).scaleb(-given["scale"], _EXACT)


_READERS: dict[str, Callable[..., Any]] = {
    "int-mirrorlake-time": lambda millis, *_: _time(1_000 * millis),
    "long-mirrorlake-time": _time,
    "fixed-mirrorlake-uuid": lambda data, *_: str(UUID(bytes=data)),
    **dict.fromkeys(("bytes-mirrorlake-decimal", "fixed-mirrorlake-decimal"), _decimal),
    **dict.fromkeys(("bytes-mirrorlake-text", "fixed-mirrorlake-text"), lambda *read: f"{_decimal(*read):f}"),
}
