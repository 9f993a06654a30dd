"""The relays' records as batches of a typed table: those of its topics, and those past or before its positions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import own_session, require_classic_session
from mirrorlake.tables.definition import TypedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session_of(spark: SparkSession) -> SparkSession:
    """Return a new session: the transaction of a MERGE is a setting of its session."""
    require_classic_session(spark)
    session = own_session(spark)
    for name in ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone"):
        session.conf.set(name, str(spark.conf.get(name)))
    return session


def with_sources(relays: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records of relays in one frame, with their source cluster as `_source`."""
    from pyspark.sql import functions as F

    frames = (relay.withColumn("_source", F.lit(source)) for source, relay in relays.items())
    return reduce(lambda one, other: one.unionByName(other), frames)


def records_of_table(records: DataFrame, table: TypedTable) -> DataFrame:
    """Return the records of a table's topics, with their coordinates as columns of the table; `records` have their source."""
    from pyspark.sql import functions as F

    chosen = records.where(F.col("topic").rlike(table.config.topics_regex))
    if "{topic}" in table.config.name:
        chosen = chosen.where(F.col("topic").isin(*{topic for topics in table.topics.values() for topic in topics}))
    return chosen.select(
        "_source",
        *(F.col(name).alias(f"_{name}") for name in ("topic", "generation", "partition", "offset", "timestamp")),
        "key",
        "value",
        *(["headers"] if table.config.through else []),
    )


def past(frame: DataFrame, positions: Mapping[str, Mapping[SourcePartition, int]]) -> DataFrame:
    if not any(positions.values()):
        return frame
    return _with_position(frame, positions).where("_offset >= coalesce(_position, 0)").drop("_position")


def before(frame: DataFrame, positions: Mapping[str, Mapping[SourcePartition, int]]) -> DataFrame:
    return _with_position(frame, positions).where("_offset < _position").drop("_position")


def _with_position(frame: DataFrame, positions: Mapping[str, Mapping[SourcePartition, int]]) -> DataFrame:
    from pyspark.sql import functions as F

    known = [
        (source, at.topic, at.generation, at.partition, position)
        for source, of_source in positions.items()
        for at, position in of_source.items()
    ]
    columns = "_source string, _topic string, _generation int, _partition int, _position bigint"
    table = F.broadcast(frame.sparkSession.createDataFrame(known, columns))
    return frame.join(table, ["_source", "_topic", "_generation", "_partition"], "left")
