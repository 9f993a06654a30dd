"""Render a whole key or value as JSON, as text and in hexadecimal: every byte is visible."""

from __future__ import annotations

import json
import re

from mirrorlake.render.content import clean

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPEN, _CLOSE = "{[", "}]"
_ROW = 16


def json_text(data: bytes) -> str | None:
    r"""Indent a JSON object or array, or return None for other bytes. Numbers and names remain as written.

    >>> print(json_text(b'{"a":1.10,"a":[],"b":[1,"x:y"]}'))
    {
      "a": 1.10,
      "a": [],
      "b": [
        1,
        "x:y"
      ]
    }
    >>> json_text(b"7"), json_text(b"{"), json_text(b"\xff")
    (None, None, None)
    """
    try:
        text = data.decode("utf-8")
        if not isinstance(json.loads(text), dict | list):
            return None
    except (ValueError, RecursionError):
        return None
    tokens = _TOKEN.findall(text)
    written: list[str] = []
    depth = 0
    for place, part in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        if part in _CLOSE:
            depth -= 1
        if (part in _CLOSE and before not in _OPEN) or (before and before in "{[," and part not in _CLOSE):
            written.append("\n" + "  " * depth)
        written.append(f"{part} " if part == ":" else part)
        if part in _OPEN:
            depth += 1
    return "".join(written)


def whole_text(data: bytes) -> str:
    r"""Return bytes as text with line breaks; invalid UTF-8 and control characters become visible signs.

    >>> whole_text(b"a\x00\nb\xff")
    'a␀\nb�'
    """
    return "\n".join(clean(line) for line in data.decode("utf-8", "replace").split("\n"))


def hex_text(data: bytes) -> str:
    r"""Return bytes in rows of 16: position, hexadecimal, and ASCII characters.

    >>> print(hex_text(b"\x00orders"))
    00000000  00 6f 72 64 65 72 73                             .orders
    """
    rows = []
    for place in range(0, len(data), _ROW):
        part = data[place : place + _ROW]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{place:08x}  {part.hex(' '):<{3 * _ROW}} {seen}".rstrip())
    return "\n".join(rows)
