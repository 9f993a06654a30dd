"""Read JSON documents that name a JSON Schema of a registry into the columns of one table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from mirrorlake.tables.codec import NotATable, WriterKey, locate_id
from mirrorlake.tables.json_types import TEXT, Misfit, conformed, from_text, to_text
from mirrorlake.tables.kinds import merged_kind

if TYPE_CHECKING:
    from mirrorlake.schemas import Schema

_SCALARS = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "null": pa.null()}
_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
_MAX_DEPTH = 32


class JsonSchemaCodec:
    """JSON Schema: the state is an Arrow type as text."""

    locate = staticmethod(locate_id)

    def writer(self, schema: Schema, named: tuple[Any, ...]) -> Any:  # noqa: ARG002  a schema has one type
        try:
            document = json.loads(schema.text)
            others = {one.name: json.loads(one.schema.text) for one in schema.all_references()}
        except ValueError:
            raise NotATable("its schema is not JSON") from None
        found = _type_of(document, _Document(document, others), 0)
        return {"kind": to_text(merged_kind(found, found))}

    def state(self, writer: Any) -> Any:
        return writer

    def merge(self, newer: Any, older: Any) -> Any:
        kind = merged_kind(from_text(newer["kind"]), from_text(older["kind"]), otherwise=TEXT)
        return {"kind": to_text(kind)}

    def reader(self, state: Any, writers: Mapping[WriterKey, Any]) -> JsonSchemaReader:
        return JsonSchemaReader(pa.null() if state is None else from_text(state["kind"]), dict(writers))

    def defaults(self, state: Any) -> Mapping[tuple[str, ...], Any]:  # noqa: ARG002
        """Return none: `default` of JSON Schema is a note for people."""
        return {}


@dataclass(frozen=True)
class JsonSchemaReader:
    """Read documents into one type; members that it lacks are left out."""

    kind: pa.DataType
    writers: Mapping[WriterKey, Any] = field(default_factory=dict)

    @cached_property
    def _decode(self) -> Any:
        return msgspec.json.Decoder(float_hook=Decimal if "decimal" in str(self.kind) else None).decode

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonSchemaReader, (self.kind, self.writers)

    def read(self, writer: WriterKey, payload: bytes) -> Any:
        """Return a document as `pyarrow.array` takes it; a ValueError if it is no JSON, or the type does not take it."""
        try:
            return conformed(self._decode(payload), self.kind, drops=True)
        except Misfit as misfit:
            raise ValueError(f"is not of its schema {writer[1]}: {misfit}") from None
        except (msgspec.DecodeError, RecursionError):
            raise ValueError("is not JSON after its registry's frame") from None


@dataclass(frozen=True)
class _Document:
    root: Any
    others: Mapping[str, Any]

    def resolve(self, reference: str) -> tuple[Any, _Document]:
        """Return the schema that a `$ref` names, and the document that it stands in."""
        name, _, pointer = reference.partition("#")
        home = self
        if name:
            if name not in self.others:
                raise NotATable("its schema refers to a schema that the registry does not name")
            home = _Document(self.others[name], self.others)
        found = home.root
        for part in filter(None, pointer.split("/")):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
            if found is None:
                raise NotATable("its schema refers to a place that it does not have")
        return found, home


def _type_of(schema: Any, document: _Document, depth: int) -> pa.DataType:
    """Return the type of a schema's documents; what no column fits is JSON text."""
    if depth > _MAX_DEPTH:
        raise NotATable(f"its schema contains itself, or is nested more than {_MAX_DEPTH} deep")
    if not isinstance(schema, dict):
        return TEXT
    if "$ref" in schema:
        found, home = document.resolve(str(schema["$ref"]))
        return _type_of(found, home, depth + 1)
    for several in ("oneOf", "anyOf"):
        others = [one for one in schema.get(several, ()) if not (isinstance(one, dict) and one.get("type") == "null")]
        if several in schema:
            # A choice beside null is the type that may be null.
            return _type_of(others[0], document, depth + 1) if len(others) == 1 else TEXT
    parts = [_type_of(one, document, depth + 1) for one in schema.get("allOf", ())]
    kind = _own_type(schema, document, depth)
    for part in parts:
        kind = part if kind is None else merged_kind(kind, part)
    return TEXT if kind is None else kind


def _own_type(schema: dict[str, Any], document: _Document, depth: int) -> pa.DataType | None:
    given = schema.get("type", "object" if "properties" in schema else None)
    names = [name for name in (given if isinstance(given, list) else [given]) if name not in ("null", None)]
    if set(names) == {"integer", "number"}:
        return pa.float64()
    if len(names) != 1:
        return TEXT if names else None
    [name] = names
    if name == "object":
        return _object_type(schema, document, depth)
    if name == "array":
        return pa.list_(_type_of(schema.get("items", True), document, depth + 1))
    if name == "string":
        return _FORMATS.get(schema.get("format", ""), TEXT)
    return _SCALARS.get(name, TEXT)


def _object_type(schema: dict[str, Any], document: _Document, depth: int) -> pa.DataType:
    members = schema.get("properties", {})
    if members:
        return pa.struct([(name, _type_of(one, document, depth + 1)) for name, one in members.items()])
    values = schema.get("additionalProperties")
    return pa.map_(TEXT, _type_of(values, document, depth + 1)) if isinstance(values, dict) else TEXT
