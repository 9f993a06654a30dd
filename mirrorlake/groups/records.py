"""What the lake keeps of groups: their positions as they were seen, what mirrorlake set, and the translations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.groups.own_commits import Positions, set_rows
from mirrorlake.kafka.groups import Committed
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.metadata import SourceTopics
from mirrorlake.lake.rows import position_row
from mirrorlake.lake.schema import CHECKPOINTS, POSITIONS
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, GroupPosition, Resume


def recorded_positions(lake: Lake, flow: FlowConfig, *, selection: NameMatcher) -> Positions:
    """Return the groups' positions as the lake knows them, for a source that is lost."""
    return {
        (group, source): Committed(offset)
        for (group, source), offset in newest_positions(lake, flow.source).items()
        if flow.carries(source.topic) and selection.matches(group)
    }


def newest_positions(lake: Lake, alias: str) -> dict[tuple[str, SourcePartition], int]:
    """Return the newest recorded position of every group on the topics of a cluster."""
    # A sample writes none where it found a position gone; the last known one is what counts here.
    rows = lake.ask(
        "SELECT group_id, topic, generation, partition, max_by(position, observed_at) AS position FROM {positions} "
        "WHERE source = :source AND kind = 'group' AND position IS NOT NULL "
        "GROUP BY group_id, topic, generation, partition",
        source=alias,
    )
    return {
        (row.group_id, SourcePartition(row.topic, row.generation, row.partition)): int(row.position) for row in rows
    }


@dataclass(slots=True)
class GroupRecords:
    """Write group positions and their translations to the lake where they changed since they were last written."""

    lake: Lake
    flow: FlowConfig
    now: Callable[[], datetime]
    _positions: dict[str, dict[tuple[str, SourcePartition], int]] = field(default_factory=dict, init=False)
    _checkpoints: dict[tuple[str, TopicPartition], tuple[int, int]] | None = field(default=None, init=False)

    def about_to_set(self, plan: GroupPlan) -> None:
        """Append what the plan is going to set, where it could be taken for the group's own progress afterwards.

        Law A: written first, so that no death between the two leaves a position that looks like the group's.
        """
        if not self.flow.adds_hops or not plan.moves:
            return
        known = SourceTopics(self.lake, self.flow.target).load()
        moves = [
            (move.group, move.resume.target, move.resume.downstream_offset)
            for move in plan.moves
            if move.resume.downstream_offset is not None
        ]
        self.lake.append_rows(POSITIONS, set_rows(self.flow.target, self.flow.name, moves, known=known, at=self.now()))

    def write(self, plan: GroupPlan, positions: Mapping[str, Positions], *, at: datetime) -> int:
        """Append what is new of the positions and of the flow's translations; return how many of these that were.

        Args:
            plan: as it was carried out.
            positions: what groups have committed, by alias of the cluster.
            at: a time before the positions were looked at: what is set later must not seem to be older.
        """
        if self._checkpoints is None:
            self._checkpoints = self._recorded_checkpoints()
        rows = []
        for alias, here in positions.items():
            known = self._positions.setdefault(alias, newest_positions(self.lake, alias) if here else {})
            moved = {key: held.offset for key, held in here.items() if known.get(key) != held.offset}
            rows += [
                position_row(alias, source, "group", offset, at, group=group)
                for (group, source), offset in moved.items()
            ]
            known |= moved
        self.lake.append_rows(POSITIONS, rows)
        fresh = list(self._fresh(plan, self._checkpoints))
        self.lake.append_rows(
            CHECKPOINTS,
            [
                {
                    "flow": self.flow.name,
                    "group_id": p.group,
                    "target_topic": p.resume.target.topic,
                    "target_partition": p.resume.target.partition,
                    "upstream_offset": p.resume.upstream_offset,
                    "downstream_offset": p.resume.downstream_offset,
                    "metadata": p.metadata,
                    "observed_at": self.now(),
                }
                for p in fresh
            ],
        )
        return len(fresh)

    def _fresh(
        self, plan: GroupPlan, known: dict[tuple[str, TopicPartition], tuple[int, int]]
    ) -> Iterable[GroupPosition]:
        for position in plan:
            resume: Resume = position.resume
            if resume.downstream_offset is None or not position.is_translated:
                continue
            key, pair = (position.group, resume.target), (resume.upstream_offset, resume.downstream_offset)
            if known.get(key) != pair:
                known[key] = pair
                yield position

    def _recorded_checkpoints(self) -> dict[tuple[str, TopicPartition], tuple[int, int]]:
        rows = self.lake.ask(
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
