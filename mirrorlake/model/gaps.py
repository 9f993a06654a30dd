"""Gaps: upstream offsets that were never landed, each explained (law E: accounted for)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirrorlake.model.flow import SourcePartition

# Where several gaps cover an offset, the one that explains it best comes first.
GAP_KINDS = ("expired", "recreated", "transactional", "compacted", "truncated")


# A compacted log may hold control records and aborted ones, too: which offset is which cannot be told from what was landed.
_LIKELY = ("compacted",)


def certainty(kind: str) -> str:
    """Tell whether a gap's kind is `certain`, or `likely` where the log cannot tell.

    >>> certainty("transactional"), certainty("compacted")
    ('certain', 'likely')
    """
    return "likely" if kind in _LIKELY else "certain"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncation:
    """Where the log of a partition went back: from `first_offset` on its offsets are of `generation`."""

    partition: int
    generation: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A range of upstream offsets with `missing` offsets that hold no landed record, and why.

    Kinds: `expired` left the source before it was landed; `recreated` the topic was deleted, how much it still held is
    unknown; `transactional` control records and aborted records; `compacted` removed by the source's log cleaner;
    `truncated` the source's log went back (unclean election, lost disk): the relay keeps what it landed of the range, and
    the source's offsets from `first_offset` on are of the next generation.
    """

    source: SourcePartition
    first_offset: int
    last_offset: int
    missing: int
    kind: str


def expired_ranges(positions: Mapping[SourcePartition, int], earliest: Mapping[SourcePartition, int]) -> list[Gap]:
    """List the offsets still to be landed, from `positions` on, that the source no longer holds, up to `earliest`."""
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
