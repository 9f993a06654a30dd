"""Kinds: what a typed table remembers of the values of a column, and the column that follows from it.

A kind is a JSON document: `"null"`, a scalar's name, `"decimal(12,2)"`, `{"list": kind}`, `{"map": kind}`, or
`{"members": {name: kind}}` with names as they came. Kinds form a lattice: `merged` of several does not depend on their order, nor does
a table on its batches. `int` and `long` are one column, BIGINT; but only integers within 2^53 have a double of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

Kind = str | dict[str, Any]

NULL, TEXT = "null", "text"
INT, LONG, DOUBLE = "int", "long", "double"
LIST, MAP, MEMBERS = "list", "map", "members"
MAX_COLUMNS = 1_000
"""An object whose members are data, such as a map by customer, would make a table that no tool opens."""
MAX_DEPTH = 32
EXACT = 2**53
"""Every integer up to here has a double of its own."""

SCALARS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    INT: pa.int64(),
    LONG: pa.int64(),
    DOUBLE: pa.float64(),
    TEXT: pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_SQL = {"int64": "BIGINT", "int32": "INT", "int16": "SMALLINT", "int8": "TINYINT", "bool": "BOOLEAN", "date32": "DATE"}
_SQL |= {"list": "ARRAY", "map": "MAP", "struct": "STRUCT", "timestamp": "TIMESTAMP"}
_NUMBERS = {frozenset((INT, LONG)): LONG, frozenset((INT, DOUBLE)): DOUBLE}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MAX_DIGITS = 38
_LONGS = range(-(2**63), 2**63)


class TooDeep(Exception):
    """A value that is nested more than 32 levels deep."""


def kind_of(value: Any, depth: int = 0) -> Kind:
    """Return the kind of a JSON value.

    >>> kind_of({"a": [1, 2.5], "b": None})
    {'members': {'a': {'list': 'double'}}}

    Raises:
        TooDeep: it is nested more than 32 levels deep.
    """
    if depth == MAX_DEPTH and isinstance(value, list | dict):
        raise TooDeep
    match value:
        case None:
            return NULL
        case bool():
            return "boolean"
        case int():
            return INT if -EXACT <= value <= EXACT else LONG if value in _LONGS else TEXT
        case float():
            return DOUBLE
        case str():
            return TEXT
        case list():
            element: Kind = NULL
            for one in value:
                element = merged(element, kind_of(one, depth + 1))
            return {LIST: element}
    members = {name: kind_of(one, depth + 1) for name, one in value.items()}
    return {MEMBERS: {name: kind for name, kind in members.items() if kind != NULL}}


def merged(one: Kind, other: Kind) -> Kind:
    """Return the kind of the values of two kinds; what nothing narrower holds without a loss is text.

    >>> merged("int", "double"), merged("long", "double"), merged({"list": "int"}, "boolean")
    ('double', 'text', 'text')
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, str) and isinstance(other, str):
        return _NUMBERS.get(frozenset((one, other))) or _merged_decimals(one, other)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        [shape] = one
        if shape != MEMBERS:
            return {shape: merged(one[shape], other[shape])}
        known, more = one[MEMBERS], other[MEMBERS]
        both = {name: merged(kind, more.get(name, NULL)) for name, kind in known.items()}
        return {MEMBERS: {**both, **{name: kind for name, kind in more.items() if name not in known}}}
    return TEXT


def _merged_decimals(one: str, other: str) -> Kind:
    found = [_DECIMAL.fullmatch(text) for text in (one, other)]
    if None in found:
        return TEXT
    (digits, scale), (more, fraction) = ((int(text) for text in each.groups()) for each in found if each)
    wide, deep = max(digits - scale, more - fraction), max(scale, fraction)
    return f"decimal({wide + deep},{deep})" if wide + deep <= _MAX_DIGITS else TEXT


def merged_root(one: Kind, other: Kind) -> Kind:
    """Return the kind of whole values: where there are objects, their members are the columns, and nothing else counts."""
    if is_object(one) == is_object(other):
        return merged(one, other)
    return one if is_object(one) else other


def is_object(kind: Kind) -> bool:
    return members_of(kind) is not None


def members_of(kind: Kind) -> dict[str, Kind] | None:
    """Return the members of an object, or None for any other kind."""
    return kind.get(MEMBERS) if isinstance(kind, dict) else None


