"""Read the state of a source at a time: its topics, end offsets, ACLs, and group positions.

The end of a partition at a time T has two bounds. At least: the offsets landed by T, below an end observed by T, or read by
a group by T. At most: the first end observed after T. In between, the first record with a timestamp later than T decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.lake import KnownTopic, Lake, RelayPart, micros, newest_topics, read_observations
from mirrorlake.model import history
from mirrorlake.model.acls import Acl
from mirrorlake.model.flow import SourcePartition

_CUT = """
    SELECT topic, generation, partition,
        max(CASE WHEN unix_micros(landed_at) <= :at THEN offset END) AS landed,
        min(CASE WHEN unix_micros(timestamp) > :at THEN offset END) AS later
    FROM {relay} JOIN {asked} USING (topic, generation, partition) GROUP BY topic, generation, partition
"""
# A group that was deleted by that time has a row without a position.
_SEEN = """
    SELECT topic, generation, partition, kind, group_id, position, observed_at FROM (
        SELECT *, row_number() OVER (
            PARTITION BY topic, generation, partition, kind, group_id ORDER BY observed_at DESC) AS rank
        FROM {positions}
        WHERE source = :source AND flow IS NULL AND array_contains(:kinds, kind) AND unix_micros(observed_at) <= :at
    ) WHERE rank = 1 AND position IS NOT NULL ORDER BY observed_at
"""
_NEXT = """
    SELECT topic, generation, partition, position FROM (
        SELECT *, row_number() OVER (PARTITION BY topic, generation, partition ORDER BY observed_at) AS rank
        FROM {positions}
        WHERE source = :source AND flow IS NULL AND kind = 'last_stable' AND unix_micros(observed_at) > :at
            AND position IS NOT NULL
    ) WHERE rank = 1
"""


@dataclass(frozen=True, slots=True, order=True)
class GroupAsOf:
    """The position of a consumer group: the next offset that it would have read."""

    group: str
    source: SourcePartition
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAsOf:
    """The observed state of a source at a time.

    Attributes:
        topics: its topics.
        earliest: the first offset of each partition.
        ends: the offset after the last, for partitions with a later record or a later observed end.
        groups: the positions of groups.
        acls: its ACLs.
    """

    topics: Mapping[str, KnownTopic]
    earliest: Mapping[SourcePartition, int]
    ends: Mapping[SourcePartition, int]
    groups: tuple[GroupAsOf, ...]
    acls: frozenset[Acl]


def read_topics_as_of(lake: Lake, alias: str, at: datetime) -> dict[str, KnownTopic]:
    """Read the topics that a source had at a time."""
    known = newest_topics(lake, alias, "source", missing_ok=True, until=at)
    return {name: topic for name, topic in known.items() if topic.present and topic.generation}


def read_source_as_of(
    lake: Lake, alias: str, topics: Mapping[str, KnownTopic], held: Iterable[SourcePartition], *, at: datetime
) -> SourceAsOf:
    """Read the state of some topics of a source at a time; `held` are the source partitions of the relay."""
    asked = [source for source in held if source.topic in topics]
    seen = lake.query_rows(
        _SEEN, missing_ok=True, source=alias, kinds=["earliest", "last_stable", "group"], at=micros(at)
    )
    by_kind: dict[str, dict[SourcePartition, int]] = {"earliest": {}, "last_stable": {}}
    # A partition whose log was truncated may have two positions of a group: the later one counts.
    groups: dict[tuple[str, str, int], GroupAsOf] = {}
    for row in seen:
        source = SourcePartition(row.topic, row.generation, row.partition)
        if source.topic not in topics:
            continue
        if row.kind == "group":
            groups[row.group_id, row.topic, row.partition] = GroupAsOf(row.group_id, source, int(row.position))
        else:
            by_kind[row.kind][source] = int(row.position)
    following = {
        SourcePartition(row.topic, row.generation, row.partition): int(row.position)
        for row in lake.query_rows(_NEXT, missing_ok=True, source=alias, at=micros(at))
    }
    certain = dict(by_kind["last_stable"])
    for one in groups.values():
        certain[one.source] = max(certain.get(one.source, 0), one.position)
    ends: dict[SourcePartition, int] = {}
    part = RelayPart(dict.fromkeys(asked, 0), others=False)
    rows = lake.query_rows(_CUT, relay=alias, part=part, tables={"asked": part.known()}, at=micros(at))
    for row in rows if asked else []:
        source = SourcePartition(row.topic, row.generation, row.partition)
        least = max(certain.get(source, 0), 0 if row.landed is None else int(row.landed) + 1)
        most = [int(row.later)] if row.later is not None else []
        most += [following[source]] if source in following else []
        if most:
            ends[source] = max(least, min(most))
    state = history.state_of(read_observations(lake, clusters=[alias], until=at))
    return SourceAsOf(
        topics=topics,
        earliest=by_kind["earliest"],
        ends=ends,
        groups=tuple(sorted(groups.values())),
        acls=frozenset(state.acls.get(alias, ())),
    )
