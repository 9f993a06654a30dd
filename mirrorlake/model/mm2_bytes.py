"""Kafka's protocol types as MirrorMaker 2's records use them: big-endian numbers, texts with their length before them."""

from __future__ import annotations

import json
import struct
from typing import Any

VERSION = 0
_LONGEST_STRING = 32767


class Mm2FormatError(ValueError):
    """Say why bytes are not the record they should be."""


def pack(layout: str, *numbers: int) -> bytes:
    """Return numbers as `struct` lays them out."""
    try:
        return struct.pack(layout, *numbers)
    except struct.error as error:
        raise Mm2FormatError(f"{numbers} does not fit: {error}") from None


def string(text: str) -> bytes:
    """Return a text as Kafka's STRING."""
    data = text.encode()
    if len(data) > _LONGEST_STRING:
        raise Mm2FormatError(f"a text of {len(data)} bytes; at most {_LONGEST_STRING} fit")
    return struct.pack(">h", len(data)) + data


class Fields:
    """Read the fields of one key or value from left to right; every fault is an `Mm2FormatError`."""

    def __init__(self, data: bytes | None, part: str) -> None:
        if data is None:
            raise Mm2FormatError("a tombstone" if part == "value" else "no key")
        self._data = data
        self._part = part
        self._at = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Return the next numbers, laid out as `struct` says."""
        size = struct.calcsize(layout)
        if len(self._data) - self._at < size:
            raise Mm2FormatError(f"the {self._part} ends after {len(self._data)} bytes")
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += size
        return found

    def number(self, layout: str) -> int:
        """Return the next number."""
        (found,) = self.numbers(layout)
        return found

    def string(self) -> str:
        """Return the next text."""
        length = self.number(">h")
        if length < 0 or length > len(self._data) - self._at:
            raise Mm2FormatError(f"the {self._part} holds a text of {length} bytes")
        self._at += length
        try:
            return self._data[self._at - length : self._at].decode()
        except UnicodeDecodeError:
            raise Mm2FormatError(f"the {self._part} holds a text that is not UTF-8") from None

    def version(self) -> None:
        """Step over the version, which must be 0."""
        if (found := self.number(">h")) != VERSION:
            raise Mm2FormatError(f"version {found}; this release reads {VERSION}")

    def end(self, *fields: Any) -> tuple[Any, ...]:
        """Return the fields that were read, if nothing is left."""
        if self._at != len(self._data):
            raise Mm2FormatError(f"{len(self._data) - self._at} bytes too many in the {self._part}")
        return fields


def document(data: bytes | None, part: str) -> Any:
    """Decode JSON."""
    if data is None:
        raise Mm2FormatError(f"no {part}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Mm2FormatError(f"the {part} is not JSON") from None


def is_whole(value: object) -> bool:
    """Tell whether a JSON value is a whole number from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
