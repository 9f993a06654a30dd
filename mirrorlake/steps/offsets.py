"""Offsets: the exact counterpart of one offset, from the `offset_map` table."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import OffsetMap, Run, Translation, UnknownPartition
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import OFFSET_MAP


def translate(
    lake: Lake, flow: str, *, topic: str, partition: int, offset: int, generation: int | None = None
) -> Translation:
    """Return where the record at an upstream offset stands on the target, or why it stands nowhere.

    Args:
        lake: the lake.
        flow: the flow's name.
        topic: the source topic.
        partition: the source partition.
        offset: the upstream offset.
        generation: the life of the topic, None for the newest that was republished.
    """
    runs = _runs(lake, flow).where((F.col("source_topic") == topic) & (F.col("source_partition") == partition))
    if generation is None:
        generation = runs.agg(F.max("generation")).collect()[0][0]
    runs = runs.where(F.col("generation") == F.lit(generation))
    return OffsetMap(_neighbours(runs, F.col("first_upstream"), offset)).translate(offset)


def translate_back(lake: Lake, flow: str, *, topic: str, partition: int, offset: int) -> Translation:
    """Return which upstream record stands at a downstream offset; `topic` is the remote topic."""
    runs = _runs(lake, flow).where((F.col("target_topic") == topic) & (F.col("target_partition") == partition))
    found = _neighbours(runs, F.col("first_downstream"), offset)
    # Several source partitions may share the target partition: the run that starts last before the offset decides.
    before = [run for run in found if run.first_downstream <= offset]
    chosen = max(before or found, key=lambda run: run.first_downstream, default=None)
    if chosen is None:
        return UnknownPartition()
    mine = OffsetMap([run for run in found if run.source == chosen.source])
    return mine.translate_back(offset, partition=TopicPartition(topic, partition))


def _runs(lake: Lake, flow: str) -> DataFrame:
    return lake.meta(OFFSET_MAP).where(F.col("flow") == flow)


def _neighbours(runs: DataFrame, start: Column, offset: int) -> list[Run]:
    """Return the last run that starts at or before the offset and the first that starts after it."""
    before = runs.where(start <= offset).orderBy(start.desc()).limit(1)
    after = runs.where(start > offset).orderBy(start.asc()).limit(1)
    return [to_run(row) for row in before.unionAll(after).collect()]


def to_run(row: Any) -> Run:
    """Return a row of `offset_map` as the model's run."""
    return Run(
        source=SourcePartition(row.source_topic, row.generation, row.source_partition),
        target=TopicPartition(row.target_topic, row.target_partition),
        first_upstream=row.first_upstream,
        last_upstream=row.last_upstream,
        first_downstream=row.first_downstream,
        count=row.record_count,
        holes=tuple((hole.first, hole.length) for hole in row.holes),
    )
