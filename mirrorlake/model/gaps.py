"""Gaps: upstream offsets that were never landed, each explained (law E: accounted for)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirrorlake.model.flow import SourcePartition

# If several gaps cover an offset, the one that explains it best comes first.
GAP_KINDS = ("expired", "recreated", "transactional", "compacted", "truncated")


# A compacted log may also contain control records and aborted records, and the landed records do not show which is which.
_LIKELY = ("compacted",)


def certainty(kind: str) -> str:
    """Return `certain` for a gap's kind, or `likely` if the log does not show it."""
    return "likely" if kind in _LIKELY else "certain"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncation:
    """A truncation of a partition's log: from `first_offset` on its offsets are of `generation`."""

    partition: int
    generation: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A range of upstream offsets with `missing` offsets without a landed record, and why.

    Kinds: `expired` left the source before it was landed; `recreated` the topic was deleted, the number of records it
    still had is unknown; `transactional` control records and aborted records; `compacted` removed by the source's log
    cleaner; `truncated` the source's log was truncated (unclean election, lost disk): the relay still has what it landed
    of the range, and the source's offsets from `first_offset` on are of the next generation.
    """

    source: SourcePartition
    first_offset: int
    last_offset: int
    missing: int
    kind: str


def expired_ranges(positions: Mapping[SourcePartition, int], earliest: Mapping[SourcePartition, int]) -> list[Gap]:
    """Return the unlanded offsets, from `positions` up to `earliest`, that the source no longer has."""
    return [
        Gap(
            source=source,
            first_offset=position,
            last_offset=earliest[source] - 1,
            missing=earliest[source] - position,
            kind="expired",
        )
        for source, position in sorted(positions.items())
        if earliest.get(source, position) > position
    ]
