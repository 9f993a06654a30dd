"""All positions of a mirror at one time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.lag.time_lag import FlowPosition
from mirrorlake.lake import LandedPositions, PositionKey, Subject, SubjectSample
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import LedgerRecord

Lanes = Mapping[int, LedgerRecord | None]
"""The last ledger record of each lane of a flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionSnapshot:
    """All samples of one time, with relay positions by source, ledger records by flow, and errors by subject."""

    observed_at: datetime
    looks: tuple[SubjectSample, ...]
    landed: Mapping[str, LandedPositions] = field(default_factory=dict, repr=False)
    lanes: Mapping[str, Lanes] = field(default_factory=dict, repr=False)
    errors: Mapping[Subject, ClusterError] = field(default_factory=dict, repr=False)

    @property
    def changed(self) -> int:
        """The count of changed positions."""
        return sum(look.changed for look in self.looks)

    @property
    def unanswered(self) -> tuple[SubjectSample, ...]:
        """The samples whose subject did not answer."""
        return tuple(look for look in self.looks if look.error is not None)

    @property
    def positions(self) -> dict[PositionKey, int]:
        """All sampled positions."""
        return {key: offset for look in self.looks for key, offset in look.positions.items()}

    def require(self, *subjects: Subject) -> None:
        """Raise the error of the first of these subjects that did not answer."""
        for subject in subjects:
            if subject in self.errors:
                raise self.errors[subject]

    def positions_of(self, flow: FlowConfig) -> dict[TopicPartition, FlowPosition]:
        """Return the positions of a flow in the newest generation of each of its partitions."""
        seen = {look.key: look.positions for look in self.looks}
        reached, ends = seen.get(("relay", flow.source), {}), seen.get(("cluster", flow.source), {})
        found: dict[TopicPartition, FlowPosition] = {}
        # Sorted by topic and generation, so that each partition ends with its newest.
        for key, offset in sorted(seen.get(("flow", flow.name), {}).items(), key=lambda item: item[0][2:5]):
            _, _, topic, generation, partition, _, _ = key
            end = ends.get(PositionKey(flow.source, None, topic, generation, partition, "last_stable", None))
            if end is None:
                # A leaderless partition; a warning was logged.
                continue
            found[TopicPartition(topic, partition)] = FlowPosition(
                source=SourcePartition(topic, generation, partition),
                republished=offset,
                landed=reached[PositionKey(flow.source, None, topic, generation, partition, "reached", None)],
                end=end,
            )
        return found

    def __str__(self) -> str:
        seen = sum(len(look.positions) for look in self.looks)
        lines = [f"positions: {seen:,} seen, {self.changed:,} written"]
        return "\n".join(lines + [f"{look.subject} {look.name}: {look.error}" for look in self.unanswered])
