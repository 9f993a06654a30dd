"""The column types of JSON values: inferred from records, widened by later ones, and filled from them.

Types are Arrow's. A number is `int64`, `double`, or, where neither holds it exactly, text; an object is a struct. A type that
must hold two others is the narrowest of `int64`, `double` and text that holds both; nothing is rounded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

LONG, DOUBLE, TEXT, BOOL, NULL = pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.null()
EMPTY = pa.struct([])

_LONGS = range(-(2**63), 2**63)
# Every integer up to here has a double of its own.
_EXACT = 2**53
# An object whose members are data, such as a map by customer, would make a table that no tool opens.
MAX_COLUMNS = 1_000
_MAX_DEPTH = 32
_ELEMENT = "[]"
_RAW = b"raw"


class Misfit(Exception):
    """A value that a type does not take; `path` is where, `found` what is there, never the value itself."""

    def __init__(self, path: tuple[str, ...], found: str, wanted: str) -> None:
        super().__init__(path, found, wanted)
        self.path = path
        self.found = found
        self.wanted = wanted

    def __str__(self) -> str:
        place = ".".join(self.path).replace(f".{_ELEMENT}", _ELEMENT) or "the value"
        return f"{place} is {self.found}, {self.wanted}"


def type_of(value: Any) -> pa.DataType:
    """Return the narrowest type of a decoded JSON value; a Misfit if it is nested more than 32 deep."""
    return _type_of(value, ())


def _type_of(value: Any, path: tuple[str, ...]) -> pa.DataType:
    if len(path) > _MAX_DEPTH:
        raise Misfit(path[:3], "nested too deep", f"more than {_MAX_DEPTH} levels")
    match value:
        case None:
            return NULL
        case bool():
            return BOOL
        case int():
            return LONG if value in _LONGS else TEXT
        case float() | Decimal():
            return DOUBLE
        case str():
            return TEXT
        case list():
            element: pa.DataType = NULL
            for one in value:
                element = merged(element, _type_of(one, (*path, _ELEMENT)))
            return pa.list_(element)
        case _:
            return pa.struct([pa.field(name, _type_of(one, (*path, name))) for name, one in value.items()])


def merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds all values of two types."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(merged(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        known = {raw_name(field): field for field in one}
        for field in other:
            name = raw_name(field)
            known[name] = field if name not in known else known[name].with_type(merged(known[name].type, field.type))
        return pa.struct(list(known.values()))
    return DOUBLE if {one, other} == {LONG, DOUBLE} else TEXT


def known_part(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without members whose type is still unknown, as of null, `[]` and `{}`; None if nothing is known."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        element = known_part(kind.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_struct(kind):
        fields = [(field, known_part(field.type)) for field in kind]
        known = [field.with_type(inner) for field, inner in fields if inner is not None]
        return pa.struct(known) if known else None
    return kind


def count_columns(kind: pa.DataType) -> int:
    if pa.types.is_list(kind):
        return count_columns(kind.value_type)
    return sum(count_columns(field.type) for field in kind) if pa.types.is_struct(kind) else 1


# -- names --------------------------------------------------------------------------------------------------------------


def raw_name(field: pa.Field) -> str:
    """Return the name of a column's member in the records."""
    raw = (field.metadata or {}).get(_RAW)
    return str(field.name) if raw is None else str(raw.decode())


def named(kind: pa.DataType, *, taken: Iterable[str] = ()) -> pa.DataType:
    """Return a type with names that every reader of Delta takes: letters, digits and `_`, unique without regard to case.

    A member keeps a name that is fit; `raw_name` returns the records' name of any. `taken` are names that no member may have.
    """
    if pa.types.is_list(kind):
        return pa.list_(named(kind.value_type))
    if not pa.types.is_struct(kind):
        return kind
    # Names that were given before stay: a later member must not take one.
    used = {name.lower() for name in taken} | {field.name.lower() for field in kind if field.metadata}
    fields = []
    for field in kind:
        raw, name = raw_name(field), field.name
        if not field.metadata:
            base = name = re.sub(r"\W", "_", raw) or "_"
            number = 2
            while name.lower() in used:
                name, number = f"{base}_{number}", number + 1
            used.add(name.lower())
        fields.append(pa.field(name, named(field.type), metadata={_RAW: raw.encode()}))
    return pa.struct(fields)


def to_text(kind: pa.DataType) -> str:
    return base64.b64encode(pa.schema([pa.field("value", kind)]).serialize().to_pybytes()).decode()


def from_text(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).type


# -- values -------------------------------------------------------------------------------------------------------------


def arrays_of(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Return values as an array of a type, or None if one of them may not fit: ask `conformed` for each.

    Arrow infers the type of all values at once, which takes a tenth of the time of a look at each.
    """
    try:
        found = pa.array(values)
        return _as(found, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, _Unequal):
        return None


def renamed(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with the names of a type that differs in nothing else."""
    if found.type.equals(kind):
        return found
    if pa.types.is_struct(kind):
        inner = [renamed(found.field(place), field.type) for place, field in enumerate(kind)]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=found.is_null())
    if pa.types.is_list(kind):
        values = renamed(found.values, kind.value_type)
        return pa.ListArray.from_arrays(found.offsets, values, type=kind, mask=found.is_null())
    return found


