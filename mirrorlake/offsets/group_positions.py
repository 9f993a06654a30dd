"""The positions of consumer groups: read from their clusters, told apart by who set them, recorded in the lake.

Law A: a position that mirrorlake wrote never counts as a group's own progress, so none echoes back to its origin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, MirrorlakeError, NotAuthorized
from mirrorlake.kafka import Committed
from mirrorlake.lake import CHECKPOINTS, POSITIONS, Lake, SourceTopics, position_row, source_at
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.own_commits import CommitHistory, MovePermission, may_move
from mirrorlake.offsets.maps import Positions, PositionsByFlow, RelatedFlows, related_flows
from mirrorlake.offsets.neighbours import ReadPosition

# -- read from the clusters ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """The commits of a flow's groups, {} if they have none on the flow's own source; and why groups are `unsure`.

    By flow: on its own source and on the sources of flows that share its topics. `unsure` is from `Groups.committed_each`,
    and has `NotAuthorized` of groups that a source hides. A group that cannot be read has no position at all (law A).
    """

    by_flow: PositionsByFlow
    unsure: dict[str, MirrorlakeError] = field(default_factory=dict)

    def only(self, groups: Collection[str]) -> GroupCommits:
        kept = {name: {key: at for key, at in all_.items() if key[0] in groups} for name, all_ in self.by_flow.items()}
        return GroupCommits(kept, {group: why for group, why in self.unsure.items() if group in groups})


def read_commits(context: Context, flow: FlowConfig, *, recorded: bool = False) -> GroupCommits:
    """Read the commits of a flow's groups; `recorded` takes those on the flow's own source from the lake.

    Raises:
        NotAuthorized: the source hides its groups.
    """
    config, lost = context.config, {flow.source} if recorded else set[str]()
    unsure: dict[str, MirrorlakeError] = {}
    by_flow = {flow.name: _positions_on_source(context, flow, flow, lost, unsure)}
    mine = {group for group, _ in by_flow[flow.name]}
    if not mine:
        return GroupCommits({}, unsure)
    # A target with one flow has no merged topics: a pass then needs no metadata.
    if len(config.flows_to(flow.target)) > 1 or flow.adds_hops:
        related = related_flows(context, flow)
        for other in related.flows[1:] + related.back:
            by_flow[other.name] = _positions_on_source(context, other, flow, lost, unsure, mine)
    unread = {group for group, why in unsure.items() if isinstance(why, ClusterError)}
    readable = {group for positions in by_flow.values() for group, _ in positions} - unread
    return replace(GroupCommits(by_flow).only(readable), unsure=unsure)


def _positions_on_source(
    context: Context,
    carrier: FlowConfig,
    flow: FlowConfig,
    lost: set[str],
    unsure: dict[str, MirrorlakeError],
    mine: Collection[str] = (),
) -> Positions:
    """Return the commits of a flow's groups on the topics that a carrier takes from its source; `mine` are those on its own."""
    # The groups of the flow itself, on every source: another flow's own selection may leave some of them out.
    selection = flow.group_selection
    # A lake cluster has no consumers.
    if context.config.cluster(carrier.source).is_lake:
        return {}
    if carrier.source not in lost:
        try:
            positions = _live_positions(context, carrier, flow, unsure)
            for name, error in context.groups(carrier.source).refusals(flow.groups).items():
                if not positions:
                    raise error
                # The other names were made up for a pattern, of which some groups may be seen.
                if selection.matches(name) and error.facts["name"] == name:
                    unsure[name] = error
            return positions
        except ClusterError as error:
            if carrier.name == flow.name:
                raise
            # Nobody knows whether the groups read there, and how far (law A).
            if isinstance(error, NotAuthorized) or not _has_answered(context.lake, carrier.source):
                unsure |= dict.fromkeys(mine, error)
    # A group only reads on, so its last known position is never ahead.
    return {
        (group, source): Committed(offset)
        for (group, source), offset in newest_positions(context.lake, carrier.source).items()
        if carrier.carries(source.topic) and selection.matches(group)
    }


def _live_positions(
    context: Context, carrier: FlowConfig, flow: FlowConfig, unsure: dict[str, MirrorlakeError]
) -> Positions:
    """Return the commits of a flow's groups, with and without members; the mirror's own groups are left out."""
    groups, selection = context.groups(carrier.source), flow.group_selection
    names = [name for name in groups.states() if selection.matches(name) and not name.startswith("mirrorlake.")]
    if not names:
        return {}
    known = SourceTopics(context.lake, carrier.source).load()
    # A topic that was created again and not landed since would be read with the old generation's map.
    partitions = [
        TopicPartition(name, p)
        for name, state in context.admin(carrier.source).describe(known).items()
        if carrier.carries(name) and state.topic_id == known[name].topic_id
        for p in range(state.partitions)
    ]
    return {
        (group, source_at(known, tp, at.offset)): at
        for group, committed in groups.committed(names, partitions, unsure=unsure).items()
        for tp, at in committed.items()
    }


