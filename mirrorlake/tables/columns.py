"""The columns of parsed values: cast to a kind that holds them, as Arrow arrays."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.tables.kinds import (
    DOUBLE,
    EXACT,
    INT,
    LIST,
    MAP,
    MEMBERS,
    NULL,
    TEXT,
    Kind,
    column_type,
    columns_of,
    lies_otherwise,
    members_of,
    rebuilds,
)

_JSON = msgspec.json.Encoder(decimal_format="number")


class Unequal(Exception):
    """An array whose values may not fit a kind: each is to be looked at."""


@dataclass(frozen=True)
class Columns:
    """The columns of a kind of values: the members of objects if they are `spread`, else one of this `name`.

    `taken` are names that no member may have.
    """

    kind: Kind
    name: str
    spread: bool = False
    taken: frozenset[str] = frozenset()

    @cached_property
    def members(self) -> dict[str, Kind] | None:
        return members_of(self.kind) if self.spread else None

    @cached_property
    def fields(self) -> dict[str, pa.DataType]:
        if self.members is not None:
            return {name: type_ for name, type_, _ in columns_of(self.members, self.taken)}
        type_ = column_type(self.kind)
        return {} if type_ is None else {self.name: type_}

    def is_rebuilt_for(self, wider: Kind) -> bool:
        return rebuilds(self.kind, wider, self.taken) if self.spread else lies_otherwise(self.kind, wider)

    def of_values(self, values: Sequence[Any]) -> dict[str, pa.Array]:
        """Return the columns of values, whose kinds the kind holds."""
        if self.members is None:
            return {name: pa.array(map(caster(self.kind), values), type_) for name, type_ in self.fields.items()}
        found = {}
        for name, type_, raw in columns_of(self.members, self.taken):
            to = caster(self.members[raw])
            found[name] = pa.array([None if one is None else to(one.get(raw)) for one in values], type_)
        return found

    def of_same(self, values: Sequence[Any]) -> dict[str, pa.Array]:
        """Return the columns of values of a registry's schemas that lie as in these columns, but for members that they lack."""
        type_ = column_type(self.kind, raw=True)
        return {} if type_ is None else self.of_array(pa.array(values, type_))

    def of_array(self, found: pa.Array) -> dict[str, pa.Array]:
        """Return the columns of an array with names as they came.

        Raises:
            Unequal: one of its values may not fit.
        """
        if self.members is None:
            fitted = _fitted(found, self.kind)
            return dict.fromkeys(self.fields, fitted)
        return _fitted_members(found, self.members, self.taken)


def _fitted(found: pa.Array, kind: Kind) -> pa.Array:
    wanted = column_type(kind)
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), wanted)
    if isinstance(kind, dict):
        [(shape, inner)] = kind.items()
        if shape == MEMBERS and pa.types.is_struct(found.type):
            columns = _fitted_members(found, inner)
            if wanted is None:
                return pa.nulls(len(found))
            return pa.StructArray.from_arrays([*columns.values()], fields=[*wanted], mask=found.is_null())
        if shape == LIST and pa.types.is_list(found.type):
            values = _fitted(found.values, inner)
            return (
                pa.nulls(len(found))
                if wanted is None
                else pa.ListArray.from_arrays(found.offsets, values, type=wanted, mask=found.is_null())
            )
        if shape == MAP and pa.types.is_map(found.type):
            items = _fitted(found.items, inner)
            return pa.MapArray.from_arrays(found.offsets, found.keys, items, type=wanted, mask=found.is_null())
    elif found.type == wanted:
        if kind != INT or _is_exact(found):
            return found
    elif (found.type, kind) == (pa.int64(), DOUBLE) and _is_exact(found):
        return found.cast(wanted)
    raise Unequal


def _fitted_members(
    found: pa.Array, members: dict[str, Kind], taken: frozenset[str] = frozenset()
) -> dict[str, pa.Array]:
    if pa.types.is_null(found.type):
        return {name: pa.nulls(len(found), type_) for name, type_, _ in columns_of(members, taken)}
    if not pa.types.is_struct(found.type):
        raise Unequal
    held = {field.name: array for field, array in zip(found.type, found.flatten(), strict=True)}
    if any(name not in members and not pa.types.is_null(array.type) for name, array in held.items()):
        raise Unequal
    fitted = {name: _fitted(held[name], kind) for name, kind in members.items() if name in held}
    return {
        name: fitted[raw] if raw in fitted else pa.nulls(len(found), type_)
        for name, type_, raw in columns_of(members, taken)
    }


def _is_exact(found: pa.Array) -> bool:
    ends = pc.min_max(found).as_py()
    return ends["min"] is None or (ends["min"] >= -EXACT and ends["max"] <= EXACT)


def caster(kind: Kind) -> Callable[[Any], Any]:
    """Return a function that returns a value as Arrow takes it for a kind that holds it; None stays None."""
    if kind in (TEXT, DOUBLE):
        plain = text_of if kind == TEXT else float
        return lambda value: None if value is None else plain(value)
    if kind == NULL:
        return lambda _: None
    if isinstance(kind, str):
        return lambda value: value
    [(shape, inner)] = kind.items()
    if shape == MEMBERS:
        members = [(name, raw, caster(inner[raw])) for name, _, raw in columns_of(inner)]
        return lambda value: None if value is None else {name: to(value.get(raw)) for name, raw, to in members}
    to = caster(inner)
    if shape == LIST:
        return lambda value: None if value is None else [to(one) for one in value]
    return lambda value: None if value is None else [(key, to(one)) for key, one in value.items()]


def text_of(value: Any) -> str:
    """Return a value as text: a text as it is, any other as JSON.

    >>> text_of("x"), text_of(10), text_of({"a b": [True, None]})
    ('x', '10', '{"a b":[true,null]}')
    """
    match value:
        case str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
    return _JSON.encode(value).decode()
