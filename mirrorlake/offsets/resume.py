"""Where readers of source partitions go on at the target: consumer groups, Spark queries, offsets in a file.

Law A (never ahead): a position never skips a record that the reader has not read. It is exact wherever the offset map
answers; else the reader waits at the last republished position, or nothing is said and the reason is.

A target partition may be fed by several source partitions, of one flow (placement by key or by a list) or of several (a
merged topic). All that the reader reads on any of their sources count, so that every flow gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.offset_map import SOURCE_KEY, read_and_unread, read_from
from mirrorlake.lake.read_to import read_to
from mirrorlake.lake.schema import POSITIONS
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Contribution, Resume, limiting, position_among
from mirrorlake.offsets.known_map import KnownMaps
from mirrorlake.offsets.shared_partitions import Family, known_to
from mirrorlake.offsets.web import Asked, Readers, Verdict, Web, asked_of
from mirrorlake.topics.sources import TopicSource

_SOURCES = "topic string, generation int, partition int, offset bigint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The clusters that positions are checked against; a source that is lost is left out."""

    sources: Mapping[str, TopicSource]
    target: ClusterAdmin


def resume_readers(
    lake: Lake,
    kin: Family,
    readers: Readers,
    *,
    maps: Callable[[], KnownMaps],
    ends: Ends,
    stands: Mapping[str, Mapping[SourcePartition, int]] | None = None,
) -> dict[tuple[str, TopicPartition], Resume]:
    """Return where readers go on, by reader and target partition of the family's first flow.

    Args:
        lake: the lake.
        kin: the flow, and those that share remote topics with it.
        readers: their positions on the sources of these flows.
        maps: reads the flows' runs, their ledgers' newest included.
        ends: the clusters.
        stands: where clusters mirror each other, the positions on the flow's source to translate, whoever set them; None
            where they are the readers' own.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if stands is None:
        stands = {reader: positions.get(kin.flows[0].name, {}) for reader, positions in readers.items()}
    if not any(stands.values()):
        return {}
    # Before the maps: what is committed below these ends is in them.
    known = known_to(ends.target, kin)
    looking = _Looking(lake, kin, maps(), ends=ends, known=known)
    return looking.resume_in_web(stands, readers) if kin.web else looking.resume(readers)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One position of one source partition: the verdict, and what stands of it by target partition."""

    verdict: Verdict
    places: Mapping[TopicPartition, tuple[int | None, int | None]]