def _has_answered(lake: Lake, alias: str) -> bool:
    """Return whether the groups of a cluster were ever read, by a look or by a sync."""
    seen = "SELECT 1 AS one FROM {samples} WHERE subject = 'cluster' AND name = :alias AND error IS NULL LIMIT 1"
    synced = "SELECT 1 AS one FROM {positions} WHERE source = :alias AND kind = 'group' LIMIT 1"
    return any(lake.query(text, alias=alias, missing_ok=True) for text in (seen, synced))


def newest_positions(lake: Lake, alias: str) -> dict[tuple[str, SourcePartition], int]:
    """Return the newest recorded position of every group on each partition of a cluster, over all its generations."""
    # A sample records a vanished position as NULL; the last known one counts.
    rows = lake.query(
        "SELECT group_id, topic, partition, max_by(generation, observed_at) AS generation, "
        "max_by(position, observed_at) AS position FROM {positions} "
        "WHERE source = :source AND kind = 'group' AND position IS NOT NULL GROUP BY group_id, topic, partition",
        source=alias,
    )
    known = SourceTopics(lake, alias).load() if rows else {}
    newest = {}
    for row in rows:
        topic, source = known.get(row.topic), SourcePartition(row.topic, row.generation, row.partition)
        if topic is not None and row.generation in {topic.generation, *(cut.generation for cut in topic.truncations)}:
            # By the offset, as for live positions.
            source = source_at(known, TopicPartition(row.topic, row.partition), int(row.position))
        newest[row.group_id, source] = int(row.position)
    return newest


# -- who set them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommits:
    """The positions up to which groups have read (`readers`), and their partitions on the target.

    `translated` are positions on the flow's source to translate. `staying` are those by target partition on which the
    group may not be moved, and why.
    """

    readers: PositionsByFlow
    translated: Positions
    staying: Mapping[tuple[str, TopicPartition], tuple[ReadPosition, MovePermission]] = field(default_factory=dict)


def read_own_commits(lake: Lake, related: RelatedFlows, positions: PositionsByFlow, *, now: datetime) -> OwnCommits:
    """Separate the groups' own commits from mirrorlake's, between clusters that mirror each other."""
    flow = related.flows[0]
    mine = positions.get(flow.name, {})
    if not related.back:
        return OwnCommits(readers=positions, translated=mine)
    aliases = {each.name: each.source for each in related.flows + related.back}
    histories = read_histories(lake, aliases.values(), {group for group, _ in mine})
    readers: dict[str, dict[tuple[str, SourcePartition], Committed]] = {name: {} for name in positions}
    own_since: dict[tuple[str, str, str, int], datetime | None] = {}
    for name, on_source in positions.items():
        alias = aliases[name]
        for (group, source), committed in on_source.items():
            since = histories.get((group, alias, source), CommitHistory()).own_since(committed.offset, now=now)
            own_since[group, alias, source.topic, source.partition] = since
            # On the target the group has read or skipped all records before its position: it is never moved back.
            if since is not None or alias == flow.target:
                readers[name][group, source] = committed
    translated: dict[tuple[str, SourcePartition], Committed] = {}
    staying: dict[tuple[str, TopicPartition], tuple[ReadPosition, MovePermission]] = {}
    for (group, source), committed in mine.items():
        remote, back = flow.remote_topic(source.topic), related.way_back(source.topic)
        permission = MovePermission(True)
        if back is not None:
            logs = (flow.target, remote), (flow.source, source.topic), (flow.source, back.remote_topic(remote))
            keys = {log: (group, *log, source.partition) for log in logs}
            permission = may_move(logs[0], {log: own_since[key] for log, key in keys.items() if key in own_since})
        if permission.is_free:
            translated[group, source] = committed
        else:
            staying[group, TopicPartition(remote, source.partition)] = (source, committed.offset), permission
    return OwnCommits(readers=readers, translated=translated, staying=staying)


def read_histories(
    lake: Lake, aliases: Iterable[str], groups: Iterable[str]
) -> dict[tuple[str, str, SourcePartition], CommitHistory]:
    """Read the recorded positions of groups, by group, cluster and partition of that cluster."""
    groups, set_at, newest = sorted(groups), dict[tuple[str, str, SourcePartition], dict[int, datetime]](), {}
    for row in lake.query(_HISTORIES, sources=sorted(set(aliases)), groups=groups) if groups else ():
        key = row.group_id, row.source, SourcePartition(row.topic, row.generation, row.partition)
        if row.is_set:
            set_at.setdefault(key, {})[int(row.position)] = row.at
        else:
            newest[key] = row.at, int(row.position)
    return {key: CommitHistory(set_at.get(key, {}), newest.get(key)) for key in set_at.keys() | newest.keys()}


