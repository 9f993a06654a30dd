"""Groups: read consumer groups' positions on the source, translate them, show a plan, and set what may be set.

Law A (never ahead): a position on the target never skips a record that the group has not read on the source.
Law G (shown first): `plan_groups` changes nothing; applying its plan twice moves a group once.
Law H: the source's groups are read, never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.errors import GroupActive
from mirrorlake.groups.own_commits import FamilyPositions, Positions, progress_of
from mirrorlake.groups.records import GroupRecords
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.groups import Committed, Groups
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.metadata import SourceTopics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, GroupPosition, decide, stays
from mirrorlake.offsets.known_map import KnownMaps
from mirrorlake.offsets.resume import Ends, resume_readers
from mirrorlake.offsets.shared_partitions import Family


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
    """Read the commits of selected groups on the topics that a flow carries, by group and source partition.

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


def plan_groups(
    lake: Lake,
    kin: Family,
    positions: FamilyPositions,
    *,
    maps: Callable[[], KnownMaps],
    sides: GroupSides,
    ends: Ends,
    now: datetime,
) -> GroupPlan:
    """Return where each group of a flow would go on at the target, and what is held back; changes nothing.

    Args:
        lake: the lake.
        kin: the flow, and those that share remote topics with it.
        positions: from `source_positions` or `recorded_positions`, by flow.
        maps: reads the flows' runs, their ledgers' newest included.
        sides: both clusters of the flow.
        ends: the target, and the sources that are not lost.
        now: the time of the look.

    Raises:
        ClusterError: a cluster does not answer or does not allow the look.
    """
    flow = kin.flows[0].name
    progress = progress_of(lake, kin, positions, now=now)
    resumes = resume_readers(lake, kin, progress.readers, maps=maps, ends=ends, stands=progress.stands)
    resumes |= progress.kept
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
        freedom = progress.freedoms.get((group, resume.target))
        if freedom is not None:
            rows.append(stays(group, resume, freedom, target_offset=there.offset if there else None))
            continue
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

    Each group is looked at once more right before: one that has got members meanwhile, or has committed since the plan was
    made, is held back.

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
        planned = {move.resume.target: move.target_offset for move in moves}
        if any(tp in now and now[tp].offset not in (planned[tp], to.offset) for tp, to in moved.items()):
            done = done.holding(group, "it has committed on the target since the plan was made")
            continue
        try:
            target.commit(group, moved)
        except GroupActive:
            done = done.holding(group, "it has got members on the target since the plan was made")
    return done


class GroupSync:
    """Keep a flow's groups in step, pass after pass; a pass in which nothing moved costs two requests a group.

    Args:
        look: returns the positions on the sources.
        plan: makes the plan for them.
        target: the target's groups.
        records: what is written to the lake.
        sources: the flows whose groups are recorded, with the aliases of their sources.
        tell: is shown each plan as it was carried out, for MirrorMaker 2's checkpoints.
    """

    def __init__(
        self,
        *,
        look: Callable[[], FamilyPositions],
        plan: Callable[[FamilyPositions], GroupPlan],
        target: Groups,
        records: GroupRecords,
        sources: Mapping[str, str],
        tell: Callable[[GroupPlan], object] = len,
    ) -> None:
        self._look = look
        self._plan = plan
        self._target = target
        self._records = records
        self._sources = sources
        self._tell = tell
        # Nothing to do for a flow without groups, the commonest of all.
        self._settled: FamilyPositions | None = {}

    def plan(self) -> GroupPlan:
        """Return the plan of this moment; changes nothing."""
        return self._plan(self._look())

    def apply(self) -> GroupPlan:
        """Carry out the plan of this moment and record it."""
        at = self._records.now()
        return self._carry_out(self._look(), at)

    def once(self) -> None:
        """Do one pass, unless every group stood exactly where it should and none has committed since."""
        at = self._records.now()
        positions = self._look()
        if positions == self._settled:
            return
        done = self._carry_out(positions, at)
        # A group that waits or is held back is looked at again next time: what it waits for may have come.
        is_settled = not done.held and all(position.resume.exact for position in done)
        self._settled = positions if is_settled else None

    def _carry_out(self, positions: FamilyPositions, at: datetime) -> GroupPlan:
        plan = self._plan(positions)
        self._records.about_to_set(plan)
        done = apply_groups(plan, target=self._target)
        here: dict[str, Positions] = {}
        for name, alias in self._sources.items():
            here[alias] = {**here.get(alias, {}), **positions.get(name, {})}
        self._records.write(done, here, at=at)
        self._tell(done)
        return done
