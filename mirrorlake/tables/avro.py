"""Read Avro records of several schema versions into the columns of one table.

The reader schema is the newest writer schema with the fields that older ones had. A record is read with its own writer schema
into it (Avro 1.12, "Schema Resolution"): a field that it lacks gets its default, and numbers are promoted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from mirrorlake.tables.avro_schema import PRIMITIVES, compact, expanded_schema, reader_of, sole_type, type_name
from mirrorlake.tables.codec import NotATable, WriterKey, locate_id
from mirrorlake.tables.json_types import MAX_COLUMNS, TEXT, count_columns
from mirrorlake.tables.kinds import refuse_contradiction

if TYPE_CHECKING:
    from mirrorlake.schemas import Schema

_INSTANT = pa.timestamp("us", "UTC")
# Delta has no time of day; local timestamps are kept as if they were UTC.
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": _INSTANT,
    "timestamp-micros": _INSTANT,
    "local-timestamp-millis": _INSTANT,
    "local-timestamp-micros": _INSTANT,
    "time-millis": TEXT,
    "time-micros": TEXT,
    "uuid": TEXT,
}
_MAX_PRECISION = 38
_PYTHON = {
    bool: ("boolean",),
    int: ("int", "long"),
    float: ("float", "double"),
    str: ("string", "enum"),
    bytes: ("bytes", "fixed"),
    list: ("array",),
    dict: ("map",),
}

_Convert = Callable[[Any], Any]


class AvroCodec:
    locate = staticmethod(locate_id)

    def writer(self, schema: Schema, named: tuple[Any, ...]) -> Any:  # noqa: ARG002  a schema has one type
        found = expanded_schema(schema)
        arrow_type(found)
        return found

    def merge(self, newer: Any, older: Any) -> Any:
        made = reader_of(newer, older)
        whole = arrow_type(made)
        for one in (newer, older):
            refuse_contradiction(arrow_type(one), whole)
        return made

    def state(self, writer: Any) -> Any:
        return writer

    def reader(self, state: Any, writers: Mapping[WriterKey, Any]) -> AvroReader:
        return AvroReader("null" if state is None else state, dict(writers))

    def defaults(self, state: Any) -> Mapping[tuple[str, ...], Any]:
        return defaults_of(state)


def arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of an expanded schema.

    Raises:
        NotATable: it has too many columns.
    """
    found = _arrow_type(kind)
    if count_columns(found) > MAX_COLUMNS:
        raise NotATable(f"its schema has more than {MAX_COLUMNS} columns")
    return found


def _arrow_type(kind: Any) -> pa.DataType:
    if isinstance(kind, list):
        branches = [one for one in kind if one != "null"]
        if len(branches) < 2:
            return _arrow_type(branches[0]) if branches else pa.null()
        return pa.struct([(_branch(one), _arrow_type(one)) for one in branches])
    name = type_name(kind)
    if name == "record":
        return pa.struct([pa.field(one["name"], _arrow_type(one["type"])) for one in kind["fields"]])
    if name == "array":
        return pa.list_(_arrow_type(kind["items"]))
    if name == "map":
        return pa.map_(TEXT, _arrow_type(kind["values"]))
    logical = kind.get("logicalType") if isinstance(kind, dict) else None
    if logical == "decimal" and kind["precision"] <= _MAX_PRECISION:
        return pa.decimal128(kind["precision"], kind.get("scale", 0))
    if logical == "decimal":
        return TEXT
    return _LOGICAL.get(str(logical), PRIMITIVES[name])


def _branch(kind: Any) -> str:
    """Return the column of a union's branch: the name of its type, without a namespace."""
    name = kind.get("name") if isinstance(kind, dict) else None
    return str(name or type_name(kind)).rpartition(".")[2]


def _converter(kind: Any) -> _Convert | None:
    if isinstance(kind, list):
        branches = [one for one in kind if one != "null"]
        return _union_converter(branches) if len(branches) > 1 else _of_one(branches[0]) if branches else None
    name = type_name(kind)
    if name == "record":
        members = {one["name"]: convert for one in kind["fields"] if (convert := _converter(one["type"])) is not None}
        return (lambda value: _members(value, members)) if members else None
    if name == "array":
        return _list_converter(_converter(kind["items"]))
    if name == "map":
        inner = _converter(kind["values"])
        return lambda value: [(key, one if one is None or inner is None else inner(one)) for key, one in value.items()]
    is_logical = isinstance(kind, dict) and "logicalType" in kind
    return str if is_logical and _arrow_type(kind) == TEXT else None


def _list_converter(inner: _Convert | None) -> _Convert | None:
    return None if inner is None else lambda value: [None if one is None else inner(one) for one in value]


def _of_one(kind: Any) -> _Convert:
    inner = _converter(kind)

    def convert(value: Any) -> Any:
        # fastavro tells the name of a record that stands in a union.
        value = value[1] if isinstance(value, tuple) else value
        return value if inner is None else inner(value)

    return convert