class _Unequal(Exception):
    pass


def _as(found: pa.Array, kind: pa.DataType) -> pa.Array:
    if found.type.equals(kind):
        return found
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(found.type):
        known = {raw_name(field): field for field in kind}
        if any(field.name not in known and known_part(field.type) is not None for field in found.type):
            raise _Unequal
        inner = [
            _as(found.field(place), field.type)
            if (place := found.type.get_field_index(raw_name(field))) >= 0
            else pa.nulls(len(found), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=found.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(found.type):
        return pa.ListArray.from_arrays(
            found.offsets, _as(found.values, kind.value_type), type=kind, mask=found.is_null()
        )
    if (found.type, kind) == (LONG, DOUBLE):
        return found.cast(DOUBLE)
    raise _Unequal


def conformed(value: Any, kind: pa.DataType, *, drops: bool = False) -> Any:
    """Return a decoded JSON value as `pyarrow.array` takes it for a type, or raise a Misfit; `drops` leaves out what the type lacks."""
    return _conformed(value, kind, (), drops=drops)


def _conformed(value: Any, kind: pa.DataType, path: tuple[str, ...], *, drops: bool) -> Any:
    if value is None:
        return None
    types = pa.types
    if types.is_struct(kind):
        if not isinstance(value, dict):
            raise Misfit(path, _named(value), "where the table has members")
        if not drops:
            _require_known(value, kind, path)
        return {
            field.name: _conformed(value.get(raw := raw_name(field)), field.type, (*path, raw), drops=drops)
            for field in kind
        }
    if types.is_list(kind):
        if not isinstance(value, list):
            raise Misfit(path, _named(value), "where the table has a list")
        return [_conformed(one, kind.value_type, (*path, _ELEMENT), drops=drops) for one in value]
    if types.is_map(kind):
        if not isinstance(value, dict):
            raise Misfit(path, _named(value), "where the table has a map")
        return [(key, _conformed(one, kind.item_type, (*path, key), drops=drops)) for key, one in value.items()]
    return _scalar(value, kind, path)


def _require_known(value: Mapping[str, Any], kind: pa.DataType, path: tuple[str, ...]) -> None:
    known = {raw_name(field) for field in kind}
    for name in value.keys() - known:
        if known_part(_type_of(value[name], (*path, name))) is not None:
            raise Misfit((*path, name), "no column", "and the table takes no new ones")


def _scalar(value: Any, kind: pa.DataType, path: tuple[str, ...]) -> Any:
    types, wanted = pa.types, f"which is not {_sql(kind)}"
    if types.is_null(kind):
        raise Misfit(path, _named(value), "and the table has no column for it")
    if types.is_string(kind):
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if types.is_boolean(kind):
        if isinstance(value, bool):
            return value
    elif types.is_integer(kind):
        bits = kind.bit_width - 1
        if isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits:
            return value
    elif types.is_floating(kind):
        if isinstance(value, float | Decimal) or (_is_integer(value) and _is_exact(value)):
            return float(value)
    elif types.is_decimal(kind):
        return _decimal(value, kind, path)
    elif types.is_binary(kind):
        if isinstance(value, str):
            return value.encode()
    elif isinstance(value, str):
        return _moment(value, kind, path)
    raise Misfit(path, _named(value), wanted)


def _decimal(value: Any, kind: pa.DataType, path: tuple[str, ...]) -> Decimal:
    try:
        if isinstance(value, bool):
            raise InvalidOperation
        found = Decimal(str(value))
        if not found.is_finite():
            raise InvalidOperation
        exact = found.quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        raise Misfit(path, _named(value), f"which is not {_sql(kind)}") from None
    if exact != found or len(exact.as_tuple().digits) > kind.precision:
        raise Misfit(path, "a number", f"which {_sql(kind)} does not hold exactly")
    return exact


def _moment(value: str, kind: pa.DataType, path: tuple[str, ...]) -> datetime | date:
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(value)
        # Python 3.10 knows no Z.
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value.strip()))
        return at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    except ValueError:
        raise Misfit(path, "text", f"which is not {_sql(kind)}") from None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_exact(value: int) -> bool:
    if -_EXACT <= value <= _EXACT:
        return True
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _named(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float() | Decimal():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
    return "an object"


def _sql(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    if pa.types.is_date(kind):
        return "DATE"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return {"int64": "BIGINT", "int32": "INT", "int16": "SMALLINT", "bool": "BOOLEAN"}.get(str(kind), str(kind).upper())


def columns_of(kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns of a value's type: the members of a struct, else one column `value`; none if it is unknown."""
    if pa.types.is_null(kind):
        return
    if pa.types.is_struct(kind):
        yield from ((field.name, field.type) for field in kind)
    else:
        yield "value", kind
