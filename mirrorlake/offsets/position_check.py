"""What can be said of a reader's position where the offset map alone does not answer: one look at relay and source for all."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import POSITIONS, Lake, read_to
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck
from mirrorlake.offsets.known_map import KnownMaps
from mirrorlake.topics import TopicSource

Asked = tuple[SourcePartition, int]
"""A source partition and the next offset that a reader reads there."""

_SPANS = "topic string, generation int, partition int, at bigint, low bigint, high bigint"


class PositionChecker:
    """Check positions on the source of one flow.

    `unsure` holds, of each position, the first upstream offset that was republished (None: nothing was). `source` is None where it
    is lost.
    """

    def __init__(
        self,
        lake: Lake,
        flow: FlowConfig,
        unsure: Mapping[Asked, int | None],
        *,
        maps: KnownMaps,
        source: TopicSource | None,
    ) -> None:
        self._lake = lake
        self._flow = flow
        self._unsure = unsure
        self._maps = maps
        self._republished = maps.positions[flow.name]
        self._read_to = read_to(lake, flow.source) if unsure else {}
        self._begun = self._landing_begun() if unsure else {}
        self._earliest: Mapping[TopicPartition, int] = {}
        if unsure and source is not None:
            existing = source.describe({partition.topic for partition, _ in unsure})
            self._earliest = source.earliest(
                TopicPartition(s.topic, s.partition)
                for s in sorted({partition for partition, _ in unsure})
                if s.topic in existing and s.partition < existing[s.topic].partitions
            )
        self._spans = self._landed_between()

    def check(self, source: SourcePartition, offset: int) -> PositionCheck:
        """Check one of the positions."""
        first = self._unsure[source, offset]
        if hindrance := self._maps.hindrance(self._flow.name, source, offset, first):
            return PositionCheck(is_safe=False, reason=hindrance)
        if first is not None and offset < first:
            return self._before_the_first(source, offset)
        return self._past_the_last(source, offset)

    def _past_the_last(self, source: SourcePartition, offset: int) -> PositionCheck:
        """The reader is at or past the end of what was republished: it waits there for what it has already read."""
        seen = self._read_to.get(TopicPartition(source.topic, source.partition), 0)
        waiting, last = self._spans.get((source, offset), (0, -1))
        if waiting == 0 and offset <= max(seen, last + 1, self._republished.get(source, 0)):
            return PositionCheck()
        if offset > max(seen, last + 1):
            reason = "past what was landed; it waits at the last republished position"
            return PositionCheck(exact=False, again=None, reason=reason)
        reason = "past what was republished; it waits at the last republished position"
        return PositionCheck(exact=False, again=waiting, reason=reason)

    def _before_the_first(self, source: SourcePartition, offset: int) -> PositionCheck:
        """The reader is before everything that was republished: safe where nothing that it could still read is skipped."""
        waiting, _ = self._spans.get((source, offset), (0, -1))
        readable_from = max(offset, self._earliest.get(TopicPartition(source.topic, source.partition), offset))
        if waiting == 0 and readable_from >= self._begun.get(source, 2**63):
            return PositionCheck()
        reason = f"records between {offset} and the first republished one were never republished by this flow"
        return PositionCheck(is_safe=False, reason=reason)

    def _landing_begun(self) -> dict[SourcePartition, int]:
        samples = self._lake.meta(POSITIONS).where((F.col("source") == self._flow.source) & (F.col("kind") == "landed"))
        rows = samples.groupBy(*SOURCE_KEY).agg(F.min("position").alias("first")).collect()
        return {SourcePartition(row.topic, row.generation, row.partition): int(row["first"]) for row in rows}

    def _landed_between(self) -> dict[Asked, tuple[int, int]]:
        """Count the landed records between each position and what was republished, and find the last landed offset.

        Past what was republished these are records that the reader has read and the target lacks; before the first that
        was republished, records that it has not read and never will there.
        """
        rows = [
            (s.topic, s.generation, s.partition, offset, offset, first)
            if first is not None and offset < first
            else (s.topic, s.generation, s.partition, offset, self._republished.get(s, 0), offset)
            for (s, offset), first in self._unsure.items()
        ]
        if not rows or not self._lake.exists(self._lake.relay_location(self._flow.source)):
            return {}
        spans = F.broadcast(self._lake.spark.createDataFrame(rows, _SPANS))
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
        """Count the records of each span that the flow's rules withheld: nobody waits for those."""
        common = F.expr("greatest(0, least(high, part.first + part.length) - greatest(low, part.first))")
        return (
            self._maps.withheld.where(F.col("flow") == self._flow.name)
            .select(*SOURCE_KEY, F.explode("ranges").alias("part"))
            .join(spans, list(SOURCE_KEY))
            .groupBy(*SOURCE_KEY, "at")
            .agg(F.sum(common).alias("withheld"))
        )
