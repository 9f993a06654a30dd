"""The comments of a compiled Protobuf schema, which protoc keeps as source info."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Numbers of descriptor.proto in the path of a source location.
_MESSAGE, _NESTED, _FIELD = 4, 3, 2


def split_comments(compiled: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a `FileDescriptorSet` without its source info, and the comments of messages and fields by their full name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found, files = dict[str, str](), FileDescriptorSet.FromString(compiled)
    for file in files.file:
        for location in file.source_code_info.location:
            text = location.leading_comments or location.trailing_comments
            # An odd path is that of a token in a declaration.
            if text and len(location.path) % 2 == 0 and (name := _full_name(file, location.path)):
                found[name] = " ".join(text.split())
        file.ClearField("source_code_info")
    return files.SerializeToString(), found


def _full_name(file: Any, path: Sequence[int]) -> str:
    """Return the full name of the message or field at a path, or "" for another part of the file."""
    names, messages, fields = [file.package] if file.package else [], file.message_type, ()
    for kind, index in zip(path[::2], path[1::2], strict=False):
        if kind == _FIELD and fields:
            names.append(fields[index].name)
        elif kind in (_MESSAGE, _NESTED):
            names.append(messages[index].name)
            fields, messages = messages[index].field, messages[index].nested_type
        else:
            return ""
    return ".".join(names)


def comments_of(
    message: Any, comments: Mapping[str, str], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the comments of a message and its fields by path; a field's own comes after that of its type."""
    if message.full_name in comments:
        yield path, comments[message.full_name]
    for one in message.fields:
        place, inner = (*path, one.name), one.message_type
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_name["value"].message_type
        if inner is not None and not inner.full_name.startswith("google.protobuf."):
            yield from comments_of(inner, comments, place)
        if one.full_name in comments:
            yield place, comments[one.full_name]
