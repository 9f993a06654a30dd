"""Estimate the loss of a source: its last known ends against the landed positions (law E).

A source that is gone tells nothing any more. What is known is how far it reached when it was last looked at, and that it
answered no more when it was looked at next: records of the time between may be lost without anybody having seen them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, NamedTuple

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake, RelayPart, landed_positions, micros, read_landing_positions, read_mark
from mirrorlake.model.flow import SourcePartition
from mirrorlake.republish import find_unsent


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleLoss:
    """The possible loss of one source partition; positions are next offsets.

    `seen_end` is the source's end when it was last seen, at `seen_at`; None where nobody looked. `missing` are the offsets
    before it that did not arrive: records and markers, so an upper bound of the seen records that are lost.
    """

    topic: str
    generation: int
    partition: int
    landed: int
    republished: int
    seen_end: int | None = None
    seen_at: datetime | None = None
    json_include: ClassVar[tuple[str, ...]] = ("missing",)

    @property
    def missing(self) -> int:
        return max(0, (self.seen_end or 0) - self.republished)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen:
    """When a source was sampled: last with an answer, and first without one after that.

    `ends` were read at `ends_at`. `in_step_at` is the last time up to which everything that it showed is landed now; None where
    there was no such time.
    """

    ends: Mapping[SourcePartition, int]
    ends_at: datetime | None = None
    answered_at: datetime | None = None
    silent_at: datetime | None = None
    in_step_at: datetime | None = None

    def updated(
        self,
        ends: Mapping[SourcePartition, int],
        at: datetime,
        reached: Mapping[SourcePartition, PartitionProgress],
        *,
        silent: bool,
    ) -> SourceSeen:
        """Return it with newer ends; `silent` if the source has not answered since."""
        if not ends:
            return self
        # Leaderless partitions have no newer ends.
        ends = {**self.ends, **ends}
        is_whole = all(end <= reached.get(source, NO_PROGRESS).landed for source, end in ends.items())
        return SourceSeen(
            ends=ends,
            ends_at=at,
            answered_at=at,
            silent_at=self.silent_at if silent else None,
            in_step_at=at if is_whole else self.in_step_at,
        )


class PartitionProgress(NamedTuple):
    """The next offsets to land and to republish of one source partition; markers count."""

    landed: int
    republished: int


def read_flow_progress(
    lake: Lake, flow: FlowConfig, sent: Mapping[SourcePartition, int]
) -> dict[SourcePartition, PartitionProgress]:
    """Read the landed and republished positions of a flow's partitions; `sent` are those of its ledger."""
    read = read_landing_positions(lake, flow.source)
    # Read afterwards, so that offsets which were read but are not in the relay are markers.
    held = landed_positions(lake, flow.source).reached
    waiting = find_unsent(lake, flow, sent, held) if sent else {source for source, position in held.items() if position}
    found = {}
    for source in {*held, *sent, *read}:
        if flow.carries(source.topic):
            # Control records at the end are read, but neither landed nor sent.
            landed = max(held.get(source, 0), read.get(source, 0))
            found[source] = PartitionProgress(landed, sent.get(source, 0) if source in waiting else landed)
    return found


NO_PROGRESS = PartitionProgress(0, 0)


def read_source_seen(lake: Lake, flow: FlowConfig, reached: Mapping[SourcePartition, PartitionProgress]) -> SourceSeen:
    """Read the last known ends of a flow's source, and their time, from the lake."""
    ends = {
        SourcePartition(row.topic, row.generation, row.partition): int(row.position)
        for row in lake.query(_ENDS, source=flow.source)
        if flow.carries(row.topic)
    }
    [looks] = lake.query(_ANSWERED, name=flow.source)
    ends_at = answered_at = in_step_at = looks.answered_at
    landed = RelayPart({source: reached.get(source, NO_PROGRESS).landed for source in ends})
    beyond = lake.query(_BEYOND, source=flow.source, tables={"held": landed.known()}) if ends_at else ()
    if beyond and beyond[0].first_at is not None:
        [before] = lake.query(_BEFORE, name=flow.source, until=micros(beyond[0].first_at))
        in_step_at = before.answered_at
    # A sampler reads the ends every half a minute, a live lander twice a second.
    mark = read_mark(lake, flow.source)
    if mark is not None:
        answered_at = _newest(answered_at, mark.answered_at)
        in_step_at = _newest(in_step_at, mark.complete_for(flow.carries))
    if answered_at is None:
        return SourceSeen(ends=ends)
    [silent] = lake.query(_SILENT, name=flow.source, after=micros(answered_at))
    silences = [silent.silent_at, None if mark is None else mark.silent_at]
    return SourceSeen(
        ends=ends,
        ends_at=ends_at,
        answered_at=answered_at,
        silent_at=min((at for at in silences if at is not None and at > answered_at), default=None),
        in_step_at=in_step_at,
    )


def _newest(*times: datetime | None) -> datetime | None:
    return max((at for at in times if at is not None), default=None)


def estimate_loss(
    reached: Mapping[SourcePartition, PartitionProgress],
    ends: Mapping[SourcePartition, int],
    *,
    seen_at: datetime | None,
) -> tuple[PossibleLoss, ...]:
    """Compare known ends with landed and republished positions, by source partition."""
    return tuple(
        PossibleLoss(
            topic=source.topic,
            generation=source.generation,
            partition=source.partition,
            landed=reached.get(source, NO_PROGRESS).landed,
            republished=reached.get(source, NO_PROGRESS).republished,
            seen_end=ends.get(source),
            seen_at=seen_at if source in ends else None,
        )
        for source in sorted({*reached, *ends})
    )


def rpo_seconds(seen: SourceSeen, *, lost_at: datetime) -> float | None:
    """Bound the time whose records may be lost: from the last sample without any missing to the loss of the source.

    None where nobody looked at the source; `lost_at` counts where no look found it silent.
    """
    if seen.in_step_at is None:
        return None
    until = min(seen.silent_at, lost_at) if seen.silent_at is not None else lost_at
    return max(0.0, (until - seen.in_step_at).total_seconds())


_ENDS = """
    SELECT topic, generation, partition, max_by(position, observed_at) AS position FROM {positions}
    WHERE source = :source AND kind = 'last_stable' AND position IS NOT NULL GROUP BY topic, generation, partition
"""
_SAMPLES = "FROM {samples} WHERE subject = 'cluster' AND name = :name"
_ANSWERED = f"SELECT max(observed_at) AS answered_at {_SAMPLES} AND error IS NULL"
_BEFORE = f"{_ANSWERED} AND unix_micros(observed_at) < :until"
_SILENT = f"SELECT min(observed_at) AS silent_at {_SAMPLES} AND error IS NOT NULL AND unix_micros(observed_at) > :after"
_BEYOND = """
    SELECT min(p.observed_at) AS first_at FROM {positions} AS p JOIN {held} AS h
        ON p.topic = h.topic AND p.generation = h.generation AND p.partition = h.partition
    WHERE p.source = :source AND p.kind = 'last_stable' AND p.position > h.position
"""
