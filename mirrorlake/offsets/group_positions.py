"""The positions of consumer groups: read from their clusters, told apart by who set them, recorded in the lake.

Law A: a position that mirrorlake wrote never counts as a group's own progress, so none echoes back to its origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.config.schema import FlowConfig, NameMatcher
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, MirrorlakeError
from mirrorlake.kafka import Committed
from mirrorlake.lake import CHECKPOINTS, POSITIONS, Lake, SourceTopics, position_row
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, Resume
from mirrorlake.model.own_commits import CommitHistory, CommittedPosition, MovePermission, may_move
from mirrorlake.offsets.maps import Positions, PositionsByFlow, RelatedFlows, related_flows

_SET = "group_set"
"""The kind of a position that mirrorlake set; recorded before it is set, so that a death between the two leaves no echo."""

# -- read from the clusters ------------------------------------------------------------------------------------------


def committed_positions(
    context: Context, flow: FlowConfig, *, recorded: bool = False, unsure: dict[str, MirrorlakeError]
) -> PositionsByFlow:
    """Return the commits of a flow's groups on its source and on the sources of flows that share its topics.

    {} if the groups have committed nothing on the flow's own source. `recorded` takes the positions on that source
    from the lake. `unsure` gets groups (see `Groups.committed_each`); one that a source hides has no position at all (law A).

    NotAuthorized if the source hides its groups.
    """
    config, lost = context.config, {flow.source} if recorded else set[str]()
    mine = _positions_on_source(context, flow, flow, lost, unsure)
    if not mine:
        return {}
    by_flow = {flow.name: mine}
    # A target with one flow has no merged topics: a pass then needs no metadata.
    if len(config.flows_to(flow.target)) == 1 and not flow.adds_hops:
        return by_flow
    for other in related_flows(context.lake, flow, config.flows).all_flows[1:]:
        by_flow[other.name] = _positions_on_source(context, other, flow, lost, unsure)
    unread = {group for group, why in unsure.items() if isinstance(why, ClusterError)}
    return {
        name: {key: held for key, held in positions.items() if key[0] not in unread}
        for name, positions in by_flow.items()
    }


def _positions_on_source(
    context: Context, carrier: FlowConfig, flow: FlowConfig, lost: set[str], unsure: dict[str, MirrorlakeError]
) -> Positions:
    """Return the commits of a flow's groups on the topics that a carrier takes from its source."""
    # The groups of the flow itself, on every source: another flow's own selection may leave some of them out.
    selection = flow.group_selection
    if context.config.cluster(carrier.source).is_lake:
        return {}
    if carrier.source not in lost:
        try:
            found = _live_positions(context, carrier, selection=selection, unsure=unsure)
            for name, error in context.groups(carrier.source).refusals(flow.groups).items():
                if not found:
                    raise error
                # The other names were made up for a pattern, of which some groups may be seen.
                if selection.matches(name) and error.facts["name"] == name:
                    unsure[name] = error
            return found
        except ClusterError:
            if carrier.name == flow.name:
                raise
    # A group only reads on, so its last known position is never ahead.
    return {
        (group, source): Committed(offset)
        for (group, source), offset in newest_positions(context.lake, carrier.source).items()
        if carrier.carries(source.topic) and selection.matches(group)
    }


def _live_positions(
    context: Context, flow: FlowConfig, *, selection: NameMatcher, unsure: dict[str, MirrorlakeError]
) -> Positions:
    """Return the commits of selected groups, with and without members; the mirror's own groups are left out."""
    groups = context.groups(flow.source)
    names = [name for name in groups.states() if selection.matches(name) and not name.startswith("mirrorlake.")]
    if not names:
        return {}
    known = SourceTopics(context.lake, flow.source).load()
    # A topic that was created again and not landed since would be read with the old generation's map.
    partitions = [
        TopicPartition(name, p)
        for name, state in context.admin(flow.source).describe(known).items()
        if flow.carries(name) and state.topic_id == known[name].topic_id
        for p in range(state.partitions)
    ]
    return {
        (group, SourcePartition(tp.topic, known[tp.topic].generation_at(tp.partition, held.offset), tp.partition)): held
        for group, committed in groups.committed(names, partitions, unsure=unsure).items()
        for tp, held in committed.items()
    }


