"""Where readers of source partitions go on at the target: consumer groups, Spark queries, offsets in a file.

Law A (never ahead): a position never skips a record that the reader has not read. It is exact wherever the offset map
answers; else the reader waits at the last republished position, or nothing is said and the reason is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Resume
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.offset_map import SOURCE_KEY, translated
from mirrorlake.relay.schema import POSITIONS
from mirrorlake.steps.maps import KnownMaps
from mirrorlake.steps.status import read_to
from mirrorlake.streams.sources import TopicSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The clusters that positions are checked against; `source` is None where it is lost."""

    source: TopicSource | None
    target: ClusterAdmin


def resume_positions(
    lake: Lake, flow: FlowConfig, positions: Sequence[tuple[SourcePartition, int]], *, maps: KnownMaps, ends: Ends
) -> dict[tuple[SourcePartition, int], Resume]:
    """Return where readers at the given upstream positions (next offset to read) go on.

    Args:
        lake: the lake.
        flow: the flow.
        positions: source partitions with positions, of any number of readers.
        maps: the flow's runs, its ledger's newest included.
        ends: the clusters.

    Raises:
        ClusterError: a cluster does not answer.
    """
    asked = sorted(set(positions))
    if not asked:
        return {}
    rows = [(s.topic, s.generation, s.partition, offset) for s, offset in asked]
    points = lake.spark.createDataFrame(rows, "topic string, generation int, partition int, offset bigint")
    runs = maps.runs.where(F.col("flow") == flow.name)
    found = {
        (SourcePartition(row.topic, row.generation, row.partition), int(row.offset)): row
        for row in translated(points, runs).collect()
    }
    unsure = {key: row.republished_from for key, row in found.items() if row.status not in ("exact", "in_a_hole")}
    judge = _Judge(lake, flow, unsure, maps=maps, ends=ends)
    return {key: judge.resume(*key, row) for key, row in found.items()}


