"""Kinds: what a typed table remembers of the values of a column, and the column that follows from it.

A kind is a JSON document: `"null"`, a scalar's name, `"decimal(12,2)"`, `{"list": kind}`, `{"map": kind}`, or
`{"members": {name: kind}}` with names as they came. Kinds form a lattice: `merged` of several does not depend on their order, nor does
a table on its batches. `int` and `long` are one column, BIGINT; but only integers within 2^53 have a double of their own.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import reduce
from itertools import accumulate, chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

Kind = str | dict[str, Any]

NULL: Kind = "null"
TEXT = "text"
INT, LONG, DOUBLE = "int", "long", "double"
LIST, MAP, MEMBERS = "list", "map", "members"
MAX_COLUMNS = 1_000
"""An object whose members are data, such as a map by customer, would make a table that no tool opens."""
MAX_DEPTH = 32

_EXACT, _LONGS = range(-(2**53), 2**53 + 1), range(-(2**63), 2**63)
"""The integers with a double of their own, and those of 64 bits."""


class _Scalar(NamedTuple):
    """A scalar kind: its type, also in SQL, and the values that Arrow takes as they are. It would take true for 1.0 and 1.0 for 1."""

    type: pa.DataType
    sql: str
    values: tuple[type, ...] = ()


_SCALARS = {
    "null": _Scalar(pa.null(), "NULL"),
    "boolean": _Scalar(pa.bool_(), "BOOLEAN", (bool,)),
    # Only a person gives these four.
    "tinyint": _Scalar(pa.int8(), "TINYINT", (int,)),
    "smallint": _Scalar(pa.int16(), "SMALLINT", (int,)),
    "int32": _Scalar(pa.int32(), "INT", (int,)),
    "float": _Scalar(pa.float32(), "FLOAT", (float,)),
    INT: _Scalar(pa.int64(), "BIGINT", (int,)),
    LONG: _Scalar(pa.int64(), "BIGINT", (int,)),
    DOUBLE: _Scalar(pa.float64(), "DOUBLE", (int, float)),
    TEXT: _Scalar(pa.string(), "STRING", (str,)),
    "binary": _Scalar(pa.binary(), "BINARY", (bytes,)),
    "date": _Scalar(pa.date32(), "DATE", (date,)),
    "timestamp": _Scalar(pa.timestamp("us", "UTC"), "TIMESTAMP", (datetime,)),
}
_OF_TYPES: dict[type, Kind] = {type(None): NULL, bool: "boolean", float: DOUBLE, Decimal: DOUBLE, str: TEXT}
_LARGEST = {"float": 2.0**128 - 2.0**104, DOUBLE: sys.float_info.max}
_NUMBERS = {frozenset((INT, LONG)): LONG, frozenset((INT, DOUBLE)): DOUBLE}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MAX_DIGITS = 38


def _scalar(kind: str) -> _Scalar:
    if found := _DECIMAL.fullmatch(kind):
        return _Scalar(pa.decimal128(*map(int, found.groups())), kind.upper())
    return _SCALARS[kind]


def kind_of(value: Any) -> Kind:
    """Return the kind of a JSON value.

    >>> kind_of({"a": [1, 2.5], "b": None})
    {'members': {'a': {'list': 'double'}}}
    """
    if isinstance(value, dict):
        return {MEMBERS: {name: kind_of(one) for name, one in value.items() if one is not None}}
    if isinstance(value, list):
        return {LIST: reduce(merged, map(kind_of, value), NULL)}
    if type(value) is int:
        return INT if value in _EXACT else LONG if value in _LONGS else TEXT
    return _OF_TYPES[type(value)]


def kind_of_type(type_: pa.DataType) -> Kind:
    """Return the kind of a column that a person gave."""
    if pa.types.is_struct(type_):
        return {MEMBERS: {one.name: kind_of_type(one.type) for one in type_}}
    if pa.types.is_list(type_):
        return {LIST: kind_of_type(type_.value_type)}
    if pa.types.is_map(type_):
        return {MAP: kind_of_type(type_.item_type)}
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return {scalar.type: kind for kind, scalar in _SCALARS.items()}[type_]


def merged(one: Kind, other: Kind, *, adds: bool = True) -> Kind:
    """Return the kind of the values of two kinds; what nothing narrower holds without a loss is text.

    Without `adds`, members of the other one for which there is no column yet are left out.

    >>> merged("int", "double"), merged("long", "double"), merged({"list": "int"}, "boolean")
    ('double', 'text', 'text')
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other if adds else NULL
    if isinstance(one, str) and isinstance(other, str):
        return _NUMBERS.get(frozenset((one, other))) or _merged_decimals(one, other)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        [shape] = one
        mine, more = one[shape], other[shape]
        if shape != MEMBERS:
            return {shape: merged(mine, more, adds=adds)}
        names = {**mine, **more} if adds else mine
        return {MEMBERS: {name: merged(mine.get(name, NULL), more.get(name, NULL), adds=adds) for name in names}}
    return TEXT


