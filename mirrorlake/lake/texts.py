"""Read the small files of a folder as texts: those of a checkpoint location, or the signs of landers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mirrorlake.runtime import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def texts_of(folder: Folder) -> dict[str, str]:
    """Read the files by their names; a missing folder has none."""
    found = {}
    for name in folder.names():
        if not name or name.startswith((".", "_")):
            # Spark does not see them either.
            continue
        # A running query removes old files of its checkpoint location.
        with suppress(FileNotFoundError, IsADirectoryError):
            found[name] = folder.read(name)
    return found


def texts_by_spark(spark: SparkSession, folder: str) -> dict[str, str]:
    """Read the files of any folder that Spark can read, as `texts_of` does."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    try:
        rows = (
            spark.read.text(folder, wholetext=True)
            .select(F.col("_metadata.file_name").alias("name"), "value")
            .collect()
        )
    except AnalysisException:
        return {}
    return {row.name: row.value for row in rows}
