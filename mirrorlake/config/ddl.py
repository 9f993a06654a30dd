"""Read a DDL string of columns, as `amount DECIMAL(12,2), sold_at TIMESTAMP`, into Arrow types, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrorlake.config.faults import fault_error

if TYPE_CHECKING:
    import pyarrow as pa

_HELP = "write columns as in CREATE TABLE: amount DECIMAL(12,2), sold_at TIMESTAMP, tags ARRAY<STRING>"


def columns_type(text: str) -> pa.StructType:
    """Return the columns of a DDL string as a struct.

    Example:
        >>> columns_type("amount DECIMAL(12,2), tags ARRAY<STRING>")
        StructType(struct<amount: decimal128(12, 2), tags: list<item: string>>)
    """
    import pyarrow as pa
    import sqlglot
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark

    try:
        made = sqlglot.parse_one(f"CREATE TABLE x ({text})", read=Spark)
    except sqlglot.ParseError:
        raise fault_error("it is no list of columns", _HELP) from None
    columns = made.this.expressions if isinstance(made.this, exp.Schema) else []
    if not columns or not all(isinstance(one, exp.ColumnDef) and one.args.get("kind") for one in columns):
        raise fault_error("it is no list of columns with types", _HELP)
    names = [one.name.lower() for one in columns]
    for name in names:
        if names.count(name) > 1:
            raise fault_error(f"it has two columns '{name}'", "give each a name of its own; case does not count")
    return pa.struct([(one.name, _type(one.args["kind"])) for one in columns])


def is_expression(text: str) -> bool:
    import sqlglot
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark

    try:
        found = sqlglot.parse_one(f"SELECT ({text}) AS x", read=Spark)
    except sqlglot.ParseError:
        return False
    return isinstance(found, exp.Select) and len(found.expressions) == 1 and len(found.args.get("from") or ()) == 0


def _type(kind: Any) -> pa.DataType:
    import pyarrow as pa
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark

    of = exp.DataType.Type
    plain = {
        of.TINYINT: pa.int8(),
        of.SMALLINT: pa.int16(),
        of.INT: pa.int32(),
        of.BIGINT: pa.int64(),
        of.FLOAT: pa.float32(),
        of.DOUBLE: pa.float64(),
        of.BOOLEAN: pa.bool_(),
        of.TEXT: pa.string(),
        of.BINARY: pa.binary(),
        of.DATE: pa.date32(),
        of.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
        of.TIMESTAMP: pa.timestamp("us", "UTC"),
    }
    if kind.this in plain:
        return plain[kind.this]
    inner = kind.expressions
    if kind.this is of.DECIMAL:
        precision, scale = ([int(one.name) for one in inner] + [0])[:2] if inner else (10, 0)
        if not 0 <= scale <= precision <= 38 or precision == 0:
            raise fault_error(
                f"DECIMAL({precision},{scale}) is out of range", "precision 1 to 38, scale 0 to precision"
            )
        return pa.decimal128(precision, scale)
    if kind.this is of.ARRAY and len(inner) == 1:
        return pa.list_(_type(inner[0]))
    if kind.this is of.MAP and len(inner) == 2:
        if inner[0].this is not of.TEXT:
            raise fault_error("the keys of a MAP must be STRING", "write MAP<STRING, ...>")
        return pa.map_(pa.string(), _type(inner[1]))
    if kind.this is of.STRUCT and inner and all(isinstance(one, exp.ColumnDef) for one in inner):
        return pa.struct([(one.name, _type(one.args["kind"])) for one in inner])
    raise fault_error(f"{kind.sql(dialect=Spark)} has no place in a table", "use a type of Delta, as STRING or DOUBLE")
