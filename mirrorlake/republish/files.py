"""Find the relay files behind rows that Spark reads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirrorlake.lake import RelayFile
from mirrorlake.model.flow import SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def list_files(rows: DataFrame, *, shared: bool = False) -> list[RelayFile]:
    """Return the files that rows of the relay come from, one per `file` and source partition.

    `shared` means that rows were omitted: a file may have more source partitions than the rows show.
    """
    from pyspark.sql import functions as F

    rows_by_file = (
        rows.groupBy("file", "topic", "generation", "partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records"))
        .collect()
    )
    sharing = Counter(row.file for row in rows_by_file)
    return [
        RelayFile(
            source=SourcePartition(row.topic, row.generation, row.partition),
            first_offset=row["first"],
            last_offset=row["last"],
            records=row.records,
            uri=row.file,
            shared=shared or sharing[row.file] > 1,
        )
        for row in rows_by_file
    ]
