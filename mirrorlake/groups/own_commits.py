"""The owner of a group's position, the group itself or mirrorlake, by the table `positions`.

Law A: a position that mirrorlake wrote never counts as a reader's own progress, so none echoes back to its origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.kafka import Committed
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Resume
from mirrorlake.model.loops.routes import TopicPlace
from mirrorlake.model.own_commits import CommitHistory, CommittedPosition, MovePermission, may_move
from mirrorlake.offsets import Positions, PositionsByFlow, RelatedFlows

SET = "group_set"
"""The kind of a position that mirrorlake set; recorded before it is set, so that a death between the two leaves no echo."""

GroupPartition = tuple[str, str, SourcePartition]
"""A group, the alias of a cluster, and a partition of that cluster."""

_KEY = ("group_id", "source", "topic", "generation", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommits:
    """The positions up to which groups have read (`readers`), and their partitions on the target.

    `translated` are positions on the flow's source to translate, whoever set them. `staying` are target partitions on
    which the group may not be moved, and why.
    """

    readers: PositionsByFlow
    translated: Positions
    staying: Mapping[tuple[str, TopicPartition], tuple[Resume, MovePermission]] = field(default_factory=dict)


def read_own_commits(lake: Lake, related: RelatedFlows, positions: PositionsByFlow, *, now: datetime) -> OwnCommits:
    """Separate the groups' own commits from mirrorlake's, between clusters that mirror each other."""
    flow = related.flows[0]
    mine = positions.get(flow.name, {})
    if not related.back:
        return OwnCommits(readers=positions, translated=mine)
    aliases = {each.name: each.source for each in related.all_flows}
    groups = {group for group, _ in mine}
    sites = [
        (name, group, source, committed)
        for name, here in positions.items()
        for (group, source), committed in here.items()
        if group in groups
    ]
    histories = _histories(lake, aliases.values(), groups)
    held: dict[str, dict[tuple[TopicPlace, int], CommittedPosition]] = {}
    for name, group, source, committed in sites:
        history = histories.get((group, aliases[name], source), CommitHistory({}))
        place = TopicPlace(aliases[name], source.topic)
        held.setdefault(group, {})[place, source.partition] = history.committed_position(committed.offset, now=now)
    readers: dict[str, dict[tuple[str, SourcePartition], Committed]] = {}
    for name, group, source, committed in sites:
        is_own = held[group][TopicPlace(aliases[name], source.topic), source.partition].own_since is not None
        # On the target the group has read or skipped all records before its position: it is never moved back.
        if is_own or aliases[name] == flow.target:
            readers.setdefault(name, {})[group, source] = committed
    translated: dict[tuple[str, SourcePartition], Committed] = {}
    staying: dict[tuple[str, TopicPartition], tuple[Resume, MovePermission]] = {}
    for (group, source), committed in mine.items():
        goal = TopicPlace(flow.target, flow.remote_topic(source.topic))
        back = related.way_back(source.topic)
        if back is None:
            translated[group, source] = committed
            continue
        wanted = {goal, TopicPlace(flow.source, source.topic), TopicPlace(flow.source, back.remote_topic(goal.topic))}
        places = {
            place: one
            for (place, partition), one in held[group].items()
            if partition == source.partition and place in wanted
        }
        freedom = may_move(goal, places)
        if freedom.is_free:
            translated[group, source] = committed
            continue
        target = TopicPartition(goal.topic, source.partition)
        stays = Resume(
            source=source, upstream_offset=committed.offset, target=target, downstream_offset=None, exact=True
        )
        staying[group, target] = stays, freedom
    return OwnCommits(readers=readers, translated=translated, staying=staying)


def _histories(lake: Lake, aliases: Iterable[str], groups: Iterable[str]) -> dict[GroupPartition, CommitHistory]:
    """Read the recorded positions of groups: those that mirrorlake set, and the time of the newest others."""
    groups = sorted(groups)
    if not groups:
        return {}
    values: dict[str, Any] = {"sources": sorted(set(aliases)), "groups": groups, "made": SET}
    set_at: dict[GroupPartition, dict[int, datetime]] = {}
    for row in lake.query_rows(_SET_BY_US, **values):
        set_at.setdefault(_group_partition(row), {})[int(row.position)] = row.last_at
    seen_at = {
        _group_partition(row): (row.observed_at, int(row.position)) for row in lake.query_rows(_THEIR_OWN, **values)
    }
    return {site: CommitHistory(set_at.get(site, {}), seen_at.get(site)) for site in set_at.keys() | seen_at.keys()}


_KEYS = ", ".join(_KEY)
_ASKED = "FROM {positions} WHERE array_contains(:sources, source) AND array_contains(:groups, group_id) AND position IS NOT NULL"
_SET_BY_US = f"""
    SELECT {_KEYS}, position, min(observed_at) AS first_at, max(observed_at) AS last_at {_ASKED} AND kind = :made
    GROUP BY {_KEYS}, position
"""
# A sampler writes all positions from time to time: only changes show when a group committed.
_THEIR_OWN = f"""
    WITH made AS ({_SET_BY_US}),
    looks AS (
        SELECT {_KEYS}, position, observed_at, lag(position) OVER (PARTITION BY {_KEYS} ORDER BY observed_at) AS before
        {_ASKED} AND kind = 'group'
    ),
    own AS (
        SELECT {_KEYS}, position, l.observed_at,
            row_number() OVER (PARTITION BY {_KEYS} ORDER BY l.observed_at DESC) AS rank
        FROM looks AS l LEFT JOIN made AS m USING ({_KEYS}, position)
        WHERE (l.before IS NULL OR l.before <> position) AND (m.first_at IS NULL OR m.first_at > l.observed_at)
    )
    SELECT {_KEYS}, position, observed_at FROM own WHERE rank = 1
"""  # noqa: S608  names of columns


def _group_partition(row: object) -> GroupPartition:
    group, alias, topic, generation, partition = (getattr(row, name) for name in _KEY)
    return group, alias, SourcePartition(topic, generation, partition)
