"""JSON values in columns whose types a person gave in `schema:`."""

from __future__ import annotations

import re
import sys
from datetime import date, datetime, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from mirrorlake.tables.columns import text_of
from mirrorlake.tables.kinds import EXACT, MAX_DEPTH, sql_name

_NAMES = (
    (bool, "true or false"),
    (int | float | Decimal, "a number"),
    (str, "text"),
    (list, "a list"),
    (dict, "an object"),
)


_MAX_EXPONENT = 400
_LARGEST = {32: 2.0**128 - 2.0**104, 64: sys.float_info.max}
"""The largest number of FLOAT and of DOUBLE, by bits."""


def exact_fraction(text: str) -> Decimal:
    """Return a JSON fraction with all of its digits; ten bytes name one of a million digits."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        raise ValueError("Number out of range") from None
    if abs(found.adjusted()) > _MAX_EXPONENT:
        raise ValueError("Number out of range")
    return found


class NotGiven(Exception):
    """A value that does not fit a type; the text names the place and what stands there, never the value."""

    def __init__(self, path: tuple[str, ...], found: str, wanted: str) -> None:
        super().__init__(f"{'.'.join(path).replace('.[]', '[]') or 'the value'} is {found}, {wanted}")


def given_value(value: Any, kind: pa.DataType, path: tuple[str, ...] = ()) -> Any:
    """Return a JSON value as `pyarrow.array` takes it for a type; members that the type lacks are left out.

    Raises:
        NotGiven: the type does not take it.
    """
    types = pa.types
    if value is None:
        return None
    if types.is_struct(kind) and isinstance(value, dict):
        return {one.name: given_value(value.get(one.name), one.type, (*path, one.name)) for one in kind}
    if types.is_list(kind) and isinstance(value, list):
        return [given_value(one, kind.value_type, (*path, "[]")) for one in value]
    if types.is_map(kind) and isinstance(value, dict):
        return [(key, given_value(one, kind.item_type, (*path, key))) for key, one in value.items()]
    if types.is_string(kind):
        return text_of(value)
    if types.is_boolean(kind) and isinstance(value, bool):
        return value
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if (
        types.is_integer(kind)
        and is_number
        and isinstance(value, int)
        and -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1)
    ):
        return value
    is_exact = not isinstance(value, int) or -EXACT <= value <= EXACT
    if types.is_floating(kind) and is_number and is_exact and abs(value) <= _LARGEST[kind.bit_width]:
        return float(value)
    if types.is_decimal(kind) and (is_number or isinstance(value, str)):
        return _decimal(value, kind, path)
    if types.is_binary(kind) and isinstance(value, str):
        return value.encode()
    if (types.is_date(kind) or types.is_timestamp(kind)) and isinstance(value, str):
        return _moment(value, kind, path)
    wanted = "where the table has members" if types.is_struct(kind) else f"which is not {sql_name(kind)}"
    raise NotGiven(path, value_name(value), wanted)


def is_too_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(is_too_deep(one, levels - 1) for one in inner))


def _decimal(value: Any, kind: pa.Decimal128Type, path: tuple[str, ...]) -> Decimal:
    try:
        found = Decimal(str(value))
        exact = found.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=77))
    except InvalidOperation:
        raise NotGiven(path, value_name(value), f"which is not {sql_name(kind)}") from None
    if exact != found or len(exact.as_tuple().digits) > kind.precision:
        raise NotGiven(path, "a number", f"which {sql_name(kind)} does not hold exactly")
    return exact


def _moment(value: str, kind: pa.DataType, path: tuple[str, ...]) -> datetime | date:
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(value)
        # Python 3.10 knows no Z.
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value.strip()))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise NotGiven(path, "text", f"which is not {sql_name(kind)}") from None


def value_name(value: Any) -> str:
    return next(name for kind, name in _NAMES if isinstance(value, kind))
