"""The frame that Confluent's serializers put before a value or a key, and the header that may take its place.

```
0  id (4 bytes, big-endian)     [message indexes, of Protobuf]   payload
1  guid (16 bytes)              the same, in a header whose name ends in "_schema_id"; the value is the payload alone
```
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
"""The headers with the frame of a key or a value, where a serializer was told to write headers."""

_ID, _GUID = 0, 1
_ID_END, _GUID_END = 5, 17
# A message type that lies deeper than this, or a longer varint, is no frame of a serializer.
_MAX_INDEXES = 1_000
_MAX_VARINT_BYTES = 5


@dataclass(frozen=True, slots=True)
class WireFrame:
    """The writer schema that a record names: `schema_id`, or `guid` from a header; `start` is where the payload begins."""

    schema_id: int | None
    guid: str | None
    start: int


def parse_frame(data: bytes | None) -> WireFrame | None:
    """Return the frame at the begin of a value, a key or a header, or None if there is none.

    >>> parse_frame(bytes([0, 0, 0, 1, 0]) + b"payload")
    WireFrame(schema_id=256, guid=None, start=5)
    >>> parse_frame(b"{}"), parse_frame(None)
    (None, None)
    """
    if not data:
        return None
    if data[0] == _ID and len(data) >= _ID_END:
        return WireFrame(int.from_bytes(data[1:_ID_END], "big"), None, _ID_END)
    if data[0] == _GUID and len(data) >= _GUID_END:
        return WireFrame(None, str(uuid.UUID(bytes=bytes(data[1:_GUID_END]))), _GUID_END)
    return None


def parse_message_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int] | None:
    """Return Protobuf's path of message indexes at `start`, and where it ends, or None if there is none.

    The path leads from the messages of a file to a nested one; the single byte 0 stands for the first message.

    >>> parse_message_indexes(bytes([0]), 0), parse_message_indexes(bytes([4, 2, 0]), 0)
    (((0,), 1), ((1, 0), 3))
    """
    count, position = _varint(data, start)
    if position < 0 or not 0 <= count <= _MAX_INDEXES:
        return None
    if count == 0:
        return (0,), position
    indexes = []
    for _ in range(count):
        index, position = _varint(data, position)
        if position < 0 or index < 0:
            return None
        indexes.append(index)
    return tuple(indexes), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the position behind it; the position is -1 if there is none."""
    value = 0
    for shift, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * shift)
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position + shift + 1
    return 0, -1