_KEYS = "group_id, source, topic, generation, partition"
# A sampler writes all positions from time to time: only changes show when a group committed.
_HISTORIES = f"""
    WITH seen AS (
        SELECT {_KEYS}, kind, position, observed_at FROM {{positions}}
        WHERE array_contains(:sources, source) AND array_contains(:groups, group_id) AND position IS NOT NULL
    ),
    made AS (
        SELECT {_KEYS}, position, min(observed_at) AS first_at, max(observed_at) AS last_at FROM seen
        WHERE kind = 'group_set' GROUP BY {_KEYS}, position
    ),
    sampled AS (
        SELECT {_KEYS}, position, observed_at, lag(position) OVER (PARTITION BY {_KEYS} ORDER BY observed_at) AS before
        FROM seen WHERE kind = 'group'
    ),
    own AS (
        SELECT {_KEYS}, position, s.observed_at,
            row_number() OVER (PARTITION BY {_KEYS} ORDER BY s.observed_at DESC) AS rank
        FROM sampled AS s LEFT JOIN made AS m USING ({_KEYS}, position)
        WHERE (s.before IS NULL OR s.before <> position) AND (m.first_at IS NULL OR m.first_at > s.observed_at)
    )
    SELECT {_KEYS}, position, last_at AS at, true AS is_set FROM made
    UNION ALL SELECT {_KEYS}, position, observed_at, false FROM own WHERE rank = 1
"""  # noqa: S608  names of columns

# -- recorded in the lake --------------------------------------------------------------------------------------------


class GroupRecords:
    """Write group positions and their translations to the lake if they changed since the last write."""

    def __init__(self, context: Context, flow: FlowConfig) -> None:
        self._context, self._lake, self._flow = context, context.lake, flow
        self._positions: dict[str, dict[tuple[str, SourcePartition], int]] = {}
        self._checkpoints: dict[tuple[str, TopicPartition], tuple[int, int | None]] | None = None

    def record_intent(self, plan: GroupPlan) -> None:
        """Append the positions that the plan will set, if they could later count as the group's own progress.

        Law A: written first, so that no death between the two leaves a position that seems the group's own.
        """
        if not self._flow.adds_hops or not plan.moves:
            return
        alias, at = self._flow.target, self._context.now()
        known, rows = SourceTopics(self._lake, alias).load(), []
        for move in plan.moves:
            if (offset := move.resume.downstream_offset) is not None:
                there = source_at(known, move.resume.target, offset)
                rows.append(position_row(alias, there, "group_set", offset, at, flow=self._flow.name, group=move.group))
        self._lake.append(POSITIONS, rows)

    def write(self, plan: GroupPlan, commits: PositionsByFlow, *, at: datetime) -> None:
        """Append the positions that count for who committed last, and the flow's translations, if they are new.

        Those are the positions of the flow, and of flows that write hop headers like it. `at` is a time before they
        were read: a position that is set later must not seem older.
        """
        mine, rows = self._flow, []
        for flow in self._context.config.flows:
            if flow.name not in commits or not (flow.name == mine.name or (flow.adds_hops and mine.adds_hops)):
                continue
            if flow.source not in self._positions:
                self._positions[flow.source] = newest_positions(self._lake, flow.source)
            known = self._positions[flow.source]
            moved = {key: new.offset for key, new in commits[flow.name].items() if known.get(key) != new.offset}
            rows += [position_row(flow.source, s, "group", o, at, group=group) for (group, s), o in moved.items()]
            known |= moved
        self._lake.append(POSITIONS, rows)
        if self._checkpoints is None:
            self._checkpoints = newest_checkpoints(self._lake, mine.name)
        fresh = []
        for one in plan.translated():
            target, pair = one.resume.target, (one.resume.upstream_offset, one.resume.downstream_offset)
            if self._checkpoints.get((one.group, target)) != pair:
                self._checkpoints[one.group, target] = pair
                row = mine.name, one.group, target.topic, target.partition, *pair, one.metadata, self._context.now()
                fresh.append(dict(zip(CHECKPOINTS.columns, row, strict=True)))
        self._lake.append(CHECKPOINTS, fresh)


def newest_checkpoints(lake: Lake, flow: str) -> dict[tuple[str, TopicPartition], tuple[int, int | None]]:
    """Return the newest recorded upstream and downstream offset of each group and target partition of a flow."""
    rows = lake.query(
        "SELECT group_id, target_topic, target_partition, max_by(upstream_offset, observed_at) AS upstream, "
        "max_by(downstream_offset, observed_at) AS downstream FROM {checkpoints} "
        "WHERE flow = :flow GROUP BY group_id, target_topic, target_partition",
        flow=flow,
    )
    return {
        (row.group_id, TopicPartition(row.target_topic, row.target_partition)): (int(row.upstream), int(row.downstream))
        for row in rows
    }
