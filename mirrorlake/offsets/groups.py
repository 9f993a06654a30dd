"""Groups: read consumer groups' positions on the source, translate them, show a plan, and apply it.

Law A (never ahead): a position on the target never skips a record that the group has not read on the source.
Law G (shown first): a plan changes nothing; applying it twice moves a group once.
Law H: the source's groups are read, never written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, ClusterUnreachable, GroupActive
from mirrorlake.kafka import (
    Committed,
    Groups,
    describe_with_leaders,
    format_partitions,
    list_partitions,
    those_led,
    write_plan_checkpoints,
)
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.group_overview import ABSENT, GroupOnCluster, GroupOverview, GroupOverviewPart, GroupOverviewRow
from mirrorlake.model.groups import GroupPlan, GroupPosition, decide, stays
from mirrorlake.offsets.group_positions import GroupCommits, GroupRecords, read_commits, read_own_commits
from mirrorlake.offsets.maps import PositionsByFlow, related_flows
from mirrorlake.offsets.resume import resume_readers

log = logging.getLogger(__name__)


def apply_groups(
    plan: GroupPlan, *, target: Groups, where: str = "the target", refused: list[ClusterError] | None = None
) -> GroupPlan:
    """Set the positions that the plan moves, and return the plan as applied; `where` names the cluster in reasons.

    Each group is checked again right before: a group that has gained members, or committed since the plan was made,
    is not moved.

    Raises:
        ClusterError: the target does not answer; or of one group, after all others were moved, unless `refused` is to get it.
    """
    by_group: dict[str, dict[TopicPartition, GroupPosition]] = {}
    for move in plan.moves:
        by_group.setdefault(move.group, {})[move.resume.target] = move
    done, errors = plan, list[ClusterError]() if refused is None else refused
    for group, moves in by_group.items():
        to = {
            tp: Committed(at, one.metadata)
            for tp, one in moves.items()
            if (at := one.resume.downstream_offset) is not None
        }
        try:
            if not target.commit(group, to, seen={tp: one.target_offset for tp, one in moves.items()}):
                done = done.holding(group, f"it has committed on {where} since the plan was made")
        except GroupActive:
            done = done.holding(group, f"it has new members on {where} since the plan was made", has_members=True)
        except ClusterError as error:
            if isinstance(error, ClusterUnreachable):
                target.require_answer()
            errors.append(error)
            done = done.holding(group, error.cause)
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
        self._records = GroupRecords(context, flow)
        # {}: a flow without groups, the most common one, needs no pass.
        self._settled: PositionsByFlow | None = {}

    def plan(self) -> GroupPlan:
        """Return the present plan; changes nothing."""
        plan = self._plan(self._read_commits())
        if self._recorded or not plan.positions:
            return plan
        source = self._context.admin(self._flow.source)
        _, leaderless = describe_with_leaders(source, {position.topic for position in plan})
        if leaderless:
            log.warning("groups.no_leader source=%s partitions=%s", self._flow.source, format_partitions(leaderless))
        return replace(plan, leaderless=tuple(map(str, sorted(leaderless))))

    def overview(self) -> GroupOverview:
        """Return the state of the groups on both clusters with the present plan; changes nothing (law H)."""
        context, flow, commits = self._context, self._flow, self._read_commits()
        plan = self._plan(commits)
        mine = commits.by_flow.get(flow.name, {})
        on_source = {(group, source.tp): at.offset for (group, source), at in mine.items()}
        on_target = {(one.group, one.resume.target): one.target_offset for one in plan if one.target_offset is not None}
        parts: dict[str, list[GroupOverviewPart]] = {group: [] for group in plan.groups}
        source_lags, source = _read_side(context, flow.source, plan.groups, on_source)
        target_lags, target = _read_side(context, flow.target, plan.groups, on_target)
        for one in plan:
            lags = source_lags.get((one.group, one.resume.source.tp)), target_lags.get((one.group, one.resume.target))
            parts[one.group].append(GroupOverviewPart(position=one, source_lag=lags[0], target_lag=lags[1]))
        rows = [
            GroupOverviewRow(
                group=group,
                source=source[group],
                target=target[group],
                parts=tuple(of_group),
                unread=plan.unread.get(group, ""),
            )
            for group, of_group in parts.items()
        ]
        rows.sort(key=lambda row: (("hold", "move", "in_step").index(row.action), row.group))
        return GroupOverview(flow=flow.name, source=flow.source, target=flow.target, groups=tuple(rows))

    def apply(self, shown: GroupPlan | None = None, *, tell: Callable[[GroupPlan], None] | None = None) -> GroupPlan:
        """Apply and record the present plan, or of a plan that was `shown` the moves that are still allowed.

        `tell` gets the applied plan, even if a group was refused and its error is raised. Law G (shown first): of a shown plan, only
        the positions that it shows are set.
        """
        at = self._context.now()
        return self._carry_out(self._read_commits(), at, shown, tell)

    def once(self) -> None:
        """Do one pass, unless every group was exactly at its position and none has committed since; raise a group's error last."""
        at = self._context.now()
        commits = self._read_commits()
        if commits.by_flow == self._settled and not commits.unsure:
            return
        done = self._carry_out(commits, at, None, None)
        # A group that waits or is on hold is planned again in the next pass: its reason may be gone.
        is_settled = not done.held and not done.unread and all(position.resume.exact for position in done)
        self._settled = commits.by_flow if is_settled else None
        for error in commits.unsure.values():
            if isinstance(error, ClusterError):
                raise error

    def _read_commits(self) -> GroupCommits:
        commits = read_commits(self._context, self._flow, recorded=self._recorded)
        return commits if self._only is None else commits.only(self._only)

    def _plan(self, commits: GroupCommits) -> GroupPlan:
        """Plan the groups; `commits.unsure` gets those that cannot be read on the target, too."""
        context, flow = self._context, self._flow
        mine = commits.by_flow.get(flow.name, {})
        if not mine:
            return GroupPlan(flow.name, ()).unsure(commits.unsure)
        related = related_flows(context, flow)
        own = read_own_commits(context.lake, related, commits.by_flow, now=context.now())
        lost = {flow.source} if self._recorded else set[str]()
        resumes = resume_readers(context, related, own.readers, translated=own.translated, lost=lost)
        target = context.groups(flow.target)
        active, asked = target.active(), [*resumes, *own.staying]
        wanted = {tp for _, tp in asked}
        wanted.intersection_update(list_partitions(context.admin(flow.target).describe({tp.topic for tp in wanted})))
        there = target.committed({group for group, _ in asked}, wanted, unsure=commits.unsure)
        offsets = {(group, tp): at.offset for group, positions in there.items() for tp, at in positions.items()}
        rows = [
            stays(group, source, read_to, tp, permission, target_offset=offsets.get((group, tp)))
            for (group, tp), ((source, read_to), permission) in own.staying.items()
        ]
        for (group, tp), resume in resumes.items():
            # The group's own metadata counts only if its own position decided, not another flow's.
            left = mine.get((group, resume.source))
            metadata = left.metadata if left is not None and left.offset == resume.upstream_offset else ""
            at = offsets.get((group, tp))
            rows.append(decide(group, resume, metadata=metadata, target_offset=at, is_active=group in active))
        rows.sort(key=lambda row: (row.group, row.resume.source, row.resume.target))
        return GroupPlan(flow.name, tuple(rows)).unsure(commits.unsure)

    def _carry_out(
        self, commits: GroupCommits, at: datetime, shown: GroupPlan | None, tell: Callable[[GroupPlan], None] | None
    ) -> GroupPlan:
        present = self._plan(commits)
        plan = present if shown is None else present.as_shown(shown)
        if not plan.positions:
            return plan
        self._records.record_intent(plan)
        refused: list[ClusterError] = []
        done = apply_groups(plan, target=self._context.groups(self._flow.target), refused=refused)
        # A plan that was shown may be translated from positions that groups have left since.
        self._records.write(present, commits.by_flow, at=at)
        if self._checkpoints is not None:
            write_plan_checkpoints(self._checkpoints, present)
        if tell is not None:
            tell(done)
        if refused:
            raise refused[0]
        return done


def _read_side(
    context: Context, alias: str, names: Collection[str], committed: Mapping[tuple[str, TopicPartition], int]
) -> tuple[dict[tuple[str, TopicPartition], int], dict[str, GroupOnCluster]]:
    """Return the offset lag of each group on each partition of a cluster, and the state of each group there."""
    if not names:
        # A lake cluster has no consumers and no brokers to call.
        return {}, {}
    admin, wanted = context.admin(alias), {tp for _, tp in committed}
    ends = admin.last_stable_offsets(those_led(admin, wanted))
    lags = {(group, tp): max(0, ends[tp] - at) for (group, tp), at in committed.items() if tp in ends}
    described, sides = context.groups(alias).describe(names), {}
    for name in names:
        state, members = described.get(name, (ABSENT, ()))
        mine = [lag for (group, _), lag in lags.items() if group == name]
        sides[name] = GroupOnCluster(state=state, members=members, lag=sum(mine) if mine else None)
    return lags, sides
