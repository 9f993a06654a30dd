"""Comments of columns, from the schemas of a registry: `doc` of Avro, `description` of JSON Schema, comments of Protobuf.

A path names the members from a column down, as Delta does: the elements of a list are `element`, the values of a map `value`. The
empty path is the table itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlake.lake import quote
from mirrorlake.tables.json_types import raw_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Path = tuple[str, ...]
Comments = Mapping[Path, str]


def by_column(kind: pa.DataType, told: Comments) -> dict[Path, str]:
    """Return the comments of a format by the path of their column; `told` has the records' names, without lists and maps."""
    found = dict(_by_column(kind, told, (), ()))
    return {(): told[()], **found} if () in told else found


def _by_column(kind: pa.DataType, told: Comments, raw: Path, path: Path) -> Iterator[tuple[Path, str]]:
    if pa.types.is_struct(kind):
        for field in kind:
            inner = (*raw, raw_name(field)), (*path, field.name)
            if inner[0] in told:
                yield inner[1], told[inner[0]]
            yield from _by_column(field.type, told, *inner)
    elif pa.types.is_list(kind):
        yield from _by_column(kind.value_type, told, raw, (*path, "element"))
    elif pa.types.is_map(kind):
        yield from _by_column(kind.item_type, told, raw, (*path, "value"))


def with_comments(columns: StructType, comments: Comments) -> StructType:
    """Return columns with these comments at all depths."""
    made: StructType = _with_comments(columns, comments, ())
    return made


def _with_comments(kind: DataType, comments: Comments, path: Path) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        fields = []
        for one in kind.fields:
            at = (*path, one.name)
            metadata = {**one.metadata, **({"comment": comments[at]} if at in comments else {})}
            fields.append(StructField(one.name, _with_comments(one.dataType, comments, at), one.nullable, metadata))
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_with_comments(kind.elementType, comments, (*path, "element")), kind.containsNull)
    if isinstance(kind, MapType):
        value = _with_comments(kind.valueType, comments, (*path, "value"))
        return MapType(kind.keyType, value, kind.valueContainsNull)
    return kind


def ddl_type(kind: DataType) -> str:
    """Return a type as SQL, with the comments of its members."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        members = [
            f"`{one.name}`: {ddl_type(one.dataType)}"
            + (f" COMMENT {quote(one.metadata['comment'])}" if "comment" in one.metadata else "")
            for one in kind.fields
        ]
        return f"struct<{', '.join(members)}>"
    if isinstance(kind, ArrayType):
        return f"array<{ddl_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{ddl_type(kind.keyType)}, {ddl_type(kind.valueType)}>"
    return str(kind.simpleString())


def has_path(kind: DataType, path: Path) -> bool:
    """Return whether a table's columns have a member."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not path:
        return True
    name, *rest = path
    if isinstance(kind, StructType):
        return name in kind.names and has_path(kind[name].dataType, tuple(rest))
    if isinstance(kind, ArrayType) and name == "element":
        return has_path(kind.elementType, tuple(rest))
    return isinstance(kind, MapType) and name == "value" and has_path(kind.valueType, tuple(rest))
