"""Selections and other lists of a settings file, as a person fills them in: on one line, with commas."""

from __future__ import annotations

import re
from typing import Any

from mirrorlake.config.edit.yaml_text import append, own, put, remove
from mirrorlake.model.patterns import PatternError, parse_patterns

# Commas inside ${env:NAME:-default} do not separate.
COMMAS = re.compile(r"\s*,(?![^{]*\})\s*")


def write_selection(node: Any, key: str, text: str | None) -> None:
    """Write a text, or its parts into the list that a file has, whose comments stay; None removes the key."""
    items = node.get(key)
    if text is None:
        remove(node, key)
    elif not isinstance(items, list):
        put(node, key, text)
    else:
        items = own(node, key)
        try:
            wanted = parse_patterns(text, required=False).expressions
        except PatternError:
            # References, or what is half typed.
            wanted = tuple(COMMAS.split(text.strip()))
        for place in reversed(range(len(items))):
            if items[place] not in wanted:
                remove(items, place)
        for item in wanted:
            if item not in items:
                append(items, item)


def line_of(value: Any, separator: str = ", ") -> str:
    """Write a list of a file on one line; a text stays as it is."""
    return value if isinstance(value, str) else separator.join(str(item) for item in value)
