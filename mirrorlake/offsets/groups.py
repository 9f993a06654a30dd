"""Groups: read consumer groups' positions on the source, translate them, show a plan, and apply it.

Law A (never ahead): a position on the target never skips a record that the group has not read on the source.
Law G (shown first): a plan changes nothing; applying it twice moves a group once.
Law H: the source's groups are read, never written.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, ClusterUnreachable, GroupActive, MirrorlakeError
from mirrorlake.kafka import (
    Committed,
    Groups,
    describe_with_leaders,
    format_partitions,
    list_partitions,
    write_plan_checkpoints,
)
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.group_overview import ABSENT, GroupOnCluster, GroupOverview, GroupOverviewPart, GroupOverviewRow
from mirrorlake.model.groups import GroupPlan, GroupPosition, HoldCause, Resume, decide, stays
from mirrorlake.offsets.group_positions import GroupRecords, committed_positions, read_own_commits
from mirrorlake.offsets.maps import Positions, PositionsByFlow, related_flows
from mirrorlake.offsets.resume import resume_readers

log = logging.getLogger(__name__)


def plan_groups(
    context: Context,
    flow: FlowConfig,
    positions: PositionsByFlow,
    unsure: dict[str, MirrorlakeError],
    *,
    recorded: bool,
) -> GroupPlan:
    """Plan the position of each group of a flow on the target, and which groups are not moved; changes nothing.

    `positions`, `recorded` if the flow's source is lost, and `unsure` groups are from `committed_positions`.
    """
    lake = context.lake
    related = related_flows(lake, flow, context.config.flows)
    own = read_own_commits(lake, related, positions, now=context.now())
    lost = {flow.source} if recorded else set[str]()
    resumes = resume_readers(lake, related, own.readers, context, translated=own.translated, lost=lost)
    target = context.groups(flow.target)
    active = target.active()
    wanted = {tp for _, tp in (*resumes, *own.staying)}
    wanted = wanted.intersection(list_partitions(context.admin(flow.target).describe({tp.topic for tp in wanted})))
    held = target.committed({group for group, _ in (*resumes, *own.staying)}, wanted, unsure=unsure)

    def on_target(group: str, resume: Resume) -> int | None:
        committed = held.get(group, {}).get(resume.target)
        return committed.offset if committed else None

    rows = [
        stays(group, resume, permission, target_offset=on_target(group, resume))
        for (group, _), (resume, permission) in own.staying.items()
    ]
    mine = positions.get(flow.name, {})
    for (group, _), resume in resumes.items():
        # The group's own metadata counts only if its own position decided, not another flow's.
        left = mine.get((group, resume.source))
        metadata = left.metadata if left is not None and left.offset == resume.upstream_offset else ""
        at = on_target(group, resume)
        rows.append(decide(group, resume, metadata=metadata, target_offset=at, is_active=group in active))
    rows.sort(key=lambda row: (row.group, row.resume.source, row.resume.target))
    return GroupPlan(flow.name, tuple(rows)).unsure(unsure)


def apply_groups(
    plan: GroupPlan, *, target: Groups, where: str = "the target", refused: list[ClusterError] | None = None
) -> GroupPlan:
    """Set the positions that the plan moves, and return the plan as applied; `where` names the cluster in reasons.

    Each group is checked again right before: a group that has gained members, or committed since the plan was made,
    is not moved.

    Raises:
        ClusterError: the target does not answer; or of one group, after all others were moved, unless `refused` is to get it.
    """
    by_group: dict[str, list[GroupPosition]] = {}
    for position in plan.moves:
        by_group.setdefault(position.group, []).append(position)
    done, errors = plan, list[ClusterError]() if refused is None else refused
    for group, moves in by_group.items():
        to = {
            move.resume.target: Committed(move.resume.downstream_offset, move.metadata)
            for move in moves
            if move.resume.downstream_offset is not None
        }
        try:
            if not target.commit(group, to, seen={move.resume.target: move.target_offset for move in moves}):
                done = done.holding(group, HoldCause.CHANGED, f"it has committed on {where} since the plan was made")
        except GroupActive:
            reason = f"it has new members on {where} since the plan was made"
            done = done.holding(group, HoldCause.ACTIVE_MEMBERS, reason)
        except ClusterError as error:
            if isinstance(error, ClusterUnreachable):
                target.require_answer()
            errors.append(error)
            done = done.holding(group, HoldCause.UNSURE, error.cause)
    if refused is None and errors:
        raise errors[0]
    return done


class GroupSync:
    """Sync a flow's groups pass after pass; a pass in which nothing moved costs two requests a group.

    With `recorded`, for a lost source, positions come from the lake. `only` names the groups; None for all of the
    flow.
    """

    def __init__(
        self, context: Context, flow: FlowConfig, *, recorded: bool = False, only: Collection[str] | None = None
    ) -> None:
        self._context = context
        self._flow = flow
        self._recorded = recorded
        self._only = only
        # Writes MirrorMaker 2's checkpoints of each applied plan.
        self._checkpoints = context.mm2_writer(flow) if flow.mm2.checkpoints else None
        self._records = GroupRecords(context.lake, flow, context.now)
        # {}: a flow without groups, the most common one, needs no pass.
        self._settled: PositionsByFlow | None = {}
        self._unsure: dict[str, MirrorlakeError] = {}

    def plan(self) -> GroupPlan:
        """Return the present plan; changes nothing."""
        plan = self._plan(self._read_positions())
        if self._recorded or not self._has_groups:
            return plan
        source = self._context.admin(self._flow.source)
        _, leaderless = describe_with_leaders(source, {position.topic for position in plan})
        if leaderless:
            log.warning("groups.no_leader source=%s partitions=%s", self._flow.source, format_partitions(leaderless))
        return replace(plan, leaderless=tuple(map(str, sorted(leaderless))))

    def overview(self) -> GroupOverview:
        """Return the state of the groups on both clusters with the present plan; changes nothing (law H)."""
        positions, flow = self._read_positions(), self._flow
        plan, mine = self._plan(positions), positions.get(flow.name, {})
        if not plan.groups:
            # A lake cluster has no consumers and no brokers to call.
            return GroupOverview(flow=flow.name, source=flow.source, target=flow.target, groups=())
        on_source = {(group, TopicPartition(s.topic, s.partition)): held.offset for (group, s), held in mine.items()}
        on_target = {(one.group, one.resume.target): one.target_offset for one in plan if one.target_offset is not None}
        targets = {one.resume.target for one in plan}
        return _overview(
            flow,
            plan,
            source=_Side.read(self._context, flow.source, plan.groups, on_source, {tp for _, tp in on_source}),
            target=_Side.read(self._context, flow.target, plan.groups, on_target, targets),
        )

    def apply(self, shown: GroupPlan | None = None) -> GroupPlan:
        """Apply and record the present plan, or of a plan that was `shown` the moves that are still allowed.

        Law G (shown first): of a shown plan, only the positions that it shows are set.
        """
        at = self._context.now()
        return self._carry_out(self._read_positions(), at, shown)

    def once(self) -> None:
        """Do one pass, unless every group was exactly at its position and none has committed since; raise a group's error last."""
        at = self._context.now()
        positions = self._read_positions()
        if positions == self._settled and not self._unsure:
            return
        done = self._carry_out(positions, at)
        # A group that waits or is on hold is planned again in the next pass: its reason may be gone.
        is_settled = not done.held and not done.unread and all(position.resume.exact for position in done)
        self._settled = positions if is_settled else None
        for error in (one for one in self._unsure.values() if isinstance(one, ClusterError)):
            raise error

    def _read_positions(self) -> PositionsByFlow:
        self._unsure = {}
        found = committed_positions(self._context, self._flow, recorded=self._recorded, unsure=self._unsure)
        if self._only is None:
            return found
        self._unsure = {group: why for group, why in self._unsure.items() if group in self._only}
        return {
            name: {(group, source): held for (group, source), held in positions.items() if group in self._only}
            for name, positions in found.items()
        }

    @property
    def _has_groups(self) -> bool:
        # A lake cluster has no consumers.
        return not self._context.config.cluster(self._flow.source).is_lake

    def _plan(self, positions: PositionsByFlow) -> GroupPlan:
        if not self._has_groups:
            return GroupPlan(self._flow.name, ())
        return plan_groups(self._context, self._flow, positions, self._unsure, recorded=self._recorded)

    def _carry_out(self, positions: PositionsByFlow, at: datetime, shown: GroupPlan | None = None) -> GroupPlan:
        plan = self._plan(positions)
        if not self._has_groups:
            return plan
        if shown is not None:
            plan = plan.as_shown(shown)
        self._records.record_intent(plan)
        refused: list[ClusterError] = []
        done = apply_groups(plan, target=self._context.groups(self._flow.target), refused=refused)
        self._records.write(done, self._by_alias(positions), at=at)
        if self._checkpoints is not None:
            write_plan_checkpoints(self._checkpoints, done)
        if refused:
            raise refused[0]
        return done

    def _by_alias(self, positions: PositionsByFlow) -> dict[str, Positions]:
        """Return the positions that count for who committed last: the flow's own, and those of flows that write hop headers."""
        found: dict[str, Positions] = {}
        for flow in self._context.config.flows:
            if flow.name == self._flow.name or (flow.adds_hops and self._flow.adds_hops):
                found[flow.source] = {**found.get(flow.source, {}), **positions.get(flow.name, {})}
        return found