class _Looking:
    def __init__(
        self, lake: Lake, kin: Family, maps: KnownMaps, *, ends: Ends, known: Mapping[TopicPartition, int]
    ) -> None:
        self._lake = lake
        self._kin = kin
        self._maps = maps
        self._ends = ends
        self._known = known
        self._first: Mapping[TopicPartition, int] = {}

    def resume(self, readers: Readers) -> dict[tuple[str, TopicPartition], Resume]:
        asked: dict[str, set[tuple[Asked, bool]]] = {flow.name: set() for flow in self._kin.flows}
        by_reader: dict[str, list[tuple[str, Asked, bool]]] = {}
        for reader, positions in readers.items():
            for flow in self._kin.flows:
                for source, offset, is_committed in self._completed(flow, positions.get(flow.name, {})):
                    asked[flow.name].add(((source, offset), is_committed))
                    by_reader.setdefault(reader, []).append((flow.name, (source, offset), is_committed))
        seen = {flow.name: self._look(flow, {one for one, _ in asked[flow.name]}) for flow in self._kin.flows}
        rows: dict[tuple[str, TopicPartition], list[tuple[Contribution, Verdict]]] = {}
        for reader, held in by_reader.items():
            for name, one, is_committed in held:
                found = seen[name][one]
                for target, (last_read, first_unread) in found.places.items():
                    contribution = Contribution(
                        flow=name,
                        source=one[0],
                        upstream_offset=one[1],
                        last_read=last_read,
                        first_unread=first_unread,
                        is_committed=is_committed,
                    )
                    rows.setdefault((reader, target), []).append((contribution, found.verdict))
        mine = self._kin.flows[0].name
        rows = {
            key: parts for key, parts in rows.items() if any(one.flow == mine and one.is_committed for one, _ in parts)
        }
        bare = {
            target
            for (_, target), parts in rows.items()
            if all(one.last_read is None and one.first_unread is None for one, _ in parts)
        }
        existing = self._ends.target.describe({tp.topic for tp in bare})
        self._first = self._ends.target.earliest(
            tp for tp in bare if tp.topic in existing and tp.partition < existing[tp.topic].partitions
        )
        found_rows = {key: self._row(key[1], parts) for key, parts in rows.items()}
        return self._counted(found_rows, rows)

    def resume_in_web(
        self, stands: Mapping[str, Mapping[SourcePartition, int]], readers: Readers
    ) -> dict[tuple[str, TopicPartition], Resume]:
        """Return where readers go on where clusters mirror each other; their positions are those they committed themselves."""
        asked = {flow.name: asked_of(readers, flow.name) for flow in self._kin.flows}
        seen = {flow.name: self._look(flow, asked[flow.name]) for flow in self._kin.flows}
        verdicts = {(name, one): found.verdict for name, looked in seen.items() for one, found in looked.items()}
        web = Web(self._kin, self._maps, target=self._ends.target, known=self._known)
        return web.resume(stands, readers, verdicts)

    def _completed(
        self, flow: FlowConfig, positions: Mapping[SourcePartition, int]
    ) -> Iterable[tuple[SourcePartition, int, bool]]:
        """Yield the positions, and 0 for partitions of the same topics that share a target partition and have none."""
        yield from ((source, offset, True) for source, offset in positions.items())
        shared = self._kin.remotes()
        for topic, generation in {(source.topic, source.generation) for source in positions}:
            if flow.remote_topic(topic) not in shared or topic not in self._kin.topics[flow.name]:
                continue
            for partition in range(self._kin.topics[flow.name][topic].partitions):
                source = SourcePartition(topic, generation, partition)
                if source not in positions:
                    yield source, 0, False

    def _look(self, flow: FlowConfig, asked: set[Asked]) -> dict[Asked, _Seen]:
        if not asked:
            return {}
        rows = [(s.topic, s.generation, s.partition, offset) for s, offset in sorted(asked)]
        runs = self._maps.runs.where(F.col("flow") == flow.name)
        places: dict[Asked, dict[TopicPartition, tuple[int | None, int | None]]] = {}
        begins: dict[Asked, int | None] = {}
        for row in read_and_unread(self._lake.spark.createDataFrame(rows, _SOURCES), runs).collect():
            one = SourcePartition(row.topic, row.generation, row.partition), int(row.offset)
            begins[one] = row.republished_from
            # Records yet to come may stand in any of these, and a reader must have a position there before they do.
            remote, candidates = flow.remote_topic(row.topic), flow.placement.targets(row.topic, row.partition)
            mine = places.setdefault(one, {TopicPartition(remote, p): (None, None) for p in candidates})
            if row.target_topic is not None:
                mine[TopicPartition(row.target_topic, row.target_partition)] = row.last_read, row.first_unread
        inside = {
            one: (first := begins[one]) is not None
            and one[1] >= first
            and any(unread is not None for _, unread in places[one].values())
            for one in asked
        }
        source = self._ends.sources.get(flow.source)
        unsure = {one: begins[one] for one in asked if not inside[one]}
        judge = _Judge(self._lake, flow, unsure, maps=self._maps, source=source)
        return {
            one: _Seen(Verdict() if inside[one] else judge.verdict(*one, begins[one]), places[one]) for one in asked
        }

    def _row(self, target: TopicPartition, parts: list[tuple[Contribution, Verdict]]) -> Resume:
        contributions = [one for one, _ in parts]
        verdicts = [verdict for _, verdict in parts]
        decides = limiting(contributions)
        unsafe = next(((one, verdict) for one, verdict in parts if not verdict.is_safe), None)
        several = len(parts) > 1
        if unsafe is not None:
            one, verdict = unsafe
            return _said(one, target, None, reason=f"{_named(one)}: {verdict.reason}" if several else verdict.reason)
        if several and target not in self._known:
            flows = [flow.name for flow in self._kin.flows if flow.delivery != "exactly_once"]
            why = f"{', '.join(flows)} delivers at least once" if flows else "a transaction is under way"
            return _said(
                decides,
                target,
                None,
                reason=f"{len(parts)} source partitions feed {target} and {why}: not all records are known",
            )
        bound = self._known[target] if several else None
        position = position_among(contributions, known_to=bound)
        if position is None and target not in self._first:
            return _said(decides, target, None, reason=f"{target} does not exist on {self._kin.flows[0].target} yet")
        position = self._first[target] if position is None else position
        read_to_here = max((one.last_read for one in contributions if one.last_read is not None), default=-1)
        exact = all(verdict.exact for verdict in verdicts) and read_to_here < position
        counts = [verdict.again for verdict in verdicts]
        again = None if None in counts else sum(count for count in counts if count is not None)
        reason = next((verdict.reason for verdict in verdicts if verdict.reason), "")
        if several:
            reason = f"{len(parts)} source partitions feed {target}; {_named(decides)} decides" + (
                reason and f"; {reason}"
            )
        return replace(_said(decides, target, position, reason=reason), exact=exact, records_again=again)

    def _counted(
        self,
        found: dict[tuple[str, TopicPartition], Resume],
        rows: Mapping[tuple[str, TopicPartition], list[tuple[Contribution, Verdict]]],
    ) -> dict[tuple[str, TopicPartition], Resume]:
        """Add how many records each reader reads again because they stand after one that it has not read."""
        asked: dict[str, set[tuple[Any, ...]]] = {}
        for key, resume in found.items():
            for one, _ in rows[key]:
                place = resume.downstream_offset
                if place is not None and one.last_read is not None and one.last_read >= place:
                    source = one.source.topic, one.source.generation, one.source.partition
                    row = (*source, one.upstream_offset, key[1].topic, key[1].partition, place)
                    asked.setdefault(one.flow, set()).add(row)
        again: dict[tuple[Any, ...], int] = {}
        for name, points in asked.items():
            columns = f"{_SOURCES}, target_topic string, target_partition int, place bigint"
            frame = self._lake.spark.createDataFrame(sorted(points), columns)
            for row in read_from(frame, self._maps.runs.where(F.col("flow") == name)).collect():
                again[(name, *row[:-1])] = int(row.records_again)
        counted = dict(found)
        for key, resume in found.items():
            more = sum(
                again.get(
                    (
                        one.flow,
                        *(one.source.topic, one.source.generation, one.source.partition, one.upstream_offset),
                        *(key[1].topic, key[1].partition, resume.downstream_offset),
                    ),
                    0,
                )
                for one, _ in rows[key]
            )
            if more and resume.records_again is not None:
                counted[key] = replace(resume, records_again=resume.records_again + more)
        return counted