def _merged_decimals(one: str, other: str) -> Kind:
    found = [_DECIMAL.fullmatch(text) for text in (one, other)]
    if None in found:
        return TEXT
    (digits, scale), (more, fraction) = ((int(text) for text in each.groups()) for each in found if each)
    wide, deep = max(digits - scale, more - fraction), max(scale, fraction)
    return f"decimal({wide + deep},{deep})" if wide + deep <= _MAX_DIGITS else TEXT


def members_of(kind: Kind) -> dict[str, Kind] | None:
    """Return the members of an object, or None for any other kind."""
    return kind.get(MEMBERS) if isinstance(kind, dict) else None


def count_columns(kind: Kind) -> int:
    if isinstance(kind, str):
        return 1
    [(shape, inner)] = kind.items()
    # An empty object counts, too: a million of them are as many members.
    return max(1, sum(map(count_columns, inner.values()))) if shape == MEMBERS else count_columns(inner)


# -- columns ------------------------------------------------------------------------------------------------------------


def column_type(kind: Kind) -> pa.DataType:
    """Return the type of a kind's column, or `pa.null()` where nothing is known yet, as of null, `[]` and `{}`."""
    if isinstance(kind, str):
        return _scalar(kind).type
    [(shape, inner)] = kind.items()
    if shape == MEMBERS:
        fields = columns_of(inner)
        return pa.struct(list(fields.values())) if fields else pa.null()
    element = column_type(inner)
    if element == pa.null():
        return element
    return pa.list_(element) if shape == LIST else pa.map_(pa.string(), element)


def columns_of(members: Mapping[str, Kind], taken: Iterable[str] = ()) -> dict[str, pa.Field]:
    """Return the columns of members by names as they came; `taken` are names that none may have."""
    types = {came: column_type(kind) for came, kind in members.items()}
    known = [came for came, type_ in types.items() if type_ != pa.null()]
    names = column_names(known, taken)
    return {came: pa.field(names[came], types[came]) for came in known}


