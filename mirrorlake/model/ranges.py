"""Ranges of offsets, and their unions, intersections and differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

# Greater than every offset.
UNBOUNDED = 2**62
# Pairs of ranges that a loop intersects in less time than arrays.
_FEW = 16

Offsets: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class OffsetRange(NamedTuple):
    """The offsets from `first` to the one before `end`."""

    first: int
    end: int


class Ranges:
    """A set of offsets as ranges `[first, end)` that neither touch nor overlap, ascending; a value."""

    __slots__ = ("ends", "firsts")

    firsts: Offsets
    ends: Offsets

    def __init__(self, bounds: Iterable[tuple[int, int]] = ()) -> None:
        """Join the ranges `[first, end)` in any order; an empty one is left out."""
        joined: list[tuple[int, int]] = []
        for first, end in sorted(bounds):
            if joined and first <= joined[-1][1]:
                first, end = joined[-1][0], max(joined.pop()[1], end)
            if first < end:
                joined.append((first, end))
        self.firsts = np.array([first for first, _ in joined], np.int64)
        self.ends = np.array([end for _, end in joined], np.int64)

    @classmethod
    def of(cls, offsets: Iterable[int] | Offsets) -> Ranges:
        """Return the ranges of single offsets, in any order."""
        firsts = offsets if isinstance(offsets, np.ndarray) else np.fromiter(offsets, np.int64)
        return cls.from_columns(firsts, firsts + 1)

    @classmethod
    def from_columns(cls, firsts: Offsets, ends: Offsets) -> Ranges:
        """Join the ranges `[first, end)` of two columns, as the constructor does."""
        return cls._of_joined(*_joined(firsts, ends))

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Join the ranges `(first, length)`, as the ledger has them."""
        return cls((first, first + length) for first, length in pairs)

    @classmethod
    def from_structs(cls, structs: Iterable[Mapping[str, int]] | None) -> Ranges:
        """Join the ranges of a table's column `array<struct<first, length>>`; null is none."""
        return cls.from_pairs((struct["first"], struct["length"]) for struct in structs or ())

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The ranges as `(first, length)`."""
        return tuple((first, end - first) for first, end in self)

    @property
    def structs(self) -> list[dict[str, int]]:
        """The ranges as a table's column `array<struct<first, length>>` has them."""
        return [{"first": first, "length": length} for first, length in self.pairs]

    @property
    def first(self) -> int:
        """The first offset; there must be one."""
        return int(self.firsts[0])

    @property
    def end(self) -> int:
        """The offset after the last one; there must be one."""
        return int(self.ends[-1])

    @property
    def count(self) -> int:
        """The number of offsets."""
        return int((self.ends - self.firsts).sum())

    @overload
    def contains(self, offsets: int) -> bool: ...
    @overload
    def contains(self, offsets: Offsets) -> Flags: ...
    def contains(self, offsets: int | Offsets) -> bool | Flags:
        """Return whether an offset is in a range, or a flag for each of several."""
        # Between a first offset and the end of its range, one more range has begun than ended.
        begun = np.searchsorted(self.firsts, offsets, side="right")
        flags = begun > np.searchsorted(self.ends, offsets, side="right")
        return flags if isinstance(offsets, np.ndarray) else bool(flags)

    def overlaps(self, first: int, end: int) -> bool:
        """Return whether one of the offsets `[first, end)` is in a range."""
        return bool(np.searchsorted(self.firsts, end) > np.searchsorted(self.ends, first, side="right"))

    def __iter__(self) -> Iterator[OffsetRange]:
        return map(OffsetRange, self.firsts.tolist(), self.ends.tolist())

    def __len__(self) -> int:
        return len(self.firsts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranges):
            return NotImplemented
        return np.array_equal(self.firsts, other.firsts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.firsts.tobytes(), self.ends.tobytes()))

    def __repr__(self) -> str:
        return f"Ranges[{', '.join(f'{first}..{end - 1}' for first, end in self)}]"

    def __or__(self, other: Ranges) -> Ranges:
        return self.union((self, other))

    def __and__(self, other: Ranges) -> Ranges:
        if len(self) * len(other) <= _FEW:
            return Ranges((max(a, c), min(b, d)) for a, b in self for c, d in other)
        # No range begins or ends between two neighbouring edges, so the first offset decides for all of them.
        edges = np.concatenate([self.firsts, self.ends, other.firsts, other.ends])
        edges.sort()
        chosen = self.contains(edges[:-1]) & other.contains(edges[:-1])
        return self.from_columns(edges[:-1][chosen], edges[1:][chosen])

    def __sub__(self, other: Ranges) -> Ranges:
        if not (self and other):
            return self
        before, after = np.array([-UNBOUNDED]), np.array([UNBOUNDED])
        return self & self._of_joined(np.concatenate([before, other.ends]), np.concatenate([other.firsts, after]))

    @classmethod
    def _of_joined(cls, firsts: Offsets, ends: Offsets) -> Ranges:
        ranges = cls.__new__(cls)
        ranges.firsts, ranges.ends = firsts, ends
        return ranges

    @classmethod
    def union(cls, several: Sequence[Ranges]) -> Ranges:
        """Return the offsets that are in one of several sets."""
        if not several:
            return cls()
        columns = (np.concatenate([getattr(one, name) for one in several]) for name in cls.__slots__[::-1])
        return cls.from_columns(*columns)


def _joined(firsts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
    """Sort ranges, leave out empty ones, and join those that touch or overlap."""
    some = np.flatnonzero(firsts < ends)
    order = some[np.argsort(firsts[some], kind="stable")]
    firsts, ends = firsts[order], np.maximum.accumulate(ends[order])
    begins = np.ones(len(order), np.bool_)
    begins[1:] = firsts[1:] > ends[:-1]
    return firsts[begins], ends[np.append(begins[1:], True)[: len(order)]]
