"""States of formats whose columns are merged as Arrow types: Protobuf and JSON Schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mirrorlake.tables.codec import NotATable
from mirrorlake.tables.json_types import MAX_COLUMNS, count_columns

_INTEGERS = (pa.int32(), pa.int64())
_FRACTIONS = (pa.float32(), pa.float64())


def merged_kind(newer: pa.DataType, older: pa.DataType) -> pa.DataType:
    """Return the newer of two types, with the members that only the older one has, and with the wider numbers.

    Raises:
        NotATable: it has too many columns.
    """
    found = _merged(newer, older)
    if count_columns(found) > MAX_COLUMNS:
        raise NotATable(f"its schema has more than {MAX_COLUMNS} columns")
    return found


def _merged(newer: pa.DataType, older: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(newer) and types.is_struct(older):
        known = {field.name: field.type for field in older}
        fields = [(one.name, _merged(one.type, known.pop(one.name, one.type))) for one in newer]
        return pa.struct([*fields, *known.items()])
    if types.is_list(newer) and types.is_list(older):
        return pa.list_(_merged(newer.value_type, older.value_type))
    if types.is_map(newer) and types.is_map(older):
        return pa.map_(newer.key_type, _merged(newer.item_type, older.item_type))
    for numbers in (_INTEGERS, _FRACTIONS):
        if newer in numbers and older in numbers:
            return max(newer, older, key=numbers.index)
    return newer


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