def column_names(members: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return names that every reader of Delta takes: letters, digits and `_`, unique without regard to case.

    They follow from the set of members alone: a fit name that is free stays, lower case first; others get a number.

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


def leaves(
    kind: Kind, column: str, taken: Iterable[str] = (), path: tuple[str, ...] = ()
) -> dict[tuple[str, ...], tuple[str, str]]:
    """Return the columns in a column, or with "" in a row: path and SQL type by the path of names as they came.

    Where a value was `[]` or `{}` the type is "": it has a value in the column that comes with later elements or members.
    """
    if isinstance(kind, str):
        return {} if kind == NULL else {path: (column.removeprefix("."), _scalar(kind).sql)}
    if column and column_type(kind) == pa.null():
        return {path: (column.removeprefix("."), "")}
    [(shape, inner)] = kind.items()
    if shape != MEMBERS:
        return leaves(inner, f"{column}[]", path=(*path, "[]"))
    fields, found = columns_of(inner, taken), dict[tuple[str, ...], tuple[str, str]]()
    for came, one in inner.items():
        name = fields[came].name if came in fields else came
        found |= leaves(one, f"{column}.{name}", path=(*path, came))
    return found


# -- values -------------------------------------------------------------------------------------------------------------

_JSON = msgspec.json.Encoder(decimal_format="number")
_SHAPES = {LIST: "a list", MAP: "a map", MEMBERS: "members"}
_NAMES = {bool: "true or false", int | float | Decimal: "a number", str: "text", list: "a list", dict: "an object"}


class ColumnBuilder:
    """Build columns, each of all its values at once; with `drops` members that have no column are left out.

    Attributes:
        odd: by row why it is not in its columns, or "" if a part of it is text or left out, which may be of any depth and width.
    """

    def __init__(self, *, drops: bool) -> None:
        self.odd: dict[int, str] = {}
        self._drops = drops

    def column(self, kind: Kind, values: Sequence[Any], rows: Sequence[int], path: str = "") -> pa.Array:
        """Return the column of values, which are parts of these rows; without a type where nothing is known yet."""
        if isinstance(kind, str):
            return self._scalars(kind, values, rows, path)
        [(shape, inner)], wanted = kind.items(), list if LIST in kind else dict
        for row, value in zip(rows, values, strict=True):
            if value is not None and type(value) is not wanted:
                self._tell(row, path, f"{value_name(value)}, where the table has {_SHAPES[shape]}")
        several: list[Any] = [value if type(value) is wanted else None for value in values]
        mask = pa.array([value is None for value in several], pa.bool_())
        if shape == MEMBERS:
            members, fields = self._members(inner, several, rows, path), [*columns_of(inner).values()]
            return pa.StructArray.from_arrays(members, fields=fields, mask=mask) if fields else pa.nulls(len(rows))
        owners = [row for row, value in zip(rows, several, strict=True) for _ in value or ()]
        parts = [value.values() if shape == MAP else value for value in several if value]
        column = self.column(inner, [*chain.from_iterable(parts)], owners, f"{path}[]")
        if column.type == pa.null():
            return pa.nulls(len(rows))
        offsets = pa.array(accumulate((len(value or ()) for value in several), initial=0), pa.int32())
        if shape == LIST:
            return pa.ListArray.from_arrays(offsets, column, mask=mask)
        keys = pa.array([*chain.from_iterable(value for value in several if value)], pa.string())
        return pa.MapArray.from_arrays(offsets, keys, column, mask=mask)

    def _members(
        self, members: Mapping[str, Kind], objects: Sequence[Any], rows: Sequence[int], path: str
    ) -> list[pa.Array]:
        seen = {*chain.from_iterable(value for value in objects if value)}
        if not seen <= members.keys():
            for row, value in zip(rows, objects, strict=True):
                for name in [name for name, one in (value or {}).items() if one is not None and name not in members]:
                    if self._drops:
                        self.odd.setdefault(row, "")
                    else:
                        self._tell(row, f"{path}.{name}", "no column, and the table takes no new ones")
        columns = [
            self.column(kind, [None if value is None else value.get(name) for value in objects], rows, f"{path}.{name}")
            if name in seen
            else pa.nulls(len(rows), column_type(kind))
            for name, kind in members.items()
        ]
        return [column for column in columns if column.type != pa.null()]

    def _scalars(self, kind: str, values: Sequence[Any], rows: Sequence[int], path: str) -> pa.Array:
        scalar = _scalar(kind)
        if {*map(type, values)} <= {*scalar.values, type(None)}:
            with suppress(pa.ArrowInvalid, OverflowError):
                # A column of doubles refuses integers past 2^53.
                return pa.array(values, pa.float64() if kind == INT else scalar.type).cast(scalar.type)
        fitted = [None] * len(values)
        for at, (row, value) in enumerate(zip(rows, values, strict=True)):
            if value is None or (kind == NULL and self._drops):
                continue
            if isinstance(value, list | dict):
                self.odd.setdefault(row, "")
            try:
                fitted[at] = _fit(value, kind)
            except Inexact:
                self._tell(row, path, f"{value_name(value)}, which {scalar.sql} does not hold exactly")
            except (ValueError, ArithmeticError, RecursionError):
                why = f"which is not {scalar.sql}" if kind != NULL else "and the table has no column for it"
                self._tell(row, path, f"{value_name(value)}, {why}")
        return pa.array(fitted, scalar.type)

    def _tell(self, row: int, path: str, why: str) -> None:
        self.odd[row] = f"{path.removeprefix('.') or 'the value'} is {why}"


def value_name(value: Any) -> str:
    return next((name for types, name in _NAMES.items() if isinstance(value, types)), "of another type")


def _fit(value: Any, kind: str) -> Any:
    """Return a value as Arrow takes it for a scalar kind. If that does not hold it, raise a ValueError or an ArithmeticError."""
    if kind == TEXT:
        return text_of(value)
    if isinstance(value, str) and kind in _OF_TEXT:
        return _OF_TEXT[kind](value)
    if (found := _DECIMAL.fullmatch(kind)) and type(value) in (int, str, Decimal):
        digits, scale = map(int, found.groups())
        if (number := Decimal(value)).is_finite():
            exact = Context(prec=digits, traps=[InvalidOperation, Inexact])
            return exact.quantize(number, Decimal(1).scaleb(-scale))
    if kind in _LARGEST and type(value) in (int, Decimal):
        if abs(value) <= (2**53 if isinstance(value, int) else _LARGEST[kind]):
            return float(value)
    elif type(value) in _scalar(kind).values and (kind != INT or value in _EXACT):
        # Arrow refuses an integer of more bits.
        return pa.scalar(value, _scalar(kind).type).as_py()
    raise ValueError


def _moment(text: str) -> datetime:
    # Python 3.10 knows no Z.
    at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


_OF_TEXT: dict[str, Callable[[str], Any]] = {"binary": str.encode, "date": date.fromisoformat, "timestamp": _moment}


def text_of(value: Any) -> str:
    """Return a value as text: a text as it is, any other as JSON.

    >>> text_of("x"), text_of(10), text_of({"a b": [True, None]})
    ('x', '10', '{"a b":[true,null]}')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else _JSON.encode(value).decode()


def is_too_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(is_too_deep(one, levels - 1) for one in inner))