def _named(one: Contribution) -> str:
    return f"{one.source}@{one.upstream_offset} of {one.flow}"


def _said(one: Contribution, target: TopicPartition, downstream: int | None, *, reason: str) -> Resume:
    return Resume(
        source=one.source,
        upstream_offset=one.upstream_offset,
        target=target,
        downstream_offset=downstream,
        exact=False,
        reason=reason,
    )


class _Judge:
    """Decide about positions outside of the map, with one look at relay and source for all of them."""

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
        self._maps = maps
        self._republished = maps.positions[flow.name]
        sources = sorted({source for source, _ in unsure})
        self._read_to = read_to(lake, flow.source) if sources else {}
        self._begun = self._landing_begun() if sources else {}
        there = [TopicPartition(source.topic, source.partition) for source in sources]
        self._earliest: Mapping[TopicPartition, int] = {}
        if there and source is not None:
            existing = source.describe({tp.topic for tp in there})
            there = [tp for tp in there if tp.topic in existing and tp.partition < existing[tp.topic].partitions]
            self._earliest = source.earliest(there)
        self._spans = self._landed_between(unsure)

    def verdict(self, source: SourcePartition, offset: int, republished_from: int | None) -> Verdict:
        """Return the verdict on one position."""
        if hindrance := self._maps.hindrance(self._flow.name, source, offset, republished_from):
            return Verdict(is_safe=False, reason=hindrance)
        if republished_from is not None and offset < republished_from:
            return self._before_the_first(source, offset)
        return self._behind_the_end(source, offset)

    def _behind_the_end(self, source: SourcePartition, offset: int) -> Verdict:
        """The reader is at or ahead of what was republished: it waits there for what it has already read."""
        seen = self._read_to.get(TopicPartition(source.topic, source.partition), 0)
        waiting, last = self._spans.get((source, offset), (0, -1))
        if waiting == 0 and offset <= max(seen, last + 1, self._republished.get(source, 0)):
            return Verdict()
        if offset > max(seen, last + 1):
            reason = "ahead of what was landed; it waits at the last republished position"
            return Verdict(exact=False, again=None, reason=reason)
        reason = "ahead of what was republished; it waits at the last republished position"
        return Verdict(exact=False, again=waiting, reason=reason)

    def _before_the_first(self, source: SourcePartition, offset: int) -> Verdict:
        """The reader stands before everything that was republished: fine, where nothing it could still read is skipped."""
        tp = TopicPartition(source.topic, source.partition)
        waiting, _ = self._spans.get((source, offset), (0, -1))
        readable_from = max(offset, self._earliest.get(tp, offset))
        if waiting == 0 and readable_from >= self._begun.get(source, 2**63):
            return Verdict()
        reason = f"records between {offset} and the first republished one were never republished by this flow"
        return Verdict(is_safe=False, reason=reason)

    def _landing_begun(self) -> dict[SourcePartition, int]:
        samples = self._lake.meta(POSITIONS).where((F.col("source") == self._flow.source) & (F.col("kind") == "landed"))
        rows = samples.groupBy(*SOURCE_KEY).agg(F.min("position").alias("first")).collect()
        return {SourcePartition(row.topic, row.generation, row.partition): int(row["first"]) for row in rows}

    def _landed_between(self, unsure: Mapping[Asked, int | None]) -> dict[Asked, tuple[int, int]]:
        """Return how many landed records lie between each position and what was republished, and the last landed offset.

        Past what was republished these are records that the reader has read and the target lacks; before the first that
        was republished, records that it has not read and never will there.
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
