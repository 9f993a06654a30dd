"""Kafka's protocol types in MirrorMaker 2's records, one letter a field, big-endian.

i  INT32      q  INT64      s  STRING: INT16 length, then UTF-8      v  the version, INT16, which is 0
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any

VERSION = 0
_LONGEST_STRING = 32767


class Mm2FormatError(ValueError):
    """The bytes are not the expected record."""


def pack(layout: str, values: Sequence[Any]) -> bytes:
    """Encode values by a layout; the version is not one of them."""
    left, parts = iter(values), []
    for kind in layout:
        if kind == "s":
            data = next(left).encode()
            if len(data) > _LONGEST_STRING:
                raise Mm2FormatError(f"a text of {len(data)} bytes; at most {_LONGEST_STRING} fit")
            parts.append(struct.pack(">h", len(data)) + data)
            continue
        try:
            parts.append(struct.pack(">h", VERSION) if kind == "v" else struct.pack(f">{kind}", next(left)))
        except struct.error as error:
            raise Mm2FormatError(f"{values} does not fit: {error}") from None
    return b"".join(parts)


def unpack(layout: str, data: bytes | None, part: str) -> list[Any]:
    """Decode values by a layout; every `Mm2FormatError` names `part`, key or value."""
    if data is None:
        raise Mm2FormatError("a tombstone" if part == "value" else "no key")
    left, found = BytesIO(data), list[Any]()
    for kind in layout:
        number = _number(left, {"s": ">h", "v": ">h"}.get(kind, f">{kind}"), part)
        if kind == "v" and number != VERSION:
            raise Mm2FormatError(f"version {number}; this release reads {VERSION}")
        if kind == "s":
            text = left.read(max(0, number))
            if len(text) != number:
                raise Mm2FormatError(f"the {part} holds a text of {number} bytes")
            try:
                found.append(text.decode())
            except UnicodeDecodeError:
                raise Mm2FormatError(f"the {part} holds a text that is not UTF-8") from None
        elif kind != "v":
            found.append(number)
    if rest := left.read():
        raise Mm2FormatError(f"{len(rest)} bytes too many in the {part}")
    return found


def _number(left: BytesIO, kind: str, part: str) -> int:
    data = left.read(struct.calcsize(kind))
    if len(data) < struct.calcsize(kind):
        raise Mm2FormatError(f"the {part} ends after {left.tell()} bytes")
    (number,) = struct.unpack(kind, data)
    return int(number)


def document(data: bytes | None, part: str) -> Any:
    if data is None:
        raise Mm2FormatError(f"no {part}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Mm2FormatError(f"the {part} is not JSON") from None
