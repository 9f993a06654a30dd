"""Read Protobuf messages of several schema versions into the columns of one table, by Google's own runtime.

A message is read with its own writer schema. A field that only newer schemas have is in older messages what it is without a
value: zero, or null where presence counts ("Field Presence" of Protobuf's guide).
"""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timezone
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.schemas import FRAME_BYTES, parse_message_indexes, parse_schema_id
from mirrorlake.tables.codec import NotATable, WriterKey
from mirrorlake.tables.json_types import TEXT, from_text, to_text
from mirrorlake.tables.kinds import completed, merged_kind, refuse_contradiction

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from mirrorlake.schemas import Schema

# FieldDescriptor.type of scalars; an unsigned 64 bit number has no other exact column.
_SCALARS: dict[int, tuple[pa.DataType, Any]] = {
    1: (pa.float64(), 0.0),
    2: (pa.float32(), 0.0),
    3: (pa.int64(), 0),
    4: (pa.decimal128(20, 0), 0),
    5: (pa.int32(), 0),
    6: (pa.decimal128(20, 0), 0),
    7: (pa.int64(), 0),
    8: (pa.bool_(), False),
    9: (TEXT, ""),
    12: (pa.binary(), b""),
    13: (pa.int64(), 0),
    14: (TEXT, None),
    15: (pa.int32(), 0),
    16: (pa.int64(), 0),
    17: (pa.int32(), 0),
    18: (pa.int64(), 0),
}
_ENUM = 14
_UNSIGNED_64 = (4, 6)
_TIMESTAMP = "google.protobuf.Timestamp"
_AS_JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any", "Duration", "FieldMask")}
_WRAPPED = "google.protobuf."
_NO_MESSAGE = "its schema has no message of the indexes that the record names"


class ProtobufCodec:
    """Protobuf: the state is an Arrow type as text, and what fields have that a message lacks."""

    def locate(self, payload: bytes) -> tuple[tuple[Any, ...], int] | None:
        """Return the id and the message's indexes, and where the message begins."""
        schema_id = parse_schema_id(payload)
        if schema_id is None:
            return None
        found = parse_message_indexes(payload, FRAME_BYTES)
        return None if found is None else ((schema_id, found[0]), found[1])

    def writer(self, schema: Schema, named: tuple[Any, ...]) -> Any:
        compiled = compile_schema(schema)
        message = _message(compiled, named[1])
        kind, defaults = _kind_of(message, ()), _zeros(message, ())
        merged_kind(kind, kind)
        return {
            "files": b64encode(compiled).decode(),
            "message": message.full_name,
            "kind": to_text(kind),
            "defaults": [[list(path), value] for path, value in defaults.items() if not isinstance(value, bytes)],
        }

    def state(self, writer: Any) -> Any:
        return {key: writer[key] for key in ("kind", "defaults")}

    def merge(self, newer: Any, older: Any) -> Any:
        kinds = [from_text(one["kind"]) for one in (newer, older)]
        kind = merged_kind(*kinds)
        for one in kinds:
            refuse_contradiction(one, kind)
        defaults = _defaults(older) | _defaults(newer)
        return {
            "kind": to_text(kind),
            "defaults": [[list(path), value] for path, value in defaults.items()],
        }

    def reader(self, state: Any, writers: Mapping[WriterKey, Any]) -> ProtobufReader:
        if state is None:
            return ProtobufReader(pa.null(), {}, {})
        return ProtobufReader(from_text(state["kind"]), dict(writers), _defaults(state))

    def defaults(self, state: Any) -> Mapping[tuple[str, ...], Any]:
        return _defaults(state)


def _defaults(state: Any) -> dict[tuple[str, ...], Any]:
    return {tuple(path): value for path, value in state["defaults"]}


@dataclass(frozen=True)
class ProtobufReader:
    kind: pa.DataType
    writers: Mapping[WriterKey, Any] = field(default_factory=dict)
    zeros: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufReader, (self.kind, self.writers, self.zeros)

    @cached_property
    def _classes(self) -> dict[WriterKey, tuple[Any, Callable[[Any], Any]]]:
        from google.protobuf.message_factory import GetMessageClass

        found = {}
        for key, writer in self.writers.items():
            message = _pool(b64decode(writer["files"])).FindMessageTypeByName(writer["message"])
            found[key] = GetMessageClass(message), _converter(message)
        return found

    def read(self, writer: WriterKey, payload: bytes) -> Any:
        """Return a message as `pyarrow.array` takes it; a ValueError if it is not of its writer schema."""
        from google.protobuf.message import DecodeError

        made, convert = self._classes[writer]
        try:
            message = made.FromString(payload)
        except DecodeError:
            raise ValueError(f"is not of its schema {writer[1]}: it is no such Protobuf message") from None
        return completed(convert(message), self.kind, self.zeros)


