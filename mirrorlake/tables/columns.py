"""The changes of a typed table's columns: new ones, and wider types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.tables.decoding import RESERVED, objects_first
from mirrorlake.tables.json_types import MAX_COLUMNS, NULL, count_columns, known_part, named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def widened(
    kind: pa.DataType | None, found: Iterable[pa.DataType], *, taken: frozenset[str] = frozenset()
) -> pa.DataType | None:
    """Return a type widened by others, as far as a table takes it: names that were given stay."""
    for other in found:
        wider = known_part(objects_first(NULL if kind is None else kind, other))
        if wider is not None and count_columns(wider) <= MAX_COLUMNS:
            kind = named(wider, taken=taken)
    return kind


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    added: tuple[str, ...]
    recast: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not self.added and not self.recast


def column_changes(have: DataType, want: DataType, place: str = "") -> ColumnChanges:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(have, StructType) and isinstance(want, StructType):
        known = {one.name: one.dataType for one in have.fields}
        added = [f"{place}{one.name}" for one in want.fields if one.name not in known]
        changed = list[str]()
        for one in want.fields:
            if one.name in known:
                inner = column_changes(known[one.name], one.dataType, f"{place}{one.name}.")
                added += inner.added
                changed += inner.recast
        return ColumnChanges(tuple(added), tuple(changed))
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        return column_changes(have.elementType, want.elementType, place)
    # Whether members may be null does not count.
    return ColumnChanges((), () if have.simpleString() == want.simpleString() else (place.removesuffix("."),))


def merged_schema(have: StructType, want: StructType) -> StructType:
    """Return the columns of a table, widened, and after them those that it lacks."""
    from pyspark.sql.types import StructField, StructType

    wanted = {one.name: one for one in want.fields}
    known = {one.name for one in have.fields}
    kept = [StructField(one.name, wanted.get(one.name, one).dataType, metadata=one.metadata) for one in have.fields]
    return StructType([*kept, *(one for one in want.fields if one.name not in known)])


def recast(
    column: Column,
    have: DataType,
    want: DataType,
    defaults: Mapping[tuple[str, ...], Any] = MappingProxyType({}),
    path: tuple[str, ...] = (),
) -> Column:
    """Return a column as a wider type: a missing member gets its default, or null, and what becomes text is JSON."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if have == want:
        return column
    if isinstance(have, StructType) and isinstance(want, StructType):
        known = {one.name: one.dataType for one in have.fields}
        members = [
            recast(column[one.name], known[one.name], one.dataType, defaults, (*path, one.name)).alias(one.name)
            if one.name in known
            else default_of((*path, one.name), one.dataType, defaults).alias(one.name)
            for one in want.fields
        ]
        return F.when(column.isNotNull(), F.struct(*members))
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        return F.transform(column, lambda one: recast(one, have.elementType, want.elementType, defaults, path))
    if isinstance(want, StringType) and isinstance(have, StructType | ArrayType | MapType):
        return F.to_json(column)
    return column.cast(want)


def default_of(path: tuple[str, ...], kind: DataType, defaults: Mapping[tuple[str, ...], Any]) -> Column:
    """Return a missing column's default, or null; an object or a list with elements as a default is null."""
    from pyspark.sql import functions as F

    value = defaults.get(path)
    if value == []:
        return F.array().cast(kind)
    return F.lit(None if isinstance(value, dict | list) else value).cast(kind)


def rewritten(table: DataFrame, wanted: StructType, defaults: Mapping[tuple[str, ...], Any]) -> DataFrame:
    from pyspark.sql import functions as F

    known = {one.name: one.dataType for one in table.schema.fields}
    values = [F.col(f"`{name}`") for name in known if name not in RESERVED]
    # A tombstone's row has no value.
    has_value = (
        F.coalesce(*(F.when(one.isNotNull(), F.lit(1)) for one in values)).isNotNull() if values else F.lit(True)
    )
    return table.select(
        *(
            recast(F.col(f"`{one.name}`"), known[one.name], one.dataType, defaults, (one.name,)).alias(
                one.name, metadata=one.metadata
            )
            if one.name in known
            else F.when(has_value, default_of((one.name,), one.dataType, defaults)).alias(
                one.name, metadata=one.metadata
            )
            for one in merged_schema(table.schema, wanted).fields
        )
    )
