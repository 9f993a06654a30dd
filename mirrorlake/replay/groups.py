"""Plan the positions of consumer groups in restored topics, exactly by the restore's offset map (law A)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mirrorlake.kafka import ClusterAdmin, Groups
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan, GroupPosition, Resume, decide
from mirrorlake.model.offset_map import MappedRange, resume_offset
from mirrorlake.replay.as_of import GroupAsOf


def plan_groups_then(
    name: str,
    groups: Iterable[GroupAsOf],
    runs: Mapping[TopicPartition, Sequence[MappedRange]],
    *,
    target: Groups,
    admin: ClusterAdmin,
) -> GroupPlan:
    """Plan the positions of the groups that had one at the restored time; skip only groups with members."""
    groups = tuple(groups)
    active = target.active() if groups else set()
    places = {one: TopicPartition(one.source.topic, one.source.partition) for one in groups}
    held = target.committed({one.group for one in groups}, set(places.values()))
    bare = {tp for one, tp in places.items() if position_in(runs.get(tp, ()), one) is None}
    first = admin.log_start_offsets(bare)
    rows: list[GroupPosition] = []
    for one, tp in places.items():
        position = position_in(runs.get(tp, ()), one)
        resume = Resume(
            source=one.source,
            upstream_offset=one.position,
            target=tp,
            downstream_offset=first[tp] if position is None else position,
            exact=True,
        )
        there = held[one.group].get(tp)
        rows.append(
            decide(
                one.group,
                resume,
                metadata="",
                target_offset=None if there is None else there.offset,
                is_active=one.group in active,
            )
        )
    return GroupPlan(name, tuple(rows))


def position_in(runs: Iterable[MappedRange], one: GroupAsOf) -> int | None:
    """Return the position of a group in a target partition, or None if the ranges have no record.

    Records of an earlier generation come before the group's position, records of a later one after it.

    Example:
        >>> from mirrorlake.model.flow import SourcePartition
        >>> source, target = SourcePartition("orders", 1, 0), TopicPartition("orders", 0)
        >>> run = MappedRange(source=source, target=target, first_upstream=10, last_upstream=19, first_downstream=0, count=10)
        >>> [position_in([run], GroupAsOf("g", source, at)) for at in (0, 10, 13, 20, 99)]
        [0, 0, 3, 10, 10]
    """
    read, unread = [], []
    for run in runs:
        if run.source.generation == one.source.generation:
            before = run.records_before(one.position)
        else:
            before = run.count if run.source.generation < one.source.generation else 0
        if before:
            read.append(run.first_downstream + before - 1)
        if before < run.count:
            unread.append(run.first_downstream + before)
    return resume_offset(read, unread)
