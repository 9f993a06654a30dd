"""Groups: read consumer groups' positions on the source, translate them, show a plan, and set what may be set.

Law A (never ahead): a position on the target never skips a record that the group has not read on the source.
Law G (shown first): `plan_groups` changes nothing; applying its plan twice moves a group once.
Law H: the source's groups are read, never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.config.topics import NameMatcher
from mirrorlake.errors import GroupActive
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.groups import Committed, Groups
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, GroupPosition, Resume, decide
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import CHECKPOINTS, POSITIONS
from mirrorlake.steps.maps import KnownMaps
from mirrorlake.steps.merged import Family
from mirrorlake.steps.resume import Ends, resume_readers
from mirrorlake.streams.topics import SourceTopics

Positions = Mapping[tuple[str, SourcePartition], Committed]
FamilyPositions = Mapping[str, Positions]
"""What groups have committed on the sources of a flow and of those that share its remote topics, by flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSides:
    """Both clusters as groups are read and set there."""

    source: Groups
    target: Groups
    source_admin: ClusterAdmin
    target_admin: ClusterAdmin


def source_positions(
    lake: Lake, flow: FlowConfig, *, groups: Groups, admin: ClusterAdmin, selection: NameMatcher
) -> Positions:
    """Return what selected groups have committed on the topics that a flow carries, by group and source partition.

    Groups of every protocol count, with and without members; a group that committed on none of the topics is left out, and
    so are the mirror's own.

    Raises:
        ClusterError: the source does not answer or does not allow the look.
    """
    names = [name for name in groups.states() if selection.matches(name) and not name.startswith("mirrorlake.")]
    if not names:
        return {}
    known = SourceTopics(lake, flow.source).load()
    # A topic that was created again and not landed since would be read with the old life's map.
    states = {
        name: state
        for name, state in admin.describe(known).items()
        if flow.carries(name) and state.topic_id == known[name].topic_id
    }
    partitions = [TopicPartition(name, p) for name, state in states.items() for p in range(state.partitions)]
    return {
        (
            group,
            SourcePartition(tp.topic, known[tp.topic].generation_at(tp.partition, position.offset), tp.partition),
        ): position
        for group, committed in groups.committed(names, partitions).items()
        for tp, position in committed.items()
    }


def recorded_positions(lake: Lake, flow: FlowConfig, *, selection: NameMatcher) -> Positions:
    """Return the groups' positions as the lake knows them, for a source that is lost."""
    newest = F.max_by("position", "observed_at").alias("position")
    rows = (
        lake.meta(POSITIONS)
        .where((F.col("source") == flow.source) & (F.col("kind") == "group"))
        # A sample writes none where it found a position gone; the last known one is what counts here.
        .where("position IS NOT NULL")
        .groupBy("group_id", "topic", "generation", "partition")
        .agg(newest)
        .collect()
    )
    return {
        (row.group_id, SourcePartition(row.topic, row.generation, row.partition)): Committed(int(row.position))
        for row in rows
        if flow.carries(row.topic) and selection.matches(row.group_id)
    }


def plan_groups(
    lake: Lake,
    kin: Family,
    positions: FamilyPositions,
    *,
    maps: Callable[[], KnownMaps],
    sides: GroupSides,
    ends: Ends,
) -> GroupPlan:
    """Return where each group of a flow would go on at the target, and what is held back; changes nothing.

    Args:
        lake: the lake.
        kin: the flow, and those that share remote topics with it.
        positions: from `source_positions` or `recorded_positions`, by flow.
        maps: reads the flows' runs, their ledgers' newest included.
        sides: both clusters of the flow.
        ends: the target, and the sources that are not lost.

    Raises:
        ClusterError: a cluster does not answer or does not allow the look.
    """
    flow = kin.flows[0].name
    readers: dict[str, dict[str, dict[SourcePartition, int]]] = {}
    for name, held_there in positions.items():
        for (group, source), committed in held_there.items():
            readers.setdefault(group, {}).setdefault(name, {})[source] = committed.offset
    resumes = resume_readers(lake, kin, readers, maps=maps, ends=ends)
    active = sides.target.active()
    targets = {resume.target for resume in resumes.values()}
    existing = sides.target_admin.describe({tp.topic for tp in targets})
    targets = {tp for tp in targets if tp.topic in existing and tp.partition < existing[tp.topic].partitions}
    held = sides.target.committed({group for group, _ in resumes}, targets)
    rows = []
    for (group, _), resume in sorted(resumes.items(), key=lambda item: (item[0][0], item[1].source, item[0][1])):
        there = held[group].get(resume.target)
        # Text that the group left with its position; another flow's group may have decided here.
        left = positions.get(flow, {}).get((group, resume.source))
        rows.append(
            decide(
                group,
                resume,
                metadata=left.metadata if left is not None and left.offset == resume.upstream_offset else "",
                target_offset=there.offset if there else None,
                is_active=group in active,
            )
        )
    return GroupPlan(flow, tuple(rows))


