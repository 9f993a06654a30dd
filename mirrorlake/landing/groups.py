"""Landing groups: the partitions of a source, shared between several live tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from mirrorlake.landing.live import LandTask
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.lanes import lane_of

# A task lands some 300 000 records a second of its own, and shares a machine with others.
_RECORDS_PER_S, _BACKLOG_RECORDS = 100_000, 5_000_000
# A task for partitions with less than this would land next to nothing.
_BUSY_PER_S, _BUSY_BACKLOG = 100, 10_000


def wanted_tasks(backlog: Mapping[TopicPartition, int], per_s: Mapping[TopicPartition, float]) -> int:
    """Return how many tasks a source is worth, by what it holds that is not landed and by what was landed a second lately.

    Example:
        >>> busy = {TopicPartition("orders", partition): 120_000.0 for partition in range(3)}
        >>> wanted_tasks({}, {}), wanted_tasks({}, busy)
        (1, 3)
    """
    busy = {tp for tp, records in backlog.items() if records >= _BUSY_BACKLOG}
    busy |= {tp for tp, rate in per_s.items() if rate >= _BUSY_PER_S}
    work = max(sum(backlog.values()) / _BACKLOG_RECORDS, sum(per_s.values()) / _RECORDS_PER_S)
    return max(1, min(len(busy), math.ceil(work)))


def split_task(task: LandTask, groups: int) -> list[LandTask]:
    """Share the partitions of a task between at most so many; each knows how far all partitions were read."""
    dealt: dict[int, dict[SourcePartition, int]] = {}
    for source, offset in task.start.items():
        dealt.setdefault(lane_of(source.topic, source.partition, lanes=groups), {})[source] = offset
    if len(dealt) < 2:
        return [task]
    return [
        replace(
            task,
            seat=replace(task.seat, group=group),
            groups=len(dealt),
            start=start,
            read_to={**task.read_to, **task.start},
            ends=None if task.ends is None else _of(start, task.ends),
            leaderless=frozenset() if group else task.leaderless,
        )
        for group, (_, start) in enumerate(sorted(dealt.items()))
    ]


def _of(start: Mapping[SourcePartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    mine = {TopicPartition(source.topic, source.partition) for source in start}
    return {tp: end for tp, end in ends.items() if tp in mine}