class _Judge:
    """Decide about positions outside of the map, with one look at relay, source and target for all of them."""

    def __init__(
        self,
        lake: Lake,
        flow: FlowConfig,
        unsure: Mapping[tuple[SourcePartition, int], int | None],
        *,
        maps: KnownMaps,
        ends: Ends,
    ) -> None:
        self._lake = lake
        self._flow = flow
        self._maps = maps
        self._republished = maps.positions[flow.name]
        sources = sorted({source for source, _ in unsure})
        self._read_to = read_to(lake, flow.source) if sources else {}
        self._begun = self._landing_begun() if sources else {}
        there = [TopicPartition(source.topic, source.partition) for source in sources]
        self._earliest: Mapping[TopicPartition, int] = {}
        if there and ends.source is not None:
            existing = ends.source.describe({tp.topic for tp in there})
            there = [tp for tp in there if tp.topic in existing and tp.partition < existing[tp.topic].partitions]
            self._earliest = ends.source.earliest(there)
        remotes = {TopicPartition(flow.remote_topic(source.topic), source.partition) for source in sources}
        existing = ends.target.describe({tp.topic for tp in remotes})
        self._first = ends.target.earliest(
            tp for tp in remotes if tp.topic in existing and tp.partition < existing[tp.topic].partitions
        )
        self._spans = self._landed_between(unsure)

    def resume(self, source: SourcePartition, offset: int, row: Any) -> Resume:
        """Return the verdict on one translated position."""
        target = TopicPartition(self._flow.remote_topic(source.topic), source.partition)
        say = _Saying(source, offset, target)
        if row.status in ("exact", "in_a_hole"):
            return say(int(row.position), exact=True)
        if row.status == "not_yet_republished":
            return self._behind_the_end(say, int(row.position))
        if row.status == "before_the_first":
            return self._before_the_first(say, int(row.position))
        if target not in self._first:
            return say(None, exact=False, reason=f"{target} does not exist on {self._flow.target} yet")
        return self._behind_the_end(say, self._first[target])

    def _behind_the_end(self, say: _Saying, position: int) -> Resume:
        """The reader is at or ahead of what was republished: it waits there for what it has already read."""
        seen = self._read_to.get(TopicPartition(say.source.topic, say.source.partition), 0)
        waiting, last = self._spans.get((say.source, say.offset), (0, -1))
        if waiting == 0 and say.offset <= max(seen, last + 1, self._republished.get(say.source, 0)):
            return say(position, exact=True)
        if say.offset > max(seen, last + 1):
            reason = "ahead of what was landed; it waits at the last republished position"
            return say(position, exact=False, again=None, reason=reason)
        reason = "ahead of what was republished; it waits at the last republished position"
        return say(position, exact=False, again=waiting, reason=reason)

    def _before_the_first(self, say: _Saying, position: int) -> Resume:
        """The reader is behind everything that was republished: fine, where nothing it could still read is skipped."""
        tp = TopicPartition(say.source.topic, say.source.partition)
        waiting, _ = self._spans.get((say.source, say.offset), (0, -1))
        readable_from = max(say.offset, self._earliest.get(tp, say.offset))
        if waiting == 0 and readable_from >= self._begun.get(say.source, 2**63):
            return say(position, exact=True)
        reason = f"records between {say.offset} and the first republished one were never republished by this flow"
        return say(None, exact=False, reason=reason)

    def _landing_begun(self) -> dict[SourcePartition, int]:
        samples = self._lake.meta(POSITIONS).where((F.col("source") == self._flow.source) & (F.col("kind") == "landed"))
        rows = samples.groupBy(*SOURCE_KEY).agg(F.min("position").alias("first")).collect()
        return {SourcePartition(row.topic, row.generation, row.partition): int(row["first"]) for row in rows}

    def _landed_between(
        self, unsure: Mapping[tuple[SourcePartition, int], int | None]
    ) -> dict[tuple[SourcePartition, int], tuple[int, int]]:
        """Return how many landed records lie between each position and what was republished, and the last landed offset.

        Ahead of what was republished these are records that the reader has read and the target lacks; behind the first
        that was republished, records that it has not read and never will there.
        """
        rows = [
            (s.topic, s.generation, s.partition, offset, offset, first)
            if first is not None and offset < first
            else (s.topic, s.generation, s.partition, offset, self._republished.get(s, 0), offset)
            for (s, offset), first in unsure.items()
        ]
        if not rows or not self._lake.exists(self._lake.relay_location(self._flow.source)):
            return {}
        schema = "topic string, generation int, partition int, at bigint, low bigint, high bigint"
        spans = F.broadcast(self._lake.spark.createDataFrame(rows, schema))
        relay: DataFrame = self._lake.relay(self._flow.source).select(*SOURCE_KEY, "offset")
        inside = F.col("offset").between(F.col("low"), F.col("high") - 1)
        counted = (
            relay.join(spans, list(SOURCE_KEY))
            .where(F.col("offset") >= F.col("low"))
            .groupBy(*SOURCE_KEY, "at")
            .agg(F.count_if(inside).alias("records"), F.max("offset").alias("last"))
            .join(self._withheld_between(spans), [*SOURCE_KEY, "at"], "left")
        )
        return {
            (SourcePartition(row.topic, row.generation, row.partition), int(row["at"])): (
                int(row.records) - int(row.withheld or 0),
                int(row["last"]),
            )
            for row in counted.collect()
        }

    def _withheld_between(self, spans: DataFrame) -> DataFrame:
        """Return how many records of each span the flow's rules withheld: nobody waits for those."""
        common = F.expr("greatest(0, least(high, part.first + part.length) - greatest(low, part.first))")
        return (
            self._maps.withheld.where(F.col("flow") == self._flow.name)
            .select(*SOURCE_KEY, F.explode("ranges").alias("part"))
            .join(spans, list(SOURCE_KEY))
            .groupBy(*SOURCE_KEY, "at")
            .agg(F.sum(common).alias("withheld"))
        )


@dataclass(frozen=True, slots=True)
class _Saying:
    """Say something about one position."""

    source: SourcePartition
    offset: int
    target: TopicPartition

    def __call__(self, downstream: int | None, *, exact: bool, again: int | None = 0, reason: str = "") -> Resume:
        return Resume(
            source=self.source,
            upstream_offset=self.offset,
            target=self.target,
            downstream_offset=downstream,
            exact=exact,
            records_again=again,
            reason=reason,
        )
