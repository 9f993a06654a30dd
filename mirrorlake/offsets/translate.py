"""Offsets: the exact counterpart of an offset, or of a table of offsets, from the `offset_map` table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from mirrorlake.config import closest
from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake import OFFSET_MAP, Lake, SourceTopics, load_incarnation_filter, remote_names, removed_between
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.offset_map import (
    BeforeFirst,
    DeletedTopic,
    Exact,
    Filtered,
    MappedRange,
    NoRecord,
    NotYetRepublished,
    OffsetMap,
    OtherGeneration,
    Quarantined,
    Translation,
    UnknownPartition,
    standing_at,
)
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import why_left
from mirrorlake.model.withheld import QUARANTINED, SENT
from mirrorlake.offsets.maps import to_mapped_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def translate_offset(
    lake: Lake, flow: FlowConfig, *, topic: str, partition: int, offset: int, generation: int | None = None
) -> Translation:
    """Return the target offset of the record at an upstream offset, or why there is none.

    `generation` is the topic's; None for the newest republished one or, after a truncation, for the one of the
    source's present log at the offset.
    """
    kept = load_incarnation_filter(lake, [flow])
    runs = _MappedRanges(lake, flow.name, topic, partition, which=kept.current_sql())
    topics = SourceTopics(lake, flow.source).load()
    cut = None if generation or topic not in topics or not topics[topic].truncations else topics[topic]
    expected = generation or (topics[topic].generation_at(partition, offset) if topic in topics else None)
    # A record in a mapped range needs no month of ranges; no generation is newer than the topic's.
    within = runs.at(expected, offset) if expected else []
    if len(within) == 1 and isinstance(found := OffsetMap(within).translate(offset), Exact):
        return found
    nearest = runs.nearest(offset)
    lives = sorted(nearest, reverse=True)
    known = cut.generation_at(partition, offset) if cut is not None else lives[0] if lives else 1
    life = generation or known
    if cut is not None and lives and life not in lives:
        # The source's new generation is landed, and no record of it was republished yet.
        return NotYetRepublished(cut.starts_at(partition))
    found = runs.translate(life, nearest, offset) if lives else UnknownPartition(_hint(topic, topics))
    if isinstance(found, Exact):
        return found
    if (fallen := kept.stale_sql()) is not None:
        for run in replace(runs, which=fallen).at(life if cut else generation, offset):
            if run.downstream_of(offset) is not None:
                return DeletedTopic(run.target.topic)
    source = SourcePartition(topic, life, partition)
    if (withheld := _withheld(flow, runs, source, offset, found)) is not None:
        return withheld
    left = why_left(removed_between(lake, flow.source, source, offset, offset), offset)
    if isinstance(found, NoRecord):
        gaps = () if left else lake.query(_GAPS, source=flow.source, offset=offset, **asdict(source))
        kinds = {one.kind for one in gaps}
        return replace(found, kind=left or next((kind for kind in GAP_KINDS if kind in kinds), None))
    if left is not None:
        # The flow will never send it.
        return BeforeFirst(found.first_offset, left) if isinstance(found, BeforeFirst) else NoRecord(None, left)
    if isinstance(found, NotYetRepublished) and generation is None and cut is None:
        for earlier in lives[1:]:
            if isinstance(runs.translate(earlier, nearest, offset), Exact | NoRecord):
                return OtherGeneration(earlier, found.next_offset)
    return found


# Why no record was landed (law E). Gaps are written once an account: a transactional gap may surround a range that retention removed.
_GAPS = """
    SELECT DISTINCT kind FROM {gaps} WHERE source = :source AND topic = :topic AND generation = :generation
        AND partition = :partition AND first_offset <= :offset AND last_offset >= :offset
"""


def _hint(topic: str, known: Collection[str]) -> str:
    return "" if topic in known else closest(topic, known).rstrip()


_WITHHELD = """
    SELECT kind, rule, rule_version, reason, holes FROM {offset_map}
    WHERE flow = :flow AND kind <> 'sent' AND target_topic = <source_topic> AND source_topic = :topic
        AND generation = :generation AND source_partition = :partition
        AND first_upstream <= :offset AND last_upstream >= :offset