def apply_groups(plan: GroupPlan, *, target: Groups) -> GroupPlan:
    """Set the positions that the plan moves; return the plan as it was carried out.

    Each group is looked at once more right before: one that has got members meanwhile, or has read further, is held back.

    Raises:
        ClusterError: the target does not answer or does not allow it; groups before the failing one stand.
    """
    by_group: dict[str, list[GroupPosition]] = {}
    for position in plan.moves:
        by_group.setdefault(position.group, []).append(position)
    done = plan
    for group, moves in by_group.items():
        now = target.committed([group], [move.resume.target for move in moves])[group]
        moved = {
            move.resume.target: Committed(move.resume.downstream_offset, move.metadata)
            for move in moves
            if move.resume.downstream_offset is not None
        }
        if any(tp in now and now[tp].offset > position.offset for tp, position in moved.items()):
            done = done.holding(group, "it has read further on the target since the plan was made")
            continue
        try:
            target.commit(group, moved)
        except GroupActive:
            done = done.holding(group, "it has got members on the target since the plan was made")
    return done


@dataclass(slots=True)
class GroupRecords:
    """Write group positions and their translations to the lake where they changed since they were last written."""

    lake: Lake
    flow: FlowConfig
    now: Callable[[], datetime]
    _positions: dict[tuple[str, SourcePartition], int] | None = field(default=None, init=False)
    _checkpoints: dict[tuple[str, TopicPartition], tuple[int, int]] | None = field(default=None, init=False)

    def write(self, plan: GroupPlan, positions: Positions) -> int:
        """Append what is new of the flow's positions and of their translations; return how many of these that were."""
        if self._positions is None or self._checkpoints is None:
            recorded = recorded_positions(self.lake, self.flow, selection=self.flow.group_selection)
            self._positions = {key: held.offset for key, held in recorded.items()}
            self._checkpoints = self._recorded_checkpoints()
        at = self.now()
        moved = {key: held.offset for key, held in positions.items() if self._positions.get(key) != held.offset}
        source = self.flow.source
        self.lake.append_rows(
            POSITIONS,
            [
                (source, None, s.topic, s.generation, s.partition, "group", group, offset, None, at)
                for (group, s), offset in moved.items()
            ],
        )
        self._positions |= moved
        fresh = list(self._fresh(plan, self._checkpoints))
        self.lake.append_rows(
            CHECKPOINTS,
            [
                (
                    self.flow.name,
                    p.group,
                    p.resume.target.topic,
                    p.resume.target.partition,
                    p.resume.upstream_offset,
                    p.resume.downstream_offset,
                    p.metadata,
                    at,
                )
                for p in fresh
            ],
        )
        return len(fresh)

    def _fresh(
        self, plan: GroupPlan, known: dict[tuple[str, TopicPartition], tuple[int, int]]
    ) -> Iterable[GroupPosition]:
        for position in plan:
            resume: Resume = position.resume
            if resume.downstream_offset is None:
                continue
            key, pair = (position.group, resume.target), (resume.upstream_offset, resume.downstream_offset)
            if known.get(key) != pair:
                known[key] = pair
                yield position

    def _recorded_checkpoints(self) -> dict[tuple[str, TopicPartition], tuple[int, int]]:
        newest = F.max_by(F.struct("upstream_offset", "downstream_offset"), "observed_at").alias("pair")
        rows = (
            self.lake.meta(CHECKPOINTS)
            .where(F.col("flow") == self.flow.name)
            .groupBy("group_id", "target_topic", "target_partition")
            .agg(newest)
            .collect()
        )
        return {
            (row.group_id, TopicPartition(row.target_topic, row.target_partition)): (
                int(row.pair.upstream_offset),
                int(row.pair.downstream_offset),
            )
            for row in rows
        }


class GroupSync:
    """Keep a flow's groups in step, pass after pass; a pass in which nothing moved costs two requests a group.

    Args:
        flow: the flow.
        look: returns the positions on the sources.
        plan: makes the plan for them.
        target: the target's groups.
        records: what is written to the lake.
        tell: is shown each plan as it was carried out, for MirrorMaker 2's checkpoints.
    """

    def __init__(
        self,
        *,
        flow: str,
        look: Callable[[], FamilyPositions],
        plan: Callable[[FamilyPositions], GroupPlan],
        target: Groups,
        records: GroupRecords,
        tell: Callable[[GroupPlan], object] = len,
    ) -> None:
        self._flow = flow
        self._look = look
        self._plan = plan
        self._target = target
        self._records = records
        self._tell = tell
        # Nothing to do for a flow without groups, the commonest of all.
        self._settled: FamilyPositions | None = {}

    def plan(self) -> GroupPlan:
        """Return the plan of this moment; changes nothing."""
        return self._plan(self._look())

    def apply(self) -> GroupPlan:
        """Carry out the plan of this moment and record it."""
        return self._carry_out(self._look())

    def once(self) -> None:
        """Do one pass, unless every group stood exactly where it should and none has committed since."""
        positions = self._look()
        if positions == self._settled:
            return
        done = self._carry_out(positions)
        # A group that waits or is held back is looked at again next time: what it waits for may have come.
        is_settled = not done.held and all(position.resume.exact for position in done)
        self._settled = positions if is_settled else None

    def _carry_out(self, positions: FamilyPositions) -> GroupPlan:
        done = apply_groups(self._plan(positions), target=self._target)
        self._records.write(done, positions.get(self._flow, {}))
        self._tell(done)
        return done
