"""Whose a group's position is: its own, or one that mirrorlake set, by what `positions` recorded.

Law A: a position that mirrorlake wrote is never taken for a reader's own progress, so none echoes back to where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from mirrorlake.kafka.groups import Committed
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.metadata import KnownTopic
from mirrorlake.lake.rows import Row, position_row
from mirrorlake.lake.schema import POSITIONS
from mirrorlake.lake.times import from_micros
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Resume
from mirrorlake.model.loops.routes import TopicPlace
from mirrorlake.model.own_commits import CommitHistory, Freedom, Held, may_move
from mirrorlake.offsets.shared_partitions import Family
from mirrorlake.offsets.web import ways_of

SET = "group_set"
"""The kind of a position that mirrorlake set; written before it is set, so that a death between the two leaves no echo."""

Positions = Mapping[tuple[str, SourcePartition], Committed]
FamilyPositions = Mapping[str, Positions]
"""What groups have committed on the sources of a flow and of those that share its remote topics, by flow."""

Site = tuple[str, str, SourcePartition]
"""A group, the alias of a cluster, and a partition there."""

_KEY = ("group_id", "source", "topic", "generation", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What groups have read, and where they stay.

    Attributes:
        readers: the positions that tell what they have read, by group, flow and source partition.
        stands: those of the flow's source that are translated, whoever set them; None where they are the groups' own.
        kept: what is not translated, because the group may not be moved there.
        freedoms: why.
    """

    readers: Mapping[str, Mapping[str, Mapping[SourcePartition, int]]]
    stands: Mapping[str, Mapping[SourcePartition, int]] | None = None
    kept: Mapping[tuple[str, TopicPartition], Resume] = field(default_factory=dict)
    freedoms: Mapping[tuple[str, TopicPartition], Freedom] = field(default_factory=dict)


def progress_of(lake: Lake, kin: Family, positions: FamilyPositions, *, now: datetime) -> Progress:
    """Tell groups' own progress from what mirrorlake set, where clusters mirror each other.

    Args:
        lake: the lake.
        kin: the flow, and those that belong to it.
        positions: what groups have committed, by flow.
        now: the time of the look.
    """
    readers: dict[str, dict[str, dict[SourcePartition, int]]] = {}
    if not kin.web:
        for name, held_there in positions.items():
            for (group, source), committed in held_there.items():
                readers.setdefault(group, {}).setdefault(name, {})[source] = committed.offset
        return Progress(readers=readers)
    flow = kin.flows[0]
    mine = positions.get(flow.name, {})
    aliases = {each.name: each.source for each in kin.all_flows}
    groups = {group for group, _ in mine}
    sites = {
        (group, aliases[name], source): committed.offset
        for name, held_there in positions.items()
        for (group, source), committed in held_there.items()
        if group in groups
    }
    held = held_by(sites, histories(lake, aliases.values(), groups), now=now)
    for name, held_there in positions.items():
        for (group, source), committed in held_there.items():
            here = held.get(group, {}).get((TopicPlace(aliases[name], source.topic), source.partition))
            if here is None:
                continue
            # Where it would be moved it has read what is before its position, or skipped it already: it is never moved back.
            if here.own_since is not None or aliases[name] == flow.target:
                readers.setdefault(group, {}).setdefault(name, {})[source] = committed.offset
    ways = ways_of(kin)
    stands: dict[str, dict[SourcePartition, int]] = {}
    kept: dict[tuple[str, TopicPartition], Resume] = {}
    freedoms: dict[tuple[str, TopicPartition], Freedom] = {}
    for (group, source), committed in mine.items():
        goal, target = TopicPlace(flow.target, flow.remote_topic(source.topic)), flow.remote_topic(source.topic)
        related = {
            place: one
            for (place, partition), one in held[group].items()
            if partition == source.partition and (place == goal or (place, goal) in ways or (goal, place) in ways)
        }
        freedom = may_move(goal, related)
        if freedom.is_free:
            stands.setdefault(group, {})[source] = committed.offset
            continue
        key = group, TopicPartition(target, source.partition)
        freedoms[key] = freedom
        kept[key] = Resume(
            source=source, upstream_offset=committed.offset, target=key[1], downstream_offset=None, exact=True
        )
    return Progress(readers=readers, stands=stands, kept=kept, freedoms=freedoms)


def histories(lake: Lake, aliases: Iterable[str], groups: Iterable[str]) -> dict[Site, CommitHistory]:
    """Read what is recorded of the positions of groups: which ones mirrorlake set, and since when others stand there."""
    groups = sorted(set(groups))
    if not groups:
        return {}
    rows = lake.meta(POSITIONS).where(
        F.col("source").isin(sorted(set(aliases)))
        & F.col("kind").isin("group", SET)
        & F.col("group_id").isin(groups)
        & F.col("position").isNotNull()
    )
    made = (
        rows.where(F.col("kind") == SET)
        .groupBy(*_KEY, "position")
        .agg(F.min("observed_at").alias("first_at"), F.unix_micros(F.max("observed_at")).alias("last_at"))
    )
    # A sampler writes all positions from time to time: only changes tell when a group committed.
    before = F.lag("position").over(Window.partitionBy(*_KEY).orderBy("observed_at"))
    changes = (
        rows.where(F.col("kind") == "group").withColumn("before", before).where("before IS NULL OR before != position")
    )
    seen = (
        changes.join(made, [*_KEY, "position"], "left")
        .where("first_at IS NULL OR first_at > observed_at")
        .groupBy(*_KEY)
        .agg(F.max_by(F.struct(F.unix_micros("observed_at").alias("at"), "position"), "observed_at").alias("seen"))
    )
    set_at: dict[Site, dict[int, datetime]] = {}
    for row in made.collect():
        set_at.setdefault(_site(row), {})[int(row.position)] = from_micros(row.last_at)
    seen_at = {_site(row): (from_micros(row.seen["at"]), int(row.seen.position)) for row in seen.collect()}
    return {site: CommitHistory(set_at.get(site, {}), seen_at.get(site)) for site in set_at.keys() | seen_at.keys()}


def held_by(
    positions: Mapping[Site, int], recorded: Mapping[Site, CommitHistory], *, now: datetime
) -> dict[str, dict[tuple[TopicPlace, int], Held]]:
    """Return whose each position is, by group and by place and partition."""
    found: dict[str, dict[tuple[TopicPlace, int], Held]] = {}
    for site, offset in positions.items():
        group, alias, source = site
        held = recorded.get(site, CommitHistory({})).held(offset, now=now)
        found.setdefault(group, {})[TopicPlace(alias, source.topic), source.partition] = held
    return found


def set_rows(
    alias: str,
    flow: str,
    moves: Iterable[tuple[str, TopicPartition, int]],
    *,
    known: Mapping[str, KnownTopic],
    at: datetime,
) -> list[Row]:
    """Return the rows of `positions` that say what mirrorlake sets on a cluster.

    Args:
        alias: the cluster.
        flow: the flow that does it.
        moves: group, partition and position.
        known: the topics there, as they live.
        at: when.
    """

    def life(tp: TopicPartition, offset: int) -> SourcePartition:
        topic = known.get(tp.topic)
        return SourcePartition(tp.topic, topic.generation_at(tp.partition, offset) if topic else 1, tp.partition)

    return [
        position_row(alias, life(tp, offset), SET, offset, at, flow=flow, group=group) for group, tp, offset in moves
    ]


def _site(row: object) -> Site:
    group, alias, topic, generation, partition = (getattr(row, name) for name in _KEY)
    return group, alias, SourcePartition(topic, generation, partition)
