"""The frame that Confluent's serializers put before a value or a key.

```
0  id (4 bytes, big-endian)     [message indexes, of Protobuf]   payload
```

A serializer may be told to name a schema by a guid in a header instead: such a payload has no frame.
"""

from __future__ import annotations

FRAME_BYTES = 5
"""The bytes of a frame, without Protobuf's message indexes."""

# A message type that lies deeper than this, or a longer varint, is no frame of a serializer.
_MAX_INDEXES = 1_000
_MAX_VARINT_BYTES = 5


def parse_schema_id(data: bytes | None) -> int | None:
    """Return the id of the schema that a value or a key names, or None if it begins with no frame.

    >>> parse_schema_id(bytes([0, 0, 0, 1, 0]) + b"payload")
    256
    >>> parse_schema_id(b"{}"), parse_schema_id(None)
    (None, None)
    """
    if not data or data[0] != 0 or len(data) < FRAME_BYTES:
        return None
    return int.from_bytes(data[1:FRAME_BYTES], "big")


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
