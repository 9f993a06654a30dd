"""Ranges of offsets, and their sums, intersections and differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Greater than every offset.
UNBOUNDED = 2**62


class OffsetRange(NamedTuple):
    first: int
    end: int


class OffsetRanges:
    """Ranges of offsets that neither touch nor overlap, ascending; a value."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        found: list[OffsetRange] = []
        for first, end in sorted(spans):
            if first >= end:
                continue
            if found and first <= found[-1].end:
                found[-1] = OffsetRange(found[-1].first, max(found[-1].end, end))
            else:
                found.append(OffsetRange(first, end))
        self._spans = tuple(found)

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRanges) and self._spans == other._spans

    def __hash__(self) -> int:
        return hash(self._spans)

    def __repr__(self) -> str:
        return f"OffsetRanges[{', '.join(f'{span.first}..{span.end - 1}' for span in self._spans)}]"

    @property
    def first(self) -> int:
        """The first offset; there must be one."""
        return self._spans[0].first

    @property
    def end(self) -> int:
        """The offset after the last one; there must be one."""
        return self._spans[-1].end

    @property
    def size(self) -> int:
        return sum(span.end - span.first for span in self._spans)

    def __add__(self, other: OffsetRanges) -> OffsetRanges:
        return OffsetRanges([*self._spans, *other._spans])

    def __and__(self, other: OffsetRanges) -> OffsetRanges:
        return OffsetRanges((max(a.first, b.first), min(a.end, b.end)) for a in self._spans for b in other._spans)

    def __sub__(self, other: OffsetRanges) -> OffsetRanges:
        left: list[tuple[int, int]] = []
        for span in self._spans:
            first = span.first
            for gone in other._spans:
                if gone.end <= first or gone.first >= span.end:
                    continue
                left.append((first, gone.first))
                first = gone.end
            left.append((first, span.end))
        return OffsetRanges(left)