def _members(value: dict[str, Any], members: Mapping[str, _Convert]) -> dict[str, Any]:
    for name, convert in members.items():
        if (member := value.get(name)) is not None:
            value[name] = convert(member)
    return value


def _union_converter(branches: list[Any]) -> _Convert:
    by_name = {_branch(one): _converter(one) for one in branches}
    full = {str(one["name"]): _branch(one) for one in branches if isinstance(one, dict) and "name" in one}
    by_type = {type_name(one): _branch(one) for one in branches}
    by_logical = {
        one["logicalType"]: _branch(one) for one in branches if isinstance(one, dict) and "logicalType" in one
    }

    def convert(value: Any) -> Any:
        if isinstance(value, tuple):
            name, value = full[value[0]], value[1]
        else:
            name = _branch_of(value, by_type, by_logical)
        inner = by_name[name]
        return {name: value if inner is None else inner(value)}

    return convert


def _branch_of(value: Any, by_type: Mapping[str, str], by_logical: Mapping[str, str]) -> str:
    for names in _PYTHON.get(type(value), ()), _LOGICAL_PYTHON.get(type(value), ()):
        for name in names:
            if name in by_type or name in by_logical:
                return by_logical.get(name) or by_type[name]
    return next(iter(by_type.values()))


_LOGICAL_PYTHON = {
    Decimal: ("decimal",),
    datetime: tuple(name for name in _LOGICAL if "timestamp" in name),
    time: ("time-millis", "time-micros"),
    UUID: ("uuid",),
}


@dataclass(frozen=True)
class AvroReader:
    """Read payloads of known writer schemas into one reader schema; picklable for Spark's workers."""

    reader: Any
    writers: Mapping[WriterKey, Any] = field(default_factory=dict)

    @cached_property
    def kind(self) -> pa.DataType:
        return arrow_type(self.reader)

    @cached_property
    def _compact(self) -> Any:
        from fastavro import parse_schema

        parsed = parse_schema(compact(self.reader))
        # fastavro gives a missing field its default as JSON has it: bytes as text, times as numbers.
        for kind in (parsed, *parsed.get("__named_schemas", {}).values()) if isinstance(parsed, dict) else ():
            _decode_defaults(kind)
        return parsed

    @cached_property
    def _writers(self) -> dict[WriterKey, Any]:
        from fastavro import parse_schema

        return {key: parse_schema(compact(writer)) for key, writer in self.writers.items()}

    @cached_property
    def _convert(self) -> _Convert | None:
        return _converter(self.reader)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroReader, (self.reader, self.writers)

    def read(self, writer: WriterKey, payload: bytes) -> Any:
        """Return a payload as `pyarrow.array` takes it; one that does not resolve to the reader schema is a ValueError."""
        from fastavro import schemaless_reader

        stream = io.BytesIO(payload)
        try:
            value = schemaless_reader(stream, self._writers[writer], self._compact, return_record_name=True)
        except Exception as error:
            raise ValueError(f"is not of its schema {writer[1]}: {_kind(error)}") from None
        if stream.read(1):
            raise ValueError(f"is not of its schema {writer[1]}: bytes are left over")
        value = value[1] if isinstance(value, tuple) else value
        return value if self._convert is None or value is None else self._convert(value)


def _decode_defaults(kind: Any) -> None:
    if isinstance(kind, list):
        for one in kind:
            _decode_defaults(one)
    elif isinstance(kind, dict):
        for one in kind.get("fields", ()):
            _decode_defaults(one["type"])
            if "default" in one:
                one["default"] = _decoded_default(one["type"], one["default"])
        for part in ("items", "values", "type"):
            _decode_defaults(kind.get(part))


def _decoded_default(kind: Any, default: Any) -> Any:
    """Return a field's default as a reader returns it; that of a union is of its first type."""
    from fastavro import json_reader

    branch = kind[0] if isinstance(kind, list) else kind
    if not isinstance(default, str | int) or isinstance(default, bool) or not _needs_decoding(branch):
        return default
    return next(iter(json_reader(io.StringIO(json.dumps(default)), branch)))


def _needs_decoding(kind: Any) -> bool:
    return type_name(kind) in ("bytes", "fixed") or (isinstance(kind, dict) and "logicalType" in kind)


def _kind(error: Exception) -> str:
    return "it ends too soon" if isinstance(error, EOFError | IndexError) else type(error).__name__


def defaults_of(kind: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the defaults of a record's fields that are not null, by path through records, as Arrow takes them."""
    record = sole_type(kind)
    if type_name(record) != "record":
        return {}
    fields = [one for one in record["fields"] if one.get("default") is not None]
    empty = ("", 0)
    values = (
        AvroReader({**record, "fields": fields}, {empty: {**record, "fields": []}}).read(empty, b"") if fields else {}
    )
    found = {(*path, name): value for name, value in values.items()}
    for one in record["fields"]:
        found |= defaults_of(one["type"], (*path, one["name"]))
    return found