# -- the state of groups on both clusters ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """The groups of one cluster, and the offset lag of each on each partition."""

    states: dict[str, GroupOnCluster]
    lags: dict[tuple[str, TopicPartition], int]

    @classmethod
    def read(
        cls,
        context: Context,
        alias: str,
        names: Collection[str],
        committed: dict[tuple[str, TopicPartition], int],
        partitions: Iterable[TopicPartition],
    ) -> _Side:
        ends = _ends(context, alias, set(partitions))
        lags = {key: max(0, ends[key[1]] - offset) for key, offset in committed.items() if key[1] in ends}
        described = context.groups(alias).describe(names)
        states = {}
        for name in names:
            state, members = described.get(name, (ABSENT, ()))
            mine = [lag for (group, _), lag in lags.items() if group == name]
            states[name] = GroupOnCluster(state=state, members=members, lag=sum(mine) if mine else None)
        return cls(states, lags)


def _overview(flow: FlowConfig, plan: GroupPlan, *, source: _Side, target: _Side) -> GroupOverview:
    parts: dict[str, list[GroupOverviewPart]] = {}
    for one in plan:
        here = TopicPartition(one.resume.source.topic, one.resume.source.partition)
        part = GroupOverviewPart(
            position=one,
            source_lag=source.lags.get((one.group, here)),
            target_lag=target.lags.get((one.group, one.resume.target)),
        )
        parts.setdefault(one.group, []).append(part)
    groups = [
        GroupOverviewRow(
            group=name,
            source=source.states[name],
            target=target.states[name],
            parts=tuple(parts.get(name, ())),
            unread=plan.unread.get(name, ""),
        )
        for name in plan.groups
    ]
    groups.sort(key=lambda one: (("hold", "move", "in_step").index(one.action), one.group))
    return GroupOverview(flow=flow.name, source=flow.source, target=flow.target, groups=tuple(groups))


def _ends(context: Context, alias: str, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
    admin = context.admin(alias)
    known, leaderless = describe_with_leaders(admin, {tp.topic for tp in wanted})
    return admin.last_stable_offsets(wanted.intersection(list_partitions(known)) - leaderless)
