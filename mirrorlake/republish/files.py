"""Which files of the relay hold what, and the rounds in which a backfill sends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.lake import RelayFile, overlapping
from mirrorlake.model.flow import SourcePartition


def files_of(rows: DataFrame, *, shared: bool = False) -> list[RelayFile]:
    """Return the files that rows of the relay, each with its `file`, come from; one per file and source partition.

    `shared` says that rows were left out, so that a file may hold more source partitions than can be seen here.
    """
    found = (
        rows.groupBy("file", "topic", "generation", "partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records"))
        .collect()
    )
    sharing = Counter(row.file for row in found)
    return [
        RelayFile(
            source=SourcePartition(row.topic, row.generation, row.partition),
            first_offset=row["first"],
            last_offset=row["last"],
            records=row.records,
            uri=row.file,
            shared=shared or sharing[row.file] > 1,
        )
        for row in found
    ]


def rounds(files: list[RelayFile], records: int) -> Iterable[list[RelayFile]]:
    """Cut sorted files into rounds of about `records`; files of one source partition that lie over one another stay together."""
    part: list[RelayFile] = []
    held = 0
    # By offset across partitions, so that all lanes have work in every round.
    stretches = sorted(overlapping(files), key=lambda s: (s[0].source.generation, s[0].first_offset, s[0].source))
    for stretch in stretches:
        part += stretch
        held += sum(file.records for file in stretch)
        if held >= records:
            yield sorted(part)
            part, held = [], 0
    if part:
        yield sorted(part)


def between(relay: DataFrame, files: list[RelayFile]) -> DataFrame:
    """Return the records that the files hold, where Spark reads them."""
    rows = [(f.source.topic, f.source.generation, f.source.partition, f.first_offset, f.last_offset) for f in files]
    spans = relay.sparkSession.createDataFrame(
        rows, "topic string, generation int, partition int, first bigint, last bigint"
    )
    return relay.join(F.broadcast(spans), ["topic", "generation", "partition"]).where("offset between first and last")