def newest_positions(lake: Lake, alias: str) -> dict[tuple[str, SourcePartition], int]:
    """Return the newest recorded position of every group on each partition of a cluster, over all its generations."""
    # A sample records a vanished position as NULL; the last known one counts.
    rows = lake.query_rows(
        "SELECT group_id, topic, partition, max_by(generation, observed_at) AS generation, "
        "max_by(position, observed_at) AS position FROM {positions} "
        "WHERE source = :source AND kind = 'group' AND position IS NOT NULL GROUP BY group_id, topic, partition",
        source=alias,
    )
    known = SourceTopics(lake, alias).load() if rows else {}
    found = {}
    for row in rows:
        topic, generation = known.get(row.topic), row.generation
        if topic is not None and generation in {topic.generation, *(cut.generation for cut in topic.truncations)}:
            # By the offset, as for live positions.
            generation = topic.generation_at(row.partition, int(row.position))
        found[row.group_id, SourcePartition(row.topic, generation, row.partition)] = int(row.position)
    return found


# -- who set them ----------------------------------------------------------------------------------------------------


_Place = tuple[str, TopicPartition]
"""The alias of a cluster, and a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommits:
    """The positions up to which groups have read (`readers`), and their partitions on the target.

    `translated` are positions on the flow's source to translate. `staying` are target partitions on which the group
    may not be moved, and why.
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
    histories = _histories(lake, aliases.values(), {group for group, _ in mine})
    readers: dict[str, dict[tuple[str, SourcePartition], Committed]] = {}
    commits: dict[tuple[str, _Place], CommittedPosition] = {}
    for name, on_source in positions.items():
        alias = aliases[name]
        for (group, source), committed in on_source.items():
            history = histories.get((group, alias, source), CommitHistory({}))
            commit = history.committed_position(committed.offset, now=now)
            commits[group, (alias, TopicPartition(source.topic, source.partition))] = commit
            # On the target the group has read or skipped all records before its position: it is never moved back.
            if commit.own_since is not None or alias == flow.target:
                readers.setdefault(name, {})[group, source] = committed
    translated: dict[tuple[str, SourcePartition], Committed] = {}
    staying: dict[tuple[str, TopicPartition], tuple[Resume, MovePermission]] = {}
    for (group, source), committed in mine.items():
        back = related.way_back(source.topic)
        if back is None:
            translated[group, source] = committed
            continue
        target = TopicPartition(flow.remote_topic(source.topic), source.partition)
        copies = TopicPartition(back.remote_topic(target.topic), source.partition)
        here = TopicPartition(source.topic, source.partition)
        places = ((flow.target, target), (flow.source, here), (flow.source, copies))
        held = {place: commits[group, place] for place in places if (group, place) in commits}
        permission = may_move(places[0], held)
        if permission.is_free:
            translated[group, source] = committed
            continue
        stays = Resume(
            source=source, upstream_offset=committed.offset, target=target, downstream_offset=None, exact=True
        )
        staying[group, target] = stays, permission
    return OwnCommits(readers=readers, translated=translated, staying=staying)


_GroupPartition = tuple[str, str, SourcePartition]
"""A group, the alias of a cluster, and a partition of that cluster."""


def _histories(lake: Lake, aliases: Iterable[str], groups: Iterable[str]) -> dict[_GroupPartition, CommitHistory]:
    """Read the recorded positions of groups: those that mirrorlake set, and the time of the newest others."""
    groups = sorted(groups)
    if not groups:
        return {}
    values: dict[str, Any] = {"sources": sorted(set(aliases)), "groups": groups, "made": _SET}
    set_at: dict[_GroupPartition, dict[int, datetime]] = {}
    for row in lake.query_rows(_SET_BY_US, **values):
        set_at.setdefault(_group_partition(row), {})[int(row.position)] = row.last_at
    seen_at = {
        _group_partition(row): (row.observed_at, int(row.position)) for row in lake.query_rows(_THEIR_OWN, **values)
    }
    return {key: CommitHistory(set_at.get(key, {}), seen_at.get(key)) for key in set_at.keys() | seen_at.keys()}


