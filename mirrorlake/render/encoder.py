"""Convert values to JSON by the fields of their classes, with one rule each for times, bytes and enumerations."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any


def json_file(data: Any) -> str:
    """Return JSON data as the text of a file that people read."""
    return json.dumps(data, indent=2, default=str) + "\n"


def document(value: Any) -> Any:
    """Return a value as JSON data; UTF-8 bytes become text, so null and empty differ (law C).

    A class with another form than its fields has an `as_dict`.

    >>> document((b"a", b"", None, bytes([255]), datetime(2026, 1, 1)))
    [{'text': 'a'}, {'text': ''}, None, {'base64': '/w=='}, '2026-01-01T00:00:00']
    """
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if is_dataclass(value):
        return by_fields(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, Mapping):
        return {key: document(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [document(inner) for inner in value]
    return value


def by_fields(value: Any) -> dict[str, Any]:
    """Return a dataclass by its fields and its `json_include` properties, without `json_exclude`."""
    names = [*(field.name for field in fields(value)), *getattr(value, "json_include", ())]
    return {name: document(getattr(value, name)) for name in names if name not in getattr(value, "json_exclude", ())}


def _bytes(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
