"""Avro records, each read with the schema that it was written with.

There is no reader's schema, so no defaults and no aliases: a member that a writer's schema lacks is missing in its values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import MAX_PREC, Context, Decimal
from functools import reduce
from typing import Any
from uuid import UUID

from mirrorlake.tables.kinds import MAX_COLUMNS, Kind, count_columns, merged
from mirrorlake.tables.registry import FRAME_BYTES, NotATable, Schema, parse_schema_id

_KINDS: dict[str, Kind] = {name: name for name in ("null", "boolean", "int", "long", "double")}
_KINDS |= {"float": "double", "bytes": "binary", "fixed": "binary", "string": "text", "enum": "text"}
_MAX_PRECISION = 38
_OURS = "mirrorlake-"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EXACT = Context(prec=MAX_PREC)


def _time(micros: int, *_: Any) -> str:
    if not 0 <= micros < 86_400_000_000:
        raise ValueError
    return _timestamp(micros).time().isoformat()


def _timestamp(micros: int, *_: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _decimal(data: bytes, given: Mapping[str, Any], *_: Any) -> Decimal | str:
    """Return a decimal, or its text if no column has its digits; fastavro would round off digits that its type has not."""
    unscaled, precision = int.from_bytes(data, "big", signed=True), given["precision"]
    if abs(unscaled) >= 10**precision:
        raise ValueError
    value = Decimal(unscaled).scaleb(-(given.get("scale") or 0), _EXACT)
    return value if precision <= _MAX_PRECISION else f"{value:f}"


# The kinds of logical types, local ones as if UTC, and the readers that fastavro calls with a value and the type that it was
# written with. A uuid in a string is its text as it came, and no column of times has the digits of `timestamp-nanos`.
_LOGICAL: dict[str, tuple[Kind, Callable[..., Any]]] = {
    "int-date": ("date", lambda days, *_: (_EPOCH + timedelta(days)).date()),
    "int-time-millis": ("text", lambda millis, *_: _time(1_000 * millis)),
    "long-time-micros": ("text", _time),
    "long-timestamp-millis": ("timestamp", lambda millis, *_: _timestamp(1_000 * millis)),
    "long-timestamp-micros": ("timestamp", _timestamp),
    "long-local-timestamp-millis": ("timestamp", lambda millis, *_: _timestamp(1_000 * millis)),
    "long-local-timestamp-micros": ("timestamp", _timestamp),
    "fixed-uuid": ("text", lambda data, *_: str(UUID(bytes=data))),
    **dict.fromkeys(("bytes-decimal", "fixed-decimal"), ("decimal", _decimal)),
}


def locate(payload: bytes) -> tuple[tuple[int], int] | None:
    schema_id = parse_schema_id(payload)
    return None if schema_id is None else ((schema_id,), FRAME_BYTES)


def compiled(schema: Schema, named: tuple[Any, ...]) -> tuple[Kind, Any]:  # noqa: ARG001  a schema has one type
    """Return the kind of a schema's values, and what `parser` takes."""
    from fastavro import parse_schema

    types = _Types()
    try:
        for text in schema.references.values():
            parse_schema(_document(text), types.named)
        # The bytes of a record are those of its fields, and of records alone fastavro remembers the types that they refer to.
        value = {"name": "value", "type": _document(schema.text)}
        parsed = parse_schema({"type": "record", "name": _OURS, "fields": [value]}, types.named)
        kind = types.kind(parsed["fields"][0]["type"])
    except NotATable:
        raise
    except Exception as error:
        raise NotATable(f"its schema is not Avro: {type(error).__name__}") from None
    return kind, parsed


def _document(text: str) -> Any:
    # A reader without a schema of its own needs no defaults; a wrong one is no reason to refuse a schema.
    notes = {"doc", "default", "aliases"}
    return json.loads(text, object_hook=lambda given: {name: given[name] for name in given if name not in notes})


class _Types:
    """Types that fastavro parsed, `named` those that have a name."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        # None as long as a record's own fields are read.
        self._records: dict[str, Kind | None] = {}

    def kind(self, given: Any) -> Kind:
        """Return the kind of a type's values, and have them made by our readers."""
        match given:
            case list():
                return reduce(merged, [self.kind(branch) for branch in given])
            case str():
                return _KINDS[given] if given in _KINDS else self.kind(self.named[given])
            case {"type": "map", "values": values}:
                return {"map": self.kind(values)}
            case {"type": "array", "items": items}:
                kind = self.kind(items)
                if _is_empty(kind):
                    raise NotATable("its schema has a list of values without bytes, which is as long as a payload says")
                return {"list": kind}
            case {"type": "record" | "error", "name": name}:
                if name not in self._records:
                    self._records[name] = None
                    kind = {"members": {field["name"]: self.kind(field["type"]) for field in given["fields"]}}
                    # Counted in each: of records that hold others several times the last one would never be counted.
                    if count_columns(kind) > MAX_COLUMNS:
                        raise NotATable(f"its schema has more than {MAX_COLUMNS} columns")
                    self._records[name] = kind
                if (record := self._records[name]) is None:
                    raise NotATable(f"the type {name} contains itself, and a table has no such column")
                return record
        return _scalar(given)


def _scalar(given: Any) -> Kind:
    # A fixed type is met again where another place has its name.
    logical, precision = str(given.get("logicalType")).removeprefix(_OURS), given.get("precision")
    kind, _ = _LOGICAL.get(f"{given['type']}-{logical}", (None, None))
    if kind is None or (kind == "decimal" and not precision):
        given.pop("logicalType", None)
        return _KINDS[given["type"]]
    given["logicalType"] = _OURS + logical
    if kind == "decimal":
        return f"decimal({precision},{given.get('scale') or 0})" if precision <= _MAX_PRECISION else "text"
    return kind


def _is_empty(kind: Kind) -> bool:
    """Return whether no value of a kind takes a byte."""
    members = kind.get("members") if isinstance(kind, dict) else None
    return kind == "null" if members is None else all(map(_is_empty, members.values()))


def parser(made: Any) -> Callable[[bytes], Any]:
    from fastavro import schemaless_reader
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update({name.replace("-", f"-{_OURS}", 1): reader for name, (_, reader) in _LOGICAL.items()})

    def parse(body: bytes) -> Any:
        stream = io.BytesIO(body)
        try:
            value = schemaless_reader(stream, made, None)["value"]
        except (EOFError, IndexError):
            raise ValueError("it ends too soon") from None
        except UnicodeDecodeError:
            raise ValueError("a text in it is not UTF-8") from None
        except Exception:
            raise ValueError("a time or a number in it is out of range") from None
        if stream.read(1):
            raise ValueError("bytes are left over")
        return value

    return parse
