"""Create a typed table: its columns with comments, its partitions and its properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirrorlake.errors import ColumnUnknown, UsageError
from mirrorlake.lake import APPEND_ONLY, REMOVABLE, Lake, TableSchema
from mirrorlake.tables.decoding import KEY
from mirrorlake.tables.definition import TypedTable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_COMMENTS = {
    "_source": "Alias of the source cluster",
    "_topic": "Source topic",
    "_generation": "Generation of the source partition",
    "_partition": "Source partition",
    "_offset": "Upstream offset",
    "_timestamp": "Record timestamp",
    "value": "Value of the record",
}


def create_table(lake: Lake, table: TypedTable, columns: StructType, types: Mapping[str, str]) -> None:
    """Create a table unless it exists; `types` are its further properties. UsageError if it cannot be partitioned as they say."""
    schema = TableSchema(
        name=table.name,
        comment=f"Records of {', '.join(table.topics)}: {table.config.mode}, values {table.config.values}",
        columns={one.name: (_ddl_type(one.dataType), _comment(table, one.name)) for one in columns.fields},
        properties={**APPEND_ONLY, **REMOVABLE, **table.properties, **types},
        partition_by=_partitions(columns, table),
    )
    lake.create_typed(lake.typed_location(table.name), schema)


def commented(columns: StructType, table: TypedTable) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(one.name, one.dataType, one.nullable, {**one.metadata, "comment": _comment(table, one.name)})
            for one in columns.fields
        ]
    )


def _comment(table: TypedTable, column: str) -> str:
    config = table.config
    if column in config.columns:
        return f"Derived: {config.columns[column]}"
    return _COMMENTS.get(column, f"Key of the record, {config.keys}" if column == KEY else "Member of the value")


def _ddl_type(kind: DataType) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'`{one.name}`: {_ddl_type(one.dataType)}' for one in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_ddl_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_ddl_type(kind.keyType)}, {_ddl_type(kind.valueType)}>"
    return str(kind.simpleString())


def _partitions(columns: StructType, table: TypedTable) -> tuple[str, ...]:
    """Return the columns by which a table of these columns is partitioned.

    Raises:
        ColumnUnknown: no record has brought one.
        UsageError: its type is none of a partition.
    """
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    kinds = {one.name: one.dataType for one in columns.fields}
    for at, name in enumerate(table.config.partition_by):
        if isinstance(kinds.get(name), ArrayType | BinaryType | MapType | StructType):
            kind, why = UsageError, f"its column {name} is {kinds[name].simpleString()[:60]}"
        elif name not in kinds:
            kind, why = ColumnUnknown, f"its first records have no column {name}"
        else:
            continue
        raise kind(
            f"the table {table.name} cannot be partitioned by {name} ({table.config.place}.partition_by[{at}]): {why}",
            consequence="no record is written to it",
            remedy="name a column of few values, derive it in `columns:`, or write its type in `schema:`; then resume the table",
            table=table.name,
        )
    return table.config.partition_by