def _group_partition(row: Any) -> _GroupPartition:
    return row.group_id, row.source, SourcePartition(row.topic, row.generation, row.partition)


_KEYS = "group_id, source, topic, generation, partition"
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

# -- recorded in the lake --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class GroupRecords:
    """Write group positions and their translations to the lake if they changed since the last write."""

    lake: Lake
    flow: FlowConfig
    now: Callable[[], datetime]
    _positions: dict[str, dict[tuple[str, SourcePartition], int]] = field(default_factory=dict, init=False)
    _checkpoints: dict[tuple[str, TopicPartition], tuple[int, int | None]] | None = field(default=None, init=False)

    def record_intent(self, plan: GroupPlan) -> None:
        """Append the positions that the plan will set, if they could later count as the group's own progress.

        Law A: written first, so that no death between the two leaves a position that seems the group's own.
        """
        if not self.flow.adds_hops or not plan.moves:
            return
        known, at = SourceTopics(self.lake, self.flow.target).load(), self.now()
        rows = []
        for move in plan.moves:
            tp, offset = move.resume.target, move.resume.downstream_offset
            if offset is not None:
                generation = known[tp.topic].generation_at(tp.partition, offset) if tp.topic in known else 1
                there = SourcePartition(tp.topic, generation, tp.partition)
                rows.append(
                    position_row(self.flow.target, there, _SET, offset, at, flow=self.flow.name, group=move.group)
                )
        self.lake.append_rows(POSITIONS, rows)

    def write(self, plan: GroupPlan, positions: Mapping[str, Positions], *, at: datetime) -> None:
        """Append the positions, by alias, and the flow's translations that are new.

        `at` is a time before the positions were read: a position that is set later must not seem older.
        """
        rows = []
        for alias, committed in positions.items():
            known = self._positions.setdefault(alias, newest_positions(self.lake, alias) if committed else {})
            moved = {key: held.offset for key, held in committed.items() if known.get(key) != held.offset}
            rows += [position_row(alias, s, "group", offset, at, group=group) for (group, s), offset in moved.items()]
            known |= moved
        self.lake.append_rows(POSITIONS, rows)
        if self._checkpoints is None:
            self._checkpoints = self._recorded_checkpoints()
        fresh = []
        for one in plan.translated():
            resume = one.resume
            pair = resume.upstream_offset, resume.downstream_offset
            if self._checkpoints.get((one.group, resume.target)) != pair:
                self._checkpoints[one.group, resume.target] = pair
                fresh.append(
                    {
                        "flow": self.flow.name,
                        "group_id": one.group,
                        "target_topic": resume.target.topic,
                        "target_partition": resume.target.partition,
                        "upstream_offset": resume.upstream_offset,
                        "downstream_offset": resume.downstream_offset,
                        "metadata": one.metadata,
                        "observed_at": self.now(),
                    }
                )
        self.lake.append_rows(CHECKPOINTS, fresh)

    def _recorded_checkpoints(self) -> dict[tuple[str, TopicPartition], tuple[int, int | None]]:
        rows = self.lake.query_rows(
            "SELECT group_id, target_topic, target_partition, max_by(upstream_offset, observed_at) AS upstream_offset, "
            "max_by(downstream_offset, observed_at) AS downstream_offset FROM {checkpoints} "
            "WHERE flow = :flow GROUP BY group_id, target_topic, target_partition",
            flow=self.flow.name,
        )
        return {
            (row.group_id, TopicPartition(row.target_topic, row.target_partition)): (
                int(row.upstream_offset),
                int(row.downstream_offset),
            )
            for row in rows
        }