def compile_schema(schema: Schema) -> bytes:
    """Return a schema with all that it needs as a `FileDescriptorSet`, the schema last.

    The text is that of a `.proto` file, which protoc compiles, or a `FileDescriptorProto` in base64, as confluent-kafka registers it.

    Raises:
        NotATable: protoc refuses it, or a schema that it needs is not there.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files: dict[str, Any] = {}
    for name, text in [*((one.name, one.schema.text) for one in schema.all_references()), (_MAIN, schema.text)]:
        found = _descriptor(text)
        if found is not None:
            found.name = name
            _add_known(found, files)
            files[name] = found
    if _MAIN not in files:
        return _compile(schema)
    return FileDescriptorSet(file=files.values()).SerializeToString()  # type: ignore[no-any-return]


_MAIN = "schema.proto"


def _descriptor(text: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None


def _add_known(file: Any, files: dict[str, Any]) -> None:
    """Add the files of Google's own types that a file needs, before it."""
    from google.protobuf import any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    known = {
        one.DESCRIPTOR.name: one.DESCRIPTOR
        for one in (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    }
    for name in file.dependency:
        if name in files:
            continue
        if name not in known:
            raise NotATable(f"its schema needs {name}, which the registry does not name")
        made = FileDescriptorProto()
        known[name].CopyToProto(made)
        files[name] = made


def _compile(schema: Schema) -> bytes:
    import grpc_tools
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        texts = {one.name: one.schema.text for one in schema.all_references()} | {_MAIN: schema.text}
        for name, text in texts.items():
            path = (root / name).resolve()
            if root not in path.parents:
                raise NotATable("its schema has a reference outside of its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        compiled, known = root / "compiled", Path(grpc_tools.__file__).parent / "_proto"
        options = [
            f"-I{root}",
            f"-I{known}",
            "--include_imports",
            f"--descriptor_set_out={compiled}",
        ]
        if protoc.main(["protoc", *options, _MAIN]) != 0:
            raise NotATable("its schema is not Protobuf: protoc refuses it")
        return compiled.read_bytes()


def _pool(compiled: bytes) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


def _message(compiled: bytes, indexes: tuple[int, ...]) -> Descriptor:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    file = FileDescriptorSet.FromString(compiled).file[-1]
    messages, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if index >= len(messages):
            raise NotATable(_NO_MESSAGE)
        names.append(messages[index].name)
        messages = messages[index].nested_type
    found: Descriptor = _pool(compiled).FindMessageTypeByName(".".join(names))
    return found


def _kind_of(message: Descriptor, above: tuple[str, ...]) -> pa.DataType:
    if message.full_name in above:
        raise NotATable(f"the type {message.full_name} contains itself, and a table has no such column")
    inner = (*above, message.full_name)
    return pa.struct([(one.name, _field_kind(one, inner)) for one in message.fields])


def _field_kind(one: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    message = one.message_type
    if _is_map(one):
        return pa.map_(TEXT, _one_kind(message.fields_by_name["value"], above))
    kind = _one_kind(one, above)
    return pa.list_(kind) if _is_list(one) else kind


def _one_kind(one: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    message = one.message_type
    if message is None:
        return _SCALARS[one.type][0]
    if message.full_name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if message.full_name in _AS_JSON:
        return TEXT
    if _is_wrapper(message):
        return _SCALARS[message.fields_by_name["value"].type][0]
    return _kind_of(message, above)


def _is_map(one: FieldDescriptor) -> bool:
    message = one.message_type
    return message is not None and message.GetOptions().map_entry


def _is_list(one: FieldDescriptor) -> bool:
    return bool(one.is_repeated) if hasattr(one, "is_repeated") else one.label == 3


def _is_wrapper(message: Descriptor) -> bool:
    return (
        message.full_name.startswith(_WRAPPED)
        and message.full_name.endswith("Value")
        and [*message.fields_by_name] == ["value"]
    )


def _zeros(message: Descriptor, path: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    """Return the zero values of fields without presence, by path."""
    found: dict[tuple[str, ...], Any] = {}
    for one in message.fields:
        place = (*path, one.name)
        if _is_list(one):
            found[place] = []
        elif one.type == _ENUM and not one.has_presence:
            found[place] = one.enum_type.values_by_number[0].name
        elif one.message_type is None and not one.has_presence:
            found[place] = _SCALARS[one.type][1]
        elif one.message_type is not None and not _is_known(one.message_type):
            found |= _zeros(one.message_type, place)
    return found


def _is_known(message: Descriptor) -> bool:
    return message.full_name == _TIMESTAMP or message.full_name in _AS_JSON or _is_wrapper(message)


def _converter(message: Descriptor) -> Callable[[Any], Any]:
    fields = [(one.name, _field_converter(one), one.has_presence) for one in message.fields]

    def convert(value: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not value.HasField(name) else inner(getattr(value, name))
            for name, inner, has_presence in fields
        }

    return convert


def _field_converter(one: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(one):
        inner = _one_converter(one.message_type.fields_by_name["value"])
        return lambda value: [(_key(key), inner(item)) for key, item in value.items()]
    inner = _one_converter(one)
    return (lambda value: [inner(item) for item in value]) if _is_list(one) else inner


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one_converter(one: FieldDescriptor) -> Callable[[Any], Any]:
    message = one.message_type
    if message is None:
        if one.type == _ENUM:
            names = {number: value.name for number, value in one.enum_type.values_by_number.items()}
            return lambda value: names.get(value, str(value))
        return Decimal if one.type in _UNSIGNED_64 else _same
    if message.full_name == _TIMESTAMP:
        return lambda value: value.ToDatetime(tzinfo=timezone.utc)
    if message.full_name in _AS_JSON:
        return _as_json
    if _is_wrapper(message):
        inner = _one_converter(message.fields_by_name["value"])
        return lambda value: inner(value.value)
    return _converter(message)


def _same(value: Any) -> Any:
    return value


def _as_json(value: Any) -> str:
    from google.protobuf.json_format import MessageToDict

    return json.dumps(MessageToDict(value), ensure_ascii=False)
