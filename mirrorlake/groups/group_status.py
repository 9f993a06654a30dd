"""The state of groups on both clusters of a flow. Law H: read-only."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import describe_with_leaders
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.group_overview import ABSENT, GroupOnCluster, GroupOverview, GroupOverviewPart, GroupOverviewRow
from mirrorlake.model.groups import GroupPlan
from mirrorlake.offsets import Positions

_ORDER = ("hold", "move", "in_step")


def read_group_overview(context: Context, flow: FlowConfig, plan: GroupPlan, positions: Positions) -> GroupOverview:
    names = plan.groups
    if not names:
        # A lake cluster has no consumers and no brokers to call.
        return GroupOverview(flow=flow.name, source=flow.source, target=flow.target, groups=())
    ends = {
        flow.source: _ends(context, flow.source, (TopicPartition(s.topic, s.partition) for _, s in positions)),
        flow.target: _ends(context, flow.target, (one.resume.target for one in plan)),
    }
    committed: dict[str, dict[str, dict[TopicPartition, int]]] = {flow.source: {}, flow.target: {}}
    for (group, source), held in positions.items():
        committed[flow.source].setdefault(group, {})[TopicPartition(source.topic, source.partition)] = held.offset
    for one in plan:
        if one.target_offset is not None:
            committed[flow.target].setdefault(one.group, {})[one.resume.target] = one.target_offset

    def lag(alias: str, group: str, place: TopicPartition) -> int | None:
        held, end = committed[alias].get(group, {}).get(place), ends[alias].get(place)
        return None if held is None or end is None else max(0, end - held)

    def standing(alias: str) -> dict[str, GroupOnCluster]:
        found = context.groups(alias).describe(names)
        stand = {}
        for group in names:
            state, members = found.get(group, (ABSENT, ()))
            lags = [
                known for place in committed[alias].get(group, {}) if (known := lag(alias, group, place)) is not None
            ]
            stand[group] = GroupOnCluster(state=state, members=members, lag=sum(lags) if lags else None)
        return stand

    on_source, on_target = standing(flow.source), standing(flow.target)
    groups = [
        GroupOverviewRow(
            group=group,
            source=on_source[group],
            target=on_target[group],
            parts=tuple(
                GroupOverviewPart(
                    position=one,
                    source_lag=lag(
                        flow.source, group, TopicPartition(one.resume.source.topic, one.resume.source.partition)
                    ),
                    target_lag=lag(flow.target, group, one.resume.target),
                )
                for one in plan
                if one.group == group
            ),
            unread=plan.unread.get(group, ""),
        )
        for group in names
    ]
    groups.sort(key=lambda one: (_ORDER.index(one.action), one.group))
    return GroupOverview(flow=flow.name, source=flow.source, target=flow.target, groups=tuple(groups))


def _ends(context: Context, alias: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    wanted, admin = set(places), context.admin(alias)
    known, leaderless = describe_with_leaders(admin, {place.topic for place in wanted})
    there = {tp for tp in wanted if tp.topic in known and tp.partition < known[tp.topic].partitions}
    return admin.last_stable_offsets(there - leaderless)
