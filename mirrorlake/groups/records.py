"""The lake's records of groups: their observed positions, those that mirrorlake set, and the translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.groups.committed import newest_positions
from mirrorlake.groups.own_commits import SET
from mirrorlake.lake import CHECKPOINTS, POSITIONS, Lake, SourceTopics, position_row
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.offsets import Positions


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
                life = known[tp.topic].generation_at(tp.partition, offset) if tp.topic in known else 1
                there = SourcePartition(tp.topic, life, tp.partition)
                rows.append(
                    position_row(self.flow.target, there, SET, offset, at, flow=self.flow.name, group=move.group)
                )
        self.lake.append_rows(POSITIONS, rows)

    def write(self, plan: GroupPlan, positions: Mapping[str, Positions], *, at: datetime) -> None:
        """Append the positions and the flow's translations that are new.

        `at` is a time before the positions were read: a position that is set later must not seem older.
        """
        rows = []
        for alias, here in positions.items():
            known = self._positions.setdefault(alias, newest_positions(self.lake, alias) if here else {})
            moved = {key: held.offset for key, held in here.items() if known.get(key) != held.offset}
            rows += [position_row(alias, s, "group", offset, at, group=group) for (group, s), offset in moved.items()]
            known |= moved
        if self._checkpoints is None:
            self._checkpoints = self._recorded_checkpoints()
        self.lake.append_rows(POSITIONS, rows)
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
