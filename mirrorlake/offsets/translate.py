"""Offsets: the exact counterpart of an offset, or of a table of offsets, from the `offset_map` table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.lives import lives_of
from mirrorlake.lake.metadata import KnownTopic, SourceTopics
from mirrorlake.lake.offset_map import translated, translated_back, with_fallen
from mirrorlake.lake.schema import GAPS, OFFSET_MAP, WITHHELD
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.offset_map import (
    DeletedTopic,
    Exact,
    Filtered,
    InHole,
    NotYetRepublished,
    OffsetMap,
    OtherGeneration,
    Quarantined,
    Run,
    Translation,
    UnknownPartition,
    standing_at,
)
from mirrorlake.model.withheld import QUARANTINED


def translate(
    lake: Lake, flow: FlowConfig, *, topic: str, partition: int, offset: int, generation: int | None = None
) -> Translation:
    """Return where the record at an upstream offset stands on the target, or why it stands nowhere.

    Args:
        lake: the lake.
        flow: the flow.
        topic: the source topic.
        partition: the source partition.
        offset: the upstream offset.
        generation: the life of the topic, None for the newest that was republished; of a partition whose log went back,
            for the one that the source holds at the offset now.
    """
    kept = lives_of(lake, [flow])
    everything = _runs(lake, flow.name).where(
        (F.col("source_topic") == topic) & (F.col("source_partition") == partition)
    )
    runs = kept.standing(everything)
    lives = sorted((row.generation for row in runs.select("generation").distinct().collect()), reverse=True)

    def look_up(life: int) -> Translation:
        mine = runs.where(F.col("generation") == life)
        return OffsetMap(_around(mine, offset)).translate(offset)

    cut = None if generation else cuts_of(lake, flow.source).get(topic)
    known = cut.generation_at(partition, offset) if cut is not None else lives[0] if lives else 1
    life = generation or known
    found = look_up(life) if lives else UnknownPartition()
    if cut is not None and lives and life not in lives:
        # The source's new history is landed, and nothing of it was republished yet.
        return NotYetRepublished(cut.starts_at(partition))
    if isinstance(found, Exact):
        return found
    if (fallen := kept.fallen(everything)) is not None and (
        gone := _fallen(fallen, life if cut else generation, offset)
    ) is not None:
        return gone
    source = SourcePartition(topic, life, partition)
    withheld = _withheld(lake, flow, source, offset, found)
    if withheld is not None:
        return withheld
    if isinstance(found, InHole):
        return _explained(lake, flow, source, offset, found)
    if isinstance(found, NotYetRepublished) and generation is None and cut is None:
        for earlier in lives[1:]:
            if isinstance(look_up(earlier), Exact | InHole):
                return OtherGeneration(earlier, found.next_offset)
    return found


def cuts_of(lake: Lake, alias: str) -> dict[str, KnownTopic]:
    """Return the topics of a source with partitions whose log went back."""
    return {name: topic for name, topic in SourceTopics(lake, alias).load().items() if topic.cuts}


def _fallen(runs: DataFrame, generation: int | None, offset: int) -> DeletedTopic | None:
    """Return the topic, gone since, into which the record at an upstream offset was republished."""
    mine = runs.where((F.col("first_upstream") <= offset) & (F.col("last_upstream") >= offset))
    if generation is not None:
        mine = mine.where(F.col("generation") == generation)
    for row in mine.collect():
        if to_run(row).downstream_of(offset) is not None:
            return DeletedTopic(row.target_topic)
    return None


def _withheld(
    lake: Lake, flow: FlowConfig, source: SourcePartition, offset: int, found: Translation
) -> Translation | None:
    """Find what withheld the record at an offset, or where it went when it was re-driven."""
    rows = _at(lake.meta(WITHHELD), source).where(
        (F.col("flow") == flow.name)
        & (F.col("first_offset") <= offset)
        & (F.col("last_offset") >= offset)
        & F.exists("ranges", lambda part: (part.first <= offset) & (part.first + part.length > offset))
    )
    for row in rows.limit(1).collect():
        resume_at = found.resume_at if isinstance(found, InHole) else None
        if row.kind != QUARANTINED:
            return Filtered(resume_at, row.rule, row.rule_version)
        again = _at(lives_of(lake, [flow]).standing(_runs(lake, flow.redrive_name)), source, prefix="source_").where(
            (F.col("first_upstream") <= offset) & (F.col("last_upstream") >= offset)
        )
        for run in again.collect():
            if (downstream := to_run(run).downstream_of(offset)) is not None:
                return Exact(downstream, to_run(run).target)
        return Quarantined(resume_at, row.reason, row.rule, row.rule_version)
    return None


def _at(table: DataFrame, source: SourcePartition, *, prefix: str = "") -> DataFrame:
    return table.where(
        (F.col(f"{prefix}topic") == source.topic)
        & (F.col("generation") == source.generation)
        & (F.col(f"{prefix}partition") == source.partition)
    )


def _explained(lake: Lake, flow: FlowConfig, source: SourcePartition, offset: int, hole: InHole) -> Translation:
    """Say why there was nothing to land at an offset (law E)."""
    gaps = _at(lake.meta(GAPS), source).where(
        (F.col("source") == flow.source) & (F.col("first_offset") <= offset) & (F.col("last_offset") >= offset)
    )
    # Gaps are written once an account: a transactional stretch may lie around a range that retention took.
    kinds = {row.kind for row in gaps.select("kind").distinct().collect()}
    return replace(hole, kind=next((kind for kind in GAP_KINDS if kind in kinds), None))


def translate_back(lake: Lake, flow: FlowConfig, *, topic: str, partition: int, offset: int) -> Translation:
    """Return which upstream record stands at a downstream offset; `topic` is the remote topic."""
    kept = lives_of(lake, [flow])
    everything = _runs(lake, flow.name).where(
        (F.col("target_topic") == topic) & (F.col("target_partition") == partition)
    )
    runs = kept.standing(everything)
    start = F.col("first_downstream")
    before = runs.where(start <= offset).orderBy(start.desc()).limit(1)
    after = runs.where(start > offset).orderBy(start.asc()).limit(1)
    found = standing_at([to_run(row) for row in before.unionAll(after).collect()], offset)
    fallen = kept.fallen(everything) if isinstance(found, UnknownPartition) else None
    return DeletedTopic(topic) if fallen is not None and fallen.limit(1).count() else found


def translate_table(lake: Lake, flow: FlowConfig, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
    """Return a table of offsets with their counterparts; see `mirrorlake.lake.offset_map` for the columns.

    Of a partition whose log went back, an offset without `generation` is of the life that the source holds there now.

    Raises:
        UsageError: a column is missing.
    """
    missing = {"topic", "partition", "offset"} - set(offsets.columns)
    if missing:
        raise UsageError(
            f"the table of offsets has no column {', '.join(sorted(missing))}",
            remedy="give it topic (string), partition (int), offset (bigint), and generation (int) where it is known",
        )
    kept, runs = lives_of(lake, [flow]), _runs(lake, flow.name)
    asked = offsets if reverse else _with_lives(offsets, cuts_of(lake, flow.source))
    return with_fallen(asked, kept.standing(runs), kept.fallen(runs), translated_back if reverse else translated)


def _with_lives(offsets: DataFrame, cuts: Mapping[str, KnownTopic]) -> DataFrame:
    column = F.col("generation") if "generation" in offsets.columns else F.lit(None).cast("int")
    for name, topic in cuts.items():
        for partition in sorted({cut.partition for cut in topic.cuts}):
            life = F.lit(topic.generation)
            for cut in sorted(topic.cuts, key=lambda cut: cut.generation):
                if cut.partition == partition:
                    life = F.when(F.col("offset") >= cut.first_offset, F.lit(cut.generation)).otherwise(life)
            mine = (F.col("topic") == name) & (F.col("partition") == partition) & column.isNull()
            column = F.when(mine, life).otherwise(column)
    return offsets.withColumn("generation", column.cast("int")) if cuts else offsets


def _runs(lake: Lake, flow: str) -> DataFrame:
    return lake.meta(OFFSET_MAP).where(F.col("flow") == flow)


def _around(runs: DataFrame, offset: int) -> list[Run]:
    """Return, of each target partition, the last run that starts at or before an upstream offset and the first after it."""
    start, row = F.col("first_upstream"), F.struct("*")
    before = (
        runs.where(start <= offset).groupBy("target_topic", "target_partition").agg(F.max_by(row, start).alias("run"))
    )
    after = (
        runs.where(start > offset).groupBy("target_topic", "target_partition").agg(F.min_by(row, start).alias("run"))
    )
    return [to_run(found.run) for found in before.unionAll(after).collect()]


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
