"""The fixed cut that a verification compares, also of flows that go on running.

Read in this order, each place holds at least what the one before it covers: the ends of the remote topics, then the
ledgers, then the relays. What comes later is past the cut and is said to be not compared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.policy import TopicNameError
from mirrorlake.model.verify import MOST_DIFFERENCES, Difference
from mirrorlake.offsets import Clusters, KnownMaps, known_maps, settled_ends

SOURCE_KEY = ["topic", "generation", "partition"]
_KEY_DDL = "topic string, generation int, partition int"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCount:
    """What the relay holds of one source partition; `rows` is more than `records` where some stand there twice."""

    rows: int
    records: int
    first: int
    last: int


class Relays:
    """The relays of some sources at one version each, whatever is landed meanwhile. Threads may share them."""

    def __init__(self, lake: Lake, aliases: Iterable[str]) -> None:
        self._lake = lake
        self._versions = {alias: lake.version(lake.relay_location(alias)) for alias in sorted(set(aliases))}
        self._locks = {alias: threading.Lock() for alias in self._versions}
        self._landed: dict[str, dict[SourcePartition, LandedCount]] = {}
        # Upkeep cleans the log of a table: a version that is looked up again after minutes may be gone from it.
        self._frames: dict[str, DataFrame] = {}

    def landed(self, alias: str) -> Mapping[SourcePartition, LandedCount]:
        """Count what the relay holds, per source partition."""
        with self._locks[alias]:
            if alias not in self._landed:
                self._landed[alias] = self._count(alias)
            return self._landed[alias]

    def records(self, alias: str) -> DataFrame:
        """Return the records of the relay, each once: of copies the one that was landed first."""
        frame, doubled = self._frame(alias), self._doubled(alias)
        if doubled is None:
            return frame
        copies = Window.partitionBy(*SOURCE_KEY, "offset").orderBy("landed_at")
        first = frame.join(doubled, SOURCE_KEY, "left_semi").withColumn("copy", F.row_number().over(copies))
        return frame.join(doubled, SOURCE_KEY, "left_anti").unionByName(first.where("copy = 1").drop("copy"))

    def doubles(self, alias: str, topics: Iterable[str]) -> list[Difference]:
        """List the records of some topics that stand in the relay more than once."""
        doubled = self._doubled(alias)
        if doubled is None:
            return []
        wanted = self._frame(alias).join(doubled, SOURCE_KEY, "left_semi").where(F.col("topic").isin(sorted(topics)))
        copies = wanted.groupBy(*SOURCE_KEY, "offset").agg(F.count("*").alias("copies")).where("copies > 1")
        return [
            Difference.at(row, row.offset, where="relay", problem="doubled", records=row.copies)
            for row in copies.orderBy(*SOURCE_KEY, "offset").limit(MOST_DIFFERENCES).collect()
        ]

    def _frame(self, alias: str) -> DataFrame:
        if alias not in self._frames:
            self._frames[alias] = self._lake.relay(alias, version=self._versions[alias])
        return self._frames[alias]

    def _doubled(self, alias: str) -> DataFrame | None:
        keys = [
            (s.topic, s.generation, s.partition) for s, held in self.landed(alias).items() if held.rows > held.records
        ]
        return F.broadcast(self._lake.spark.createDataFrame(keys, _KEY_DDL)) if keys else None

    def _count(self, alias: str) -> dict[SourcePartition, LandedCount]:
        # A bit for each offset: to count distinct ones by grouping would send every offset through a shuffle.
        place = F.col("offset") + 1
        pieces = (
            self._frame(alias)
            .groupBy(*SOURCE_KEY, F.bitmap_bucket_number(place).alias("bucket"))
            .agg(
                F.count("*").alias("rows"),
                F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position(place))).alias("records"),
                F.min("offset").alias("first"),
                F.max("offset").alias("last"),
            )
        )
        counts = [F.sum(name).alias(name) for name in ("rows", "records")]
        found = pieces.groupBy(*SOURCE_KEY).agg(*counts, F.min("first").alias("first"), F.max("last").alias("last"))
        return {
            SourcePartition(row.topic, row.generation, row.partition): LandedCount(
                rows=row["rows"], records=row.records, first=row["first"], last=row["last"]
            )
            for row in found.collect()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCut:
    """What the ledgers of a target's flows hold, and up to which downstream offset that is complete.

    `flows` are those flows by name. A partition that `ends` lacks is compared up to the last offset that a ledger names.
    """

    flows: Mapping[str, FlowConfig]
    maps: KnownMaps
    ends: Mapping[TopicPartition, int]


def take_cut(lake: Lake, flows: Iterable[FlowConfig], clusters: Clusters) -> FixedCut:
    """Fix what is compared of one target: `flows` are all that lead there. Take the versions of the relays afterwards.

    Raises:
        ClusterError: the target does not answer.
    """
    flows = list(flows)
    remotes: set[str] = set()
    for alias in {flow.source for flow in flows}:
        try:
            names = clusters.source(alias).topic_names()
        except ClusterError:
            # Another flow's source; its remote topics are compared up to where the ledgers go.
            continue
        for flow in flows:
            remotes |= {remote for name in names if flow.source == alias and (remote := _remote(flow, name))}
    ends = settled_ends(clusters.admin(flows[0].target), remotes, flows)
    return FixedCut(flows={flow.name: flow for flow in flows}, maps=known_maps(lake, flows, clusters), ends=ends)


def _remote(flow: FlowConfig, topic: str) -> str | None:
    try:
        return flow.remote_topic(topic) if flow.carries(topic) else None
    except TopicNameError:
        return None
