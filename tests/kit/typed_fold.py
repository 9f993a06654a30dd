"""The plain fold of what a typed table must be: written from the rules of docs/typed-tables.md, it shares no code with the product."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

Place = tuple[str, str, int, int]
Entry = Mapping[str, Any]
# "null", "boolean", "int", "long", "double" or "text"; [kind] of a list; {name: kind} of an object.
Kind = Any
# What the expressions of `columns:` do; one that raises makes its record a bad one.
EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "100 DIV id": lambda value: 100 // value["id"] if isinstance(value, dict) and "id" in value else None
}


@dataclass(frozen=True)
class Record:
    """A record: its value is JSON, but for bytes and a tombstone; `at` are seconds after noon, or as many as were landed before."""

    value: Any
    key: str | bytes | None = "k"
    source: str = "east"
    topic: str = "sales"
    partition: int = 0
    at: int = -1
    offset: int = -1

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes | None):
            object.__setattr__(self, "value", json.dumps(self.value, ensure_ascii=False).encode())

    @property
    def place(self) -> Place:
        return self.source, self.topic, self.partition, self.offset


def kind_of(value: Any) -> Kind:
    match value:
        case bool():
            return "boolean"
        case int():
            return "int" if abs(value) <= 2**53 else "long" if -(2**63) <= value < 2**63 else "text"
        case list():
            return [reduce(merge, map(kind_of, value), "null")]
        case dict():
            return {name: kind_of(member) for name, member in value.items()}
    return "null" if value is None else "double" if isinstance(value, float) else "text"


def merge(one: Kind, other: Kind) -> Kind:
    if one == other or "null" in (one, other):
        return other if one == "null" else one
    match one, other:
        case list(), list():
            return [merge(one[0], other[0])]
        case dict(), dict():
            return {name: merge(one.get(name, "null"), other.get(name, "null")) for name in {**one, **other}}
        case ("int", "long") | ("long", "int"):
            return "long"
        case ("int", "double") | ("double", "int"):
            return "double"
    return "text"


def is_known(kind: Kind) -> bool:
    """Return whether a kind makes a column; null, [] and {} alone make none."""
    if isinstance(kind, dict):
        return any(map(is_known, kind.values()))
    return is_known(kind[0]) if isinstance(kind, list) else kind != "null"


def columns_of(members: Iterable[str]) -> dict[str, str]:
    """Return the column of each member: of names alike a fit one comes first, then one in lower case."""
    alike = defaultdict[str, list[str]](list)
    for name in members:
        alike[re.sub(r"\W", "_", name).lower()].append(name)
    return {
        name: re.sub(r"\W", "_", name) + ("" if number == 1 else f"_{number}")
        for several in alike.values()
        for number, name in enumerate(sorted(several, key=lambda it: (bool(re.search(r"\W", it)), it.swapcase())), 1)
    }


def filled(value: Any, kind: Kind) -> Any:
    """Return what a column of this kind has of a value."""
    if value is None:
        return None
    if isinstance(kind, dict):
        known = {name: inner for name, inner in kind.items() if is_known(inner)}
        return {column: filled(value.get(name), known[name]) for name, column in columns_of(known).items()}
    if isinstance(kind, list):
        return [filled(element, kind[0]) for element in value]
    if kind == "text" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return float(value) if kind == "double" else value


def fold(entry: Entry, left: Sequence[Record], seen: Sequence[Record]) -> tuple[dict[Place, str], set[Place]]:
    """Return the rows, as JSON by the place of their record, and the places of bad records.

    They are those of the records that are `left`; the kinds are those of all that the table has `seen`.
    """
    is_upsert, expressions = entry.get("mode") == "upsert", entry.get("columns", {})
    good = dict[Record, tuple[Any, Any]]()
    for record in seen:
        try:
            key, value = _decoded(record, is_json_key=entry.get("keys") == "json")
            for text in expressions.values():
                EXPRESSIONS[text](value)
            if not (is_upsert and key is None):
                good[record] = key, value
        except (ValueError, RecursionError, ZeroDivisionError):
            continue
    of_objects = {record.topic for record, (_, value) in good.items() if isinstance(value, dict)}
    for record, (_, value) in list(good.items()):
        if record.topic in of_objects and record.value is not None and not isinstance(value, dict):
            del good[record]
    key_kind, root = (reduce(merge, (kind_of(pair[side]) for pair in good.values()), "null") for side in (0, 1))
    chosen = [record for record in left if record in good]
    if is_upsert:
        in_order = sorted(chosen, key=lambda one: (one.at, one.partition, one.offset))
        newest = {(one.source, one.topic, one.key): one for one in in_order}
        chosen = [one for one in newest.values() if one.value is not None]
    rows = {}
    for record in chosen:
        key, value = good[record]
        columns = {"value": filled(value, root)} if is_known(root) else {}
        columns = filled(value or {}, root) if isinstance(root, dict) else columns
        derived = {name: EXPRESSIONS[text](value) for name, text in expressions.items()}
        row = {"_key": filled(key, key_kind), **columns, **derived}
        rows[record.place] = json.dumps(row, sort_keys=True, ensure_ascii=False)
    return rows, {record.place for record in left if record not in good}


def _decoded(record: Record, *, is_json_key: bool) -> tuple[Any, Any]:
    key = json.loads(record.key) if is_json_key and record.key is not None else record.key
    value = None if record.value is None else json.loads(record.value.decode())
    if _depth(value) > 32 or (isinstance(value, dict) and len(value) > 1_000):
        raise ValueError
    return key, value


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
