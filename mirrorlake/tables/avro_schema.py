"""Avro schemas as JSON documents: with each type where it is used, merged over versions, and as readers want them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.tables.codec import NotATable
from mirrorlake.tables.json_types import TEXT

if TYPE_CHECKING:
    from mirrorlake.schemas import Schema

PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": TEXT,
    "enum": TEXT,
    "fixed": pa.binary(),
}
_NUMBERS = ("int", "long", "float", "double")


def expanded_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema in which each type stands where it is used.

    Raises:
        NotATable: it is no Avro schema of a record, or a type contains itself.
    """
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    names: dict[str, Any] = {}
    try:
        for reference in schema.all_references():
            parse_schema(json.loads(reference.schema.text), named_schemas=names)
        found = parse_schema(json.loads(schema.text), named_schemas=names, expand=True)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
        raise NotATable(f"its schema is not Avro: {type(error).__name__}") from None
    _refuse_recursion(found, ())
    made: dict[str, Any] = _plain(found)
    return made


def _plain(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {key: _plain(value) for key, value in kind.items() if not key.startswith("__")}
    return [_plain(one) for one in kind] if isinstance(kind, list) else kind


def _refuse_recursion(kind: Any, above: tuple[str, ...]) -> None:
    if isinstance(kind, list):
        for one in kind:
            _refuse_recursion(one, above)
    elif isinstance(kind, dict):
        name = str(kind.get("name", ""))
        inner = (*above, name) if kind.get("type") == "record" else above
        for part in ("items", "values"):
            if part in kind:
                _refuse_recursion(kind[part], inner)
        for one in kind.get("fields", ()):
            _refuse_recursion(one["type"], inner)
        if isinstance(kind.get("type"), dict | list):
            _refuse_recursion(kind["type"], inner)
    elif kind not in PRIMITIVES:
        raise NotATable(f"the type {kind} contains itself, and a table has no such column")


def reader_of(newest: Any, older: Any) -> Any:
    """Return the reader schema of two: the newest, with what only the older one has, all of which may be null."""
    new, old = sole_type(newest), sole_type(older)
    made = _merged(new, old)
    return made if new is newest and old is older else _nullable(made)


def sole_type(kind: Any) -> Any:
    """Return the one type of a union beside null, else the type itself."""
    others = [one for one in kind if one != "null"] if isinstance(kind, list) else []
    return others[0] if len(others) == 1 else kind


def type_name(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, dict) else "union" if isinstance(kind, list) else kind)


def _nullable(kind: Any) -> Any:
    if kind == "null":
        return kind
    branches = kind if isinstance(kind, list) else [kind]
    return ["null", *(one for one in branches if one != "null")]


def _merged(new: Any, old: Any) -> Any:
    names = type_name(new), type_name(old)
    if names == ("record", "record"):
        return {**new, "fields": _merged_fields(new["fields"], old["fields"])}
    for container, part in (("array", "items"), ("map", "values")):
        if names == (container, container):
            return {**new, part: reader_of(new[part], old[part])}
    if all(name in _NUMBERS for name in names) and not any(
        isinstance(kind, dict) and "logicalType" in kind for kind in (new, old)
    ):
        return max(names, key=_NUMBERS.index)
    return new


def _merged_fields(new: list[Any], old: list[Any]) -> list[Any]:
    known = {one["name"]: one for one in old}
    fields, found = [], set()
    for one in new:
        names = [one["name"], *one.get("aliases", ())]
        before = next((known[name] for name in names if name in known), None)
        if before is not None:
            found.add(before["name"])
            fields.append({**one, "type": reader_of(one["type"], before["type"])})
        elif "default" in one:
            fields.append(one)
        else:
            fields.append({**one, "type": _nullable(one["type"]), "default": None})
    gone = [one for one in old if one["name"] not in found and one["name"] not in {field["name"] for field in fields}]
    return [*fields, *({**one, "type": _nullable(one["type"]), "default": None} for one in gone)]


def compact(kind: Any) -> Any:
    """Return an expanded schema in which a type stands once, and later uses have its name, as readers want it.

    A type that differs from the first of its name gets another name, and the first as an alias.
    """
    return _compact(kind, {})


def _compact(kind: Any, known: dict[str, Any]) -> Any:
    if isinstance(kind, list):
        return [_compact(one, known) for one in kind]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] in ("record", "enum", "fixed"):
        name = kind["name"]
        number = 2
        while name in known and known[name] != kind:
            name, number = f"{kind['name']}_{number}", number + 1
        if name in known:
            return name
        known[name] = kind
        renamed = {} if name == kind["name"] else {"name": name, "aliases": [kind["name"]]}
        if kind["type"] != "record":
            return {**kind, **renamed}
        return {**kind, **renamed, "fields": [{**one, "type": _compact(one["type"], known)} for one in kind["fields"]]}
    parts = {part: _compact(kind[part], known) for part in ("items", "values") if part in kind}
    return {**kind, **parts}
