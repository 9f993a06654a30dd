"""The relays' records of a typed table: all of them, and those past or before its positions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from functools import reduce
from typing import TYPE_CHECKING

from mirrorlake.lake import Lake, RelayPart
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import own_session, require_classic_session
from mirrorlake.tables.decode import PARTITION
from mirrorlake.tables.definition import TypedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Positions = Mapping[str, Mapping[SourcePartition, int]]


def session_of(spark: SparkSession) -> SparkSession:
    """Return a new session: the transaction of a SQL statement is a setting of its session."""
    require_classic_session(spark)
    session = own_session(spark)
    for name in ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone"):
        session.conf.set(name, str(spark.conf.get(name)))
    session.conf.set("spark.sql.parquet.compression.codec", "zstd")
    # A name of a member may look like a variable.
    session.conf.set("spark.sql.variable.substitute", "false")
    return session


def with_sources(relays: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records of relays in one frame, with their source cluster as `_source`."""
    from pyspark.sql import functions as F

    frames = (relay.withColumn("_source", F.lit(source)) for source, relay in relays.items())
    return reduce(lambda one, other: one.unionByName(other), frames)


def records_of_table(records: DataFrame, table: TypedTable) -> DataFrame:
    """Return the records of a table's topics, with their coordinates as columns of the table; `records` have their source."""
    from pyspark.sql import functions as F

    chosen = records.where(F.col("_source").isin(*table.topics) & F.col("topic").rlike(table.config.topics_regex))
    if "{topic}" in table.config.name:
        chosen = chosen.where(F.col("topic").isin(*{topic for topics in table.topics.values() for topic in topics}))
    places = (F.col(name).alias(f"_{name}") for name in ("topic", "generation", "partition", "offset", "timestamp"))
    return chosen.select("_source", *places, "key", "value", *(["headers"] if table.config.through else []))


class TableRelay:
    """The relays of a table's sources, read in one session; `versions` are their newest when `refresh` was called last."""

    def __init__(self, lake: Lake, table: TypedTable, session: SparkSession) -> None:
        self._lake = lake
        self._table = table
        self.session = session
        self.versions: dict[str, int] = {}

    def refresh(self) -> None:
        locations = {source: self._lake.relay_location(source) for source in self._table.topics}
        self.versions = {source: self._lake.version(location) for source, location in locations.items()}

    def records(self) -> DataFrame:
        return self._read({})

    def past(self, positions: Positions) -> DataFrame:
        return past(self._read(positions), positions)

    def before(self, positions: Positions) -> DataFrame:
        return _with_position(self._read({}), positions).where("_offset < _position").drop("_position")

    def tombstones(self, positions: Positions, since: Mapping[str, int]) -> DataFrame:
        """Return the records without a value before positions, of each source those from a timestamp in microseconds on."""
        from pyspark.sql import functions as F

        times = {source: datetime.fromtimestamp(least // 10**6, timezone.utc) for source, least in since.items()}
        late = [(F.col("_source") == source) & (F.col("_timestamp") >= F.lit(at)) for source, at in times.items()]
        found = self.before(positions).where(reduce(lambda one, other: one | other, late))
        # A rule may take a value away.
        return found if self._table.config.through else found.where("value IS NULL")

    def _read(self, positions: Positions) -> DataFrame:
        relays = {}
        for source, version in self.versions.items():
            reader = self.session.read.option("versionAsOf", version)
            part = RelayPart(positions.get(source, {}))
            relays[source] = part.rows(self._lake.load_relay(reader, source))
        return records_of_table(with_sources(relays), self._table)


def past(frame: DataFrame, positions: Positions) -> DataFrame:
    if not any(positions.values()):
        return frame
    return _with_position(frame, positions).where("_offset >= coalesce(_position, 0)").drop("_position")


def _with_position(frame: DataFrame, positions: Positions) -> DataFrame:
    from pyspark.sql import functions as F

    known = [
        (source, at.topic, at.generation, at.partition, position)
        for source, of_source in positions.items()
        for at, position in of_source.items()
    ]
    columns = "_source string, _topic string, _generation int, _partition int, _position bigint"
    table = F.broadcast(frame.sparkSession.createDataFrame(known, columns))
    return frame.join(table, PARTITION, "left")
