"""Records in the relay that a flow withheld from its target: filtered or quarantined (law E).

The ledger records them in the transaction that skips them, so none is withheld twice or forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from mirrorlake.model.flow import SourcePartition

# What became of a record in a flow: the values of `kind` in the table `offset_map`.
SENT = "sent"
FILTERED = "filtered"
QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Upstream offsets of one source partition that one rule withheld from the target, for one reason.

    `kind` is `filtered` or `quarantined`. `rule` names the rule, `version` is the fingerprint of its definition (8
    hex digits). `ranges` are pairs `(first offset, length)`, ascending; every offset in them is a landed record.
    """

    source: SourcePartition
    kind: str
    rule: str
    version: str
    ranges: tuple[tuple[int, int], ...]
    reason: str = ""

    @property
    def count(self) -> int:
        return sum(length for _, length in self.ranges)

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """The offsets between the ranges, as pairs `(first offset, length)`."""
        ends = ((first + length, following) for (first, length), (following, _) in pairwise(self.ranges))
        return tuple((end, following - end) for end, following in ends)

    @property
    def last(self) -> int:
        first, length = self.ranges[-1]
        return first + length - 1

    def holds(self, offset: int) -> bool:
        return lies_in(offset, self.ranges)


def lies_in(offset: int, ranges: Iterable[tuple[int, int]]) -> bool:
    """Return whether an offset is in one of several ranges `(first, length)`."""
    return any(first <= offset < first + length for first, length in ranges)


def ranges_of(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending offsets as ranges `(first, length)`."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][0] + ranges[-1][1] == offset:
            ranges[-1][1] += 1
        else:
            ranges.append([offset, 1])
    return tuple((first, length) for first, length in ranges)
