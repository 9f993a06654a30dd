"""Protobuf messages, each read with the schema that it was written with, by Google's own runtime.

A field without presence that a message lacks is its zero, one with presence is null.
"""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import timezone
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

from mirrorlake.tables.kinds import MAX_COLUMNS, Kind, count_columns, text_of
from mirrorlake.tables.registry import FRAME_BYTES, NotATable, Schema, parse_schema_id

# By FieldDescriptor.cpp_type; bytes have that of text.
_SCALARS: dict[int, Kind] = {1: "int", 2: "long", 3: "int", 4: "decimal(20,0)"}
_SCALARS |= {5: "double", 6: "double", 7: "boolean", 9: "text"}
_GOOGLE = "google.protobuf."
_AS_JSON = {_GOOGLE + name for name in ("Struct", "Value", "ListValue", "Any", "Duration", "FieldMask")}
# No reference of a schema has this name.
_MAIN = "mirrorlake/main.proto"

_Reading = tuple[Kind, Callable[[Any], Any]]
"""A kind, and what makes its values of those of the runtime."""


def locate(payload: bytes) -> tuple[tuple[Any, ...], int] | None:
    """Return the schema's id with a path of message indexes, and where the message begins.

    The path leads from the messages of a file to a nested one; the single byte 0 is that of the first message.
    """
    schema_id = parse_schema_id(payload)
    count, position = _varint(payload, FRAME_BYTES)
    if schema_id is None or count < 0:
        return None
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        if index < 0:
            return None
        indexes.append(index)
    return (schema_id, tuple(indexes) or (0,)), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint, -1 if there is none of at most five bytes, and the position after it."""
    value = 0
    for shift, byte in enumerate(data[position : position + 5]):
        value |= (byte & 0x7F) << (7 * shift)
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position + shift + 1
    return -1, position


def compiled(schema: Schema, named: tuple[Any, ...]) -> tuple[Kind, Any]:
    """Return the kind of a message, and the files that describe it with its indexes, which `parser` takes."""
    made = _files(schema), named[1]
    return _message(_descriptor(*made), {})[0], made


def _files(schema: Schema) -> bytes:
    """Return a schema with all that it needs as a `FileDescriptorSet`.

    A text is that of a `.proto` file, or a `FileDescriptorProto` in base64, as confluent-kafka registers it.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        texts, described, out = (Path(folder).resolve() / name for name in ("texts", "described", "out"))
        descriptors = FileDescriptorSet()
        for name, text in {**schema.references, _MAIN: schema.text}.items():
            path = (texts / name).resolve()
            if texts not in path.parents:
                raise NotATable("its schema has a reference outside of its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = FileDescriptorProto.FromString(b64decode(text, validate=True))
            except (ValueError, DecodeError):
                path.write_text(text, encoding="utf-8")
            else:
                descriptor.name = name
                descriptors.file.append(descriptor)
        described.write_bytes(descriptors.SerializeToString())
        paths = [f"-I{texts}", f"-I{Path(protoc.__file__).parent / '_proto'}", f"--descriptor_set_in={described}"]
        if protoc.main(["protoc", *paths, f"--descriptor_set_out={out}", "--include_imports", _MAIN]) != 0:
            raise NotATable("its schema is not Protobuf: protoc refuses it")
        return out.read_bytes()


def _descriptor(files: bytes, indexes: Iterable[int]) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    message, messages = None, [*pool.FindFileByName(_MAIN).message_types_by_name.values()]
    for index in indexes:
        if index >= len(messages):
            raise NotATable("its schema has no message of the indexes that the record names")
        message = messages[index]
        messages = message.nested_types
    return message


def _message(message: Any, met: dict[str, _Reading | None]) -> _Reading:
    """Return the reading of a message; in `met` it is None as long as its own fields are read."""
    name = message.full_name
    if name not in met:
        met[name] = None
        fields = {field.name: _field(field, met) for field in message.fields}
        kind: Kind = {"members": {field: inner for field, (inner, _) in fields.items()}}
        # Counted in each message: of messages that hold others several times the last one would never be counted.
        if count_columns(kind) > MAX_COLUMNS:
            raise NotATable(f"its schema has more than {MAX_COLUMNS} columns")
        met[name] = kind, lambda value: {field: convert(value) for field, (_, convert) in fields.items()}
    if (reading := met[name]) is None:
        raise NotATable(f"the type {name} contains itself, and a table has no such column")
    return reading


def _field(field: Any, met: dict[str, _Reading | None]) -> _Reading:
    """Return the reading of a field, of the message that has it."""
    get, message = attrgetter(field.name), field.message_type
    if message is not None and message.GetOptions().map_entry:
        kind, convert = _value(message.fields_by_name["value"], met)
        # The runtime has no order of keys that two processes share.
        return {"map": kind}, lambda of: {text_of(key): convert(value) for key, value in sorted(get(of).items())}
    kind, convert = _value(field, met)
    if field.is_repeated if hasattr(field, "is_repeated") else field.label == 3:
        return {"list": kind}, lambda of: [*map(convert, get(of))]
    if field.has_presence:
        return kind, lambda of: convert(get(of)) if of.HasField(field.name) else None
    return kind, get if convert is _same else lambda of: convert(get(of))


def _same(value: Any) -> Any:
    return value


def _value(field: Any, met: dict[str, _Reading | None]) -> _Reading:
    """Return the reading of one value of a field."""
    message = field.message_type
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return "text", lambda number: names.get(number, str(number))
    if message is None:
        kind = "binary" if field.type == field.TYPE_BYTES else _SCALARS[field.cpp_type]
        return kind, Decimal if kind == "decimal(20,0)" else _same
    name = message.full_name
    if name == f"{_GOOGLE}Timestamp":
        return "timestamp", lambda value: value.ToDatetime(tzinfo=timezone.utc)
    if name in _AS_JSON:
        return "text", lambda value: _json(value, message.file.pool)
    if name.startswith(_GOOGLE) and [*message.fields_by_name] == ["value"]:
        kind, convert = _value(message.fields[0], met)
        return kind, lambda value: convert(value.value)
    return _message(message, met)


def _json(value: Any, pool: Any) -> str | None:
    from google.protobuf.json_format import MessageToDict

    try:
        made = MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=pool)
    except TypeError:
        # The type of a message in `Any` is in no file of the schema.
        made = {"@type": value.type_url, "value": b64encode(value.value).decode()}
    if made is None or isinstance(made, str):
        return made
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def parser(made: Any) -> Callable[[bytes], Any]:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    message = _descriptor(*made)
    read, (_, convert) = GetMessageClass(message).FromString, _message(message, {})

    def parse(body: bytes) -> Any:
        try:
            return convert(read(body))
        except DecodeError:
            raise ValueError("it is no such Protobuf message") from None
        except Exception:
            raise ValueError("a time, a text or a number in it is out of range") from None

    return parse
