"""Build and split rows of the side tables that several packages use."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import Gap

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Row = dict[str, Any]


def position_row(
    cluster: str,
    source: SourcePartition,
    kind: str,
    position: int | None,
    at: datetime,
    *,
    flow: str | None = None,
    group: str | None = None,
    record_timestamp: datetime | None = None,
    landed_at: datetime | None = None,
) -> Row:
    return {
        "source": cluster,
        "flow": flow,
        "topic": source.topic,
        "generation": source.generation,
        "partition": source.partition,
        "kind": kind,
        "group_id": group,
        "position": position,
        "record_timestamp": record_timestamp,
        "landed_at": landed_at,
        "observed_at": at,
    }


def gap_row(cluster: str, gap: Gap, at: datetime) -> Row:
    return {
        "source": cluster,
        "topic": gap.source.topic,
        "generation": gap.source.generation,
        "partition": gap.source.partition,
        "first_offset": gap.first_offset,
        "last_offset": gap.last_offset,
        "missing": gap.missing,
        "kind": gap.kind,
        "detected_at": at,
    }


def each_offset(withheld: DataFrame) -> DataFrame:
    """Return a row for every offset in `withheld`: its columns without `ranges`, and `offset`."""
    from pyspark.sql import functions as F

    def stretch(part: Column) -> Column:
        return F.sequence(part.first, part.first + part.length - 1)

    return withheld.withColumn("offset", F.explode(F.flatten(F.transform("ranges", stretch)))).drop("ranges")
