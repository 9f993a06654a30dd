"""A file of records as a frame to publish: JSON lines, whose lines are the values, or Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError
from mirrorlake.publish.rows import REFUSAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def read_records_of(session: Callable[[], SparkSession], path: str | Path, *, key: str | None = None) -> DataFrame:
    """Return the file's records in its order, with the columns that `publish` takes.

    A Parquet file with a column `value` of bytes or text is used as it is; rows of any other Parquet file become JSON
    documents. Every other file is read as JSON lines, one document a line, whose bytes are the value. `key` names the
    field whose value, as text, is the record's key. `session` is called only if the file exists: a mistyped name
    starts no Spark.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{path} does not exist", consequence="nothing was published", remedy="name an existing file")
    spark = session()
    if file.suffix != ".parquet":
        return _json_lines(spark, file, key)
    frame = spark.read.parquet(str(file.absolute()))
    if key is not None and key not in frame.columns:
        raise UsageError(
            f"{path} has no column '{key}'",
            consequence="nothing was published",
            remedy=f"name one of: {', '.join(frame.columns)}",
        )
    held = {field.name: field.dataType for field in frame.schema.fields}
    if isinstance(held.get("value"), T.BinaryType | T.StringType):
        return frame if key in (None, "key") else frame.withColumn("key", F.col(f"`{key}`").cast("string"))
    columns = [F.to_json(F.struct("*")).alias("value")]
    if key is not None:
        columns.append(F.col(f"`{key}`").cast("string").alias("key"))
    return frame.select(*columns)


def _json_lines(spark: SparkSession, file: Path, key: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    lines = spark.read.text(str(file.absolute())).where(F.length(F.trim("value")) > 0)
    value = _unless(F.try_parse_json("value").isNull(), "a line that is not JSON", F.col("value"))
    if key is None:
        return lines.select(value.alias("value"))
    field = F.get_json_object("value", f"$['{key}']")
    return lines.select(
        value.alias("value"), _unless(field.isNull(), f"a record without the field '{key}'", field).alias("key")
    )


def _unless(is_wrong: Column, what: str, column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(is_wrong, F.raise_error(F.lit(f"{REFUSAL}{what}")).cast("string")).otherwise(column)
