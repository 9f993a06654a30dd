"""Edit a settings file with ruamel.yaml, which preserves comments, order, quotes and references.

ruamel.yaml attaches a comment to the item before it. Each edit therefore moves the comments after its item, so that a comment
above a key stays above that key.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark
from ruamel.yaml.scalarstring import SingleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from mirrorlake.model.patterns import PatternError, parse_patterns

_resolved: Callable[..., str] = yaml.resolver.Resolver().resolve
_TEXT = "tag:yaml.org,2002:str"
# Commas inside ${env:NAME:-default} do not separate.
COMMAS = re.compile(r"\s*,(?![^{]*\})\s*")
_NESTED = re.compile(r"^\w+: *(?:#.*)?\n(?: *(?:#.*)?\n)*( +)[^\s#-]", re.MULTILINE)
_LISTED = re.compile(r"^( *)[\w.]+: *(?:#.*)?\n(?: *(?:#.*)?\n)*( *)- ", re.MULTILINE)


class YamlText:
    """One document that is edited in place; JSON in a single line becomes YAML."""

    def __init__(self, text: str) -> None:
        if text.startswith("{") and "\n" not in text.strip():
            text = sections(yaml.safe_load(text))
        nested, listed = _NESTED.search(text), _LISTED.search(text)
        offset = len(listed.group(2)) - len(listed.group(1)) if listed else 2
        self._writer = _writer(len(nested.group(1)) if nested else 2, offset)
        self.root: CommentedMap = self._writer.load(text)

    def __str__(self) -> str:
        return _dumped(self._writer, self.root)


def sections(content: Mapping[str, Any]) -> str:
    """Return plain content as the text of a settings file, with a blank line between sections."""
    return "\n".join(_dumped(_writer(2, 2), {key: quoted(value)}) for key, value in content.items())


def put(node: Any, key: str | int, value: Any) -> None:
    """Set an item of a mapping or list; the comments after and beside it stay."""
    known = key in node if isinstance(node, Mapping) else True
    last = key if known else next(reversed(node), None)
    after = "" if last is None else _take(node, last)
    node[key] = quoted(value)
    _give(node, key, after)


def own(node: Any, key: str | int) -> Any:
    """Return a mapping or list, unshared from anchors and `<<`, so that an edit changes only this item."""
    found = deepcopy(node[key])
    found.yaml_set_anchor(None)
    node[key] = found
    return found


def append(items: Any, value: Any) -> None:
    """Add an item at the end of a list, without the comments after it in its origin."""
    after = _take(items, len(items) - 1) if items else ""
    items.append(quoted(value))
    _take(items, len(items) - 1)
    _give(items, len(items) - 1, after)


def put_below(node: Any, above: str, key: str, value: Any) -> None:
    """Set an item of the mapping below a key; create a missing mapping."""
    if node.get(above):
        put(own(node, above), key, value)
    else:
        # In one step: an empty mapping has no item that owns the comments after it.
        put(node, above, {key: value})


def remove(node: Any, key: str | int) -> None:
    """Remove an item of a mapping or list, if present, with the comment in its line."""
    if isinstance(node, Mapping) and key not in node:
        return
    keys = list(node) if isinstance(node, Mapping) else list(range(len(node)))
    place = keys.index(key)
    after = _take(node, key)
    del node[key]
    if isinstance(node, CommentedMap):
        node.ca.items.pop(key, None)
    if place:
        _give(node, keys[place - 1], after)
    elif len(node):
        first = next(iter(node)) if isinstance(node, Mapping) else 0
        lines = [line for line in after.splitlines() if line.strip()]
        comments = [CommentToken(f"{line.strip()}\n", CommentMark(line.index("#")), None) for line in lines]
        node.ca.items.setdefault(first, [None, None, None, None])[1] = comments


def write_selection(node: Any, key: str, text: str | None) -> None:
    """Write a selection as a text, or into the file's existing list, whose comments stay; None removes the key."""
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
            # The text has references or is half typed.
            wanted = tuple(COMMAS.split(text.strip()))
        for place in reversed(range(len(items))):
            if items[place] not in wanted:
                remove(items, place)
        for item in wanted:
            if item not in items:
                append(items, item)


def line_of(value: Any, separator: str = ", ") -> str:
    """Return a list of a file in one line; a text does not change."""
    return value if isinstance(value, str) else separator.join(str(item) for item in value)


def _writer(mapping: int, offset: int) -> YAML:
    writer = YAML()
    writer.preserve_quotes = True
    writer.width = 2**16
    writer.indent(mapping=mapping, sequence=offset + 2, offset=offset)
    return writer


def _dumped(writer: YAML, content: Any) -> str:
    stream = io.StringIO()
    writer.dump(content, stream)
    return stream.getvalue()


def quoted(value: Any) -> Any:
    """Return a new value, with quotes if YAML 1.1 would read its text as another type."""
    if isinstance(value, CommentedMap | CommentedSeq):
        return value
    if isinstance(value, Mapping):
        return CommentedMap({quoted(key): quoted(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return CommentedSeq(quoted(item) for item in value)
    if isinstance(value, str) and _resolved(yaml.ScalarNode, value, (True, False)) != _TEXT:
        return SingleQuotedScalarString(value)
    return value


def _leaf(node: Any, key: Any) -> tuple[Any, Any, int]:
    """Return the collection, key and slot of ruamel.yaml's comments after an item."""
    value = node[key]
    if isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        return _leaf(value, next(reversed(value)) if isinstance(value, Mapping) else len(value) - 1)
    return node, key, 2 if isinstance(node, Mapping) else 0


def _take(node: Any, key: Any) -> str:
    """Remove and return the lines after an item; a comment in the item's line stays."""
    owner, name, slot = _leaf(node, key)
    tokens = owner.ca.items.get(name)
    if not tokens or tokens[slot] is None:
        return ""
    own, _, after = tokens[slot].value.partition("\n")
    tokens[slot].value = f"{own}\n"
    return str(after)


def _give(node: Any, key: Any, after: str) -> None:
    if not after:
        return
    owner, name, slot = _leaf(node, key)
    tokens = owner.ca.items.setdefault(name, [None, None, None, None])
    if tokens[slot] is None:
        tokens[slot] = CommentToken("\n", CommentMark(0), None)
    tokens[slot].value += after
