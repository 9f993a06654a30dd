"""States of formats whose columns are merged as Arrow types: Protobuf and JSON Schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mirrorlake.tables.codec import NotATable
from mirrorlake.tables.json_types import MAX_COLUMNS, count_columns

_INTEGERS = (pa.int32(), pa.int64())
_FRACTIONS = (pa.float32(), pa.float64())


def merged_kind(newer: pa.DataType, older: pa.DataType, *, otherwise: pa.DataType | None = None) -> pa.DataType:
    """Return the newer of two types, with the members that only the older one has, and with the wider numbers.

    `otherwise` is the type that holds two types which contradict each other; without it the newer counts.

    Raises:
        NotATable: it has too many columns.
    """
    found = _merged(newer, older, otherwise)
    if count_columns(found) > MAX_COLUMNS:
        raise NotATable(f"its schema has more than {MAX_COLUMNS} columns")
    return found


def _merged(newer: pa.DataType, older: pa.DataType, otherwise: pa.DataType | None) -> pa.DataType:
    types = pa.types
    if types.is_struct(newer) and types.is_struct(older):
        known = {field.name: field.type for field in older}
        fields = [(one.name, _merged(one.type, known.pop(one.name, one.type), otherwise)) for one in newer]
        return pa.struct([*fields, *known.items()])
    if types.is_list(newer) and types.is_list(older):
        return pa.list_(_merged(newer.value_type, older.value_type, otherwise))
    if types.is_map(newer) and types.is_map(older):
        return pa.map_(newer.key_type, _merged(newer.item_type, older.item_type, otherwise))
    for numbers in (_INTEGERS, _FRACTIONS):
        if newer in numbers and older in numbers:
            return max(newer, older, key=numbers.index)
    return newer if otherwise is None or newer.equals(older) else otherwise


def refuse_contradiction(one: pa.DataType, whole: pa.DataType, path: tuple[str, ...] = ()) -> None:
    """Refuse a type whose values are none of a merged one, as a number of a text."""
    types = pa.types
    if types.is_struct(one) and types.is_struct(whole):
        known = {field.name: field.type for field in whole}
        for field in one:
            refuse_contradiction(field.type, known.get(field.name, field.type), (*path, field.name))
    elif types.is_list(one) and types.is_list(whole):
        refuse_contradiction(one.value_type, whole.value_type, path)
    elif types.is_map(one) and types.is_map(whole):
        refuse_contradiction(one.item_type, whole.item_type, path)
    elif not (types.is_null(one) or one.equals(whole) or _widens(one, whole)):
        raise NotATable(f"{'.'.join(path)} would be {one} and {whole} in one column")


def _widens(one: pa.DataType, whole: pa.DataType) -> bool:
    if pa.types.is_decimal(one) and pa.types.is_decimal(whole):
        return bool(whole.scale >= one.scale and whole.precision - whole.scale >= one.precision - one.scale)
    numbers = (*_INTEGERS, *_FRACTIONS)
    return one in numbers and whole in numbers and numbers.index(one) < numbers.index(whole)


def completed(value: Any, kind: pa.DataType, defaults: dict[tuple[str, ...], Any], path: tuple[str, ...] = ()) -> Any:
    """Give the objects in a value the members that their writer schema lacked: their defaults."""
    if not isinstance(value, dict) or not pa.types.is_struct(kind):
        return value
    for field in kind:
        place = (*path, field.name)
        if field.name not in value:
            value[field.name] = defaults.get(place)
        else:
            value[field.name] = completed(value[field.name], field.type, defaults, place)
    return value