def common_part(kind: Kind, known: Kind) -> Kind:
    """Return a kind without the members that a known one lacks."""
    if isinstance(kind, dict) and isinstance(known, dict) and kind.keys() == known.keys():
        [shape] = kind
        if shape != MEMBERS:
            return {shape: common_part(kind[shape], known[shape])}
        return {
            MEMBERS: {
                name: common_part(one, known[MEMBERS][name])
                for name, one in kind[MEMBERS].items()
                if name in known[MEMBERS]
            }
        }
    return kind


# -- columns ------------------------------------------------------------------------------------------------------------


def column_type(kind: Kind, *, raw: bool = False) -> pa.DataType | None:
    """Return a kind's column, or None while nothing is known of it, as of null, `[]` and `{}`; with `raw`, names are as they came."""
    if isinstance(kind, str):
        if found := _DECIMAL.fullmatch(kind):
            return pa.decimal128(*map(int, found.groups()))
        return SCALARS.get(kind)
    [(shape, inner)] = kind.items()
    if shape == MEMBERS:
        fields = [pa.field(name, type_) for name, type_, _ in columns_of(inner, raw=raw)]
        return pa.struct(fields) if fields else None
    element = column_type(inner, raw=raw)
    if element is None:
        return None
    return pa.list_(element) if shape == LIST else pa.map_(pa.string(), element)


def columns_of(
    members: dict[str, Kind], taken: Iterable[str] = (), *, raw: bool = False
) -> list[tuple[str, pa.DataType, str]]:
    """List the columns of members: name, type and the member's name as it came."""
    types = {came: type_ for came, kind in members.items() if (type_ := column_type(kind, raw=raw)) is not None}
    names = dict(zip(types, types, strict=True)) if raw else column_names(types, taken)
    return [(names[came], type_, came) for came, type_ in types.items()]


def column_names(members: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return names that every reader of Delta takes: letters, digits and `_`, unique without regard to case.

    They follow from the set of members alone: a fit name stays, lower case first; others get a number.

    >>> column_names(["Id", "id", "a b"])
    {'id': 'id', 'Id': 'Id_2', 'a b': 'a_b'}
    """
    fitting = {name: re.sub(r"\W", "_", name) or "_" for name in members}
    used = {_folded(name) for name in taken}
    found: dict[str, str] = {}
    for came in sorted(fitting, key=lambda name: (fitting[name] != name, name.swapcase())):
        name, number = fitting[came], 2
        while _folded(name) in used:
            name, number = f"{fitting[came]}_{number}", number + 1
        used.add(_folded(name))
        found[came] = name
    return found


def _folded(name: str) -> str:
    """Return a name as Java compares it without regard to case."""
    return name.upper().lower()


def sql_name(type_: pa.DataType) -> str:
    """Return a column's type as SQL names it; of a nested one its shape alone."""
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _SQL.get(str(type_).partition("<")[0].partition("[")[0], str(type_).upper())


def count_columns(kind: Kind) -> int:
    if isinstance(kind, str):
        return 1
    [(shape, inner)] = kind.items()
    return sum(map(count_columns, inner.values())) if shape == MEMBERS else count_columns(inner)


def rebuilds(known: Kind, wider: Kind, taken: Iterable[str] = ()) -> bool:
    """Return whether rows of a known kind lie otherwise in the columns of a wider one: a new member alone only adds a column.

    A `[]` or `{}` had no column, and has a value in the one that comes with later elements or members. `taken` are names that no
    member of an object may have.
    """
    if known == NULL:
        return False
    mine, more = members_of(known), members_of(wider)
    if mine is not None and more is not None:
        later = {came: name for name, _, came in columns_of(more, taken)}
        is_renamed = any(later[came] != name for name, _, came in columns_of(mine, taken))
        return is_renamed or any(lies_otherwise(kind, more[came]) for came, kind in mine.items())
    # Beside objects, what was a row is a bad record, though `[]` had no column.
    return more is not None or lies_otherwise(known, wider)


def lies_otherwise(known: Kind, wider: Kind) -> bool:
    """Return whether values of a known kind lie otherwise in one column of a wider one."""
    if known == NULL:
        return False
    before = column_type(known)
    if before is None:
        return column_type(wider) is not None
    if isinstance(known, dict) and isinstance(wider, dict) and known.keys() == wider.keys():
        [shape] = known
        return rebuilds(known, wider) if shape == MEMBERS else lies_otherwise(known[shape], wider[shape])
    return bool(before != column_type(wider))