"""


def _withheld(
    flow: FlowConfig, runs: _MappedRanges, source: SourcePartition, offset: int, found: Translation
) -> Translation | None:
    """Return what withheld the record at an offset, its target offset if it was redriven, or None."""
    for row in runs.lake.query(remote_names(_WITHHELD, flow), flow=flow.name, offset=offset, **asdict(source)):
        if Ranges.from_structs(row.holes).contains(offset):
            continue
        resume_at = found.resume_at if isinstance(found, NoRecord) else None
        if row.kind != QUARANTINED:
            return Filtered(resume_at, row.rule, row.rule_version)
        for run in replace(runs, flow=flow.redrive_name).at(source.generation, offset):
            if (downstream := run.downstream_of(offset)) is not None:
                return Exact(downstream, run.target)
        return Quarantined(resume_at, row.reason, row.rule, row.rule_version)
    return None


@dataclass(frozen=True, slots=True)
class _MappedRanges:
    """The mapped ranges of one flow from one source partition, of all generations; `which` is a condition in SQL."""

    lake: Lake
    flow: str
    topic: str
    partition: int
    which: str

    def at(self, generation: int | None, offset: int) -> list[MappedRange]:
        text = "SELECT * FROM mine WHERE first_upstream <= :offset AND last_upstream >= :offset"
        runs = map(to_mapped_range, self._ask(text, offset=offset))
        return [run for run in runs if generation in (None, run.source.generation)]

    def nearest(self, offset: int) -> dict[int, list[int]]:
        """Return the first offsets of ranges by generation: of each target partition the last up to an offset, the first after."""
        text = """
            SELECT generation, max(CASE WHEN first_upstream <= :offset THEN first_upstream END) AS before,
                min(CASE WHEN first_upstream > :offset THEN first_upstream END) AS after
            FROM mine GROUP BY generation, target_topic, target_partition
        """
        firsts: dict[int, list[int]] = {}
        for row in self._ask(text, offset=offset):
            firsts.setdefault(row.generation, []).extend(one for one in (row.before, row.after) if one is not None)
        return firsts

    def translate(self, generation: int, nearest: Mapping[int, list[int]], offset: int) -> Translation:
        """Translate an offset of a generation by the `nearest` ranges alone."""
        if generation not in nearest:
            return UnknownPartition()
        # File statistics cover the first offsets of ranges.
        text = (
            "SELECT * FROM mine WHERE generation = :generation AND array_contains(:firsts, first_upstream) "
            "AND first_upstream >= :least AND first_upstream <= :most"
        )
        firsts = nearest[generation]
        rows = self._ask(text, generation=generation, firsts=firsts, least=min(firsts), most=max(firsts))
        return OffsetMap(map(to_mapped_range, rows)).translate(offset)

    def _ask(self, text: str, **values: Any) -> list[Any]:
        mine = (
            "SELECT * FROM {offset_map} WHERE flow = :flow AND kind = 'sent' AND source_topic = :topic "
            "AND source_partition = :partition"
        )
        own: dict[str, Any] = {"flow": self.flow, "topic": self.topic, "partition": self.partition}
        return self.lake.query(f"WITH mine AS ({mine} AND ({self.which})) {text}", **own, **values)


# Longer than most mapped ranges, and short beside a day of a busy partition.
_NEAR = 1_000_000


def translate_back(lake: Lake, flow: FlowConfig, *, topic: str, partition: int, offset: int) -> Translation:
    """Return the upstream record at a downstream offset; `topic` is the remote topic."""
    kept = load_incarnation_filter(lake, [flow])
    values: dict[str, Any] = {"flows": [flow.name, flow.redrive_name], "topic": topic, "partition": partition}
    mine = (
        "FROM {offset_map} WHERE array_contains(:flows, flow) AND kind = 'sent' AND target_topic = :topic "
        "AND target_partition = :partition"
    )
    current, rows = f"SELECT * {mine} AND ({kept.current_sql('')}) AND first_downstream", []
    for side, bound, order in (("<=", f">= {offset - _NEAR}", "DESC"), (">", f"<= {offset + _NEAR}", "ASC")):
        # A month of ranges is read only if none begins near by.
        for near in (f"AND first_downstream {bound}", ""):
            text = f"{current} {side} :offset {near} ORDER BY first_downstream {order} LIMIT 1"
            if nearest := lake.query(text, offset=offset, **values):
                rows += nearest
                break
    found = standing_at(map(to_mapped_range, rows), offset)
    if not isinstance(found, UnknownPartition):
        return found
    fallen = kept.stale_sql("")
    if fallen is not None and lake.query(f"SELECT 1 AS one {mine} AND ({fallen}) LIMIT 1", **values):
        return DeletedTopic(topic)
    return UnknownPartition(_hint(topic, {flow.remote_topic(one) for one in SourceTopics(lake, flow.source).load()}))


def translate_table(lake: Lake, flow: FlowConfig, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
    """Add the counterparts to a table of offsets; see `mirrorlake.lake.offset_map` for the columns.

    An offset of a truncated partition without `generation` belongs to the generation of the source's present log.
    """
    # These need pyspark, whose import takes longer than the translation of one offset.
    from pyspark.sql import functions as F

    from mirrorlake.lake import translated, translated_back, with_stale

    missing = {"topic", "partition", "offset"} - set(offsets.columns)
    if missing:
        raise UsageError(
            f"the table of offsets has no column {', '.join(sorted(missing))}",
            remedy="give it topic (string), partition (int), offset (bigint), and generation (int) where it is known",
        )
    kept, flows = load_incarnation_filter(lake, [flow]), [flow.name, *([flow.redrive_name] if reverse else [])]
    runs = lake.meta(OFFSET_MAP).where(F.col("flow").isin(flows) & (F.col("kind") == SENT))
    asked, topic = (offsets, "") if reverse else (_with_generations(lake, flow.source, offsets), "source_topic")
    gone = kept.stale_sql(topic)
    stale = None if gone is None else runs.where(gone)
    return with_stale(asked, kept.current_rows(runs, topic), stale, translated_back if reverse else translated)


def _with_generations(lake: Lake, alias: str, offsets: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    cuts = {name: topic for name, topic in SourceTopics(lake, alias).load().items() if topic.truncations}
    column = F.col("generation") if "generation" in offsets.columns else F.lit(None).cast("int")
    for name, topic in cuts.items():
        for partition in sorted({cut.partition for cut in topic.truncations}):
            life = F.lit(topic.generation)
            for cut in sorted(topic.truncations, key=lambda cut: cut.generation):
                if cut.partition == partition:
                    life = F.when(F.col("offset") >= cut.first_offset, F.lit(cut.generation)).otherwise(life)
            mine = (F.col("topic") == name) & (F.col("partition") == partition) & column.isNull()
            column = F.when(mine, life).otherwise(column)
    return offsets.withColumn("generation", column.cast("int")) if cuts else offsets
