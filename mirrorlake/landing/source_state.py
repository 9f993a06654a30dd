"""Inspect what a source holds against what was landed of it, before each start of a lander."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import KnownTopic, Lake, SourceTopics
from mirrorlake.landing.settings import LandSettings
from mirrorlake.landing.start import next_offsets, source_gap_error
from mirrorlake.landing.truncations import Extent, find_truncations, partitions_to_compare, truncation_gap
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap, LogTruncation, expired_ranges

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """State of a source at a start: next positions, gaps, truncations, leader epochs.

    `truncated_gaps` are the ranges that `truncations` explain. The high watermarks count open transactions.
    """

    current: dict[TopicPartition, SourcePartition]
    positions: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    expired_gaps: list[Gap]
    truncations: dict[str, list[LogTruncation]]
    truncated_gaps: list[Gap]
    leader_epochs: dict[str, dict[int, int]]

    @property
    def is_whole(self) -> bool:
        """Whether landing resumes without skipping anything."""
        return not self.expired_gaps and not self.truncations

    def can_resume_from(self, planned: Mapping[TopicPartition, int]) -> bool:
        """Return whether a checkpoint location that planned up to these offsets can resume without skipping anything."""
        is_whole = self.is_whole and planned.keys() <= self.current.keys()
        return is_whole and all(tp in planned or self.log_start_offsets[tp] <= 0 for tp in self.current)

    @property
    def is_drained(self) -> bool:
        # A partition without a position is read from its first record on.
        return all(end == self.positions.get(tp, 0) for tp, end in self.high_watermarks.items())

    def start_offsets(self, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return each partition's start: its landed position, else its offset in `first`, else the log start."""
        landed = {tp: max(position, self.log_start_offsets[tp]) for tp, position in self.positions.items()}
        return {**self.log_start_offsets, **first, **landed}

    def log_gaps(self, alias: str) -> None:
        for gap in (*self.expired_gaps, *self.truncated_gaps):
            log.warning(
                "land.gap source=%s kind=%s range=%s %s..%s",
                *(alias, gap.kind, gap.source, gap.first_offset, gap.last_offset),
                extra={"facts": {"topic_partition": str(gap.source.tp)}},
            )


def current_partitions(known: Mapping[str, KnownTopic], names: Iterable[str]) -> dict[TopicPartition, SourcePartition]:
    return {
        TopicPartition(name, source.partition): source
        for name in names
        if name in known
        for source in known[name].sources()
    }


def inspect_source(
    lake: Lake,
    source: ClusterAdmin,
    settings: LandSettings,
    topics: SourceTopics,
    names: Iterable[str],
    landed: Mapping[SourcePartition, int],
    read: Mapping[SourcePartition, int],
    leaderless: Collection[TopicPartition] = (),
) -> SourceState:
    """Compare landed positions with the source, leaving out leaderless partitions.

    Raises:
        SourceGap: records left the source, or its log was truncated, and `on_gap` is `halt`.
    """
    known = topics.known
    current = {tp: source for tp, source in current_partitions(known, names).items() if tp not in leaderless}
    log_start_offsets, ends = source.log_start_offsets(current), source.high_watermarks_and_epochs(current)
    positions = next_offsets(current, landed, read, known)
    extents = {
        tp: Extent(log_start_offset=log_start_offsets[tp], end=ends[tp][0], landed=positions[tp])
        for tp in partitions_to_compare(known, ends, positions)
    }
    truncations = find_truncations(
        lake, settings.alias, settings.reader_options, known, extents, default_cleanup=topics.default_cleanup
    )
    leader_epochs: dict[str, dict[int, int]] = {}
    for tp, (_, epoch) in ends.items():
        if epoch >= 0:
            leader_epochs.setdefault(tp.topic, {})[tp.partition] = epoch
    cut_at = {TopicPartition(name, cut.partition): cut for name, several in truncations.items() for cut in several}
    truncated_gaps = [truncation_gap(known[tp.topic], cut, positions[tp]) for tp, cut in sorted(cut_at.items())]
    for tp, cut in cut_at.items():
        positions[tp] = cut.first_offset
        current[tp] = SourcePartition(tp.topic, cut.generation, tp.partition)
    expired_gaps = expired_ranges(
        {current[tp]: position for tp, position in positions.items()},
        {current[tp]: log_start_offsets[tp] for tp in positions},
    )
    if (expired_gaps or truncated_gaps) and settings.on_gap == "halt":
        raise source_gap_error(settings.alias, expired_gaps, truncated_gaps)
    return SourceState(
        current=current,
        positions=positions,
        log_start_offsets=log_start_offsets,
        high_watermarks={tp: end for tp, (end, _) in ends.items()},
        expired_gaps=expired_gaps,
        truncations=truncations,
        truncated_gaps=truncated_gaps,
        leader_epochs=leader_epochs,
    )


def ended_generations(landed: Mapping[SourcePartition, int], recreated: Collection[str]) -> list[Gap]:
    """Return the ends of the last generations of recreated topics, one past what was landed of each partition."""
    ended: dict[TopicPartition, SourcePartition] = {}
    for source in landed:
        if source.topic in recreated:
            tp = source.tp
            ended[tp] = max(source, ended.get(tp, source))
    return [
        Gap(source=source, first_offset=landed[source], last_offset=-1, missing=0, kind="recreated")
        for source in ended.values()
    ]
