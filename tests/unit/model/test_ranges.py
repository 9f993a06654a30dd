"""Ranges of offsets against Python's sets."""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.ranges import OffsetRange, Ranges

OFFSETS = st.sets(st.integers(0, 60))
BOUNDS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)))


def offsets_of(ranges: Ranges) -> set[int]:
    bounds = [tuple(one) for one in ranges]
    assert all(first < end for first, end in bounds)
    assert all(before[1] < after[0] for before, after in pairwise(bounds)), "a range between any two"
    return {offset for first, end in bounds for offset in range(first, end)}


@given(OFFSETS, OFFSETS)
def test_operators_are_those_of_sets(left: set[int], right: set[int]) -> None:
    one, other = Ranges.of(left), Ranges.of(right)
    assert offsets_of(one | other) == left | right
    assert offsets_of(one & other) == left & right
    assert offsets_of(one - other) == left - right
    assert offsets_of(Ranges.union([one, other, one])) == left | right
    assert (one == other, hash(one) == hash(other)) == (left == right,) * 2


@given(BOUNDS)
def test_ranges_in_any_order_are_joined(bounds: list[tuple[int, int]]) -> None:
    offsets = {offset for first, end in bounds for offset in range(first, end)}
    ranges = Ranges(bounds)
    assert offsets_of(ranges) == offsets
    assert ranges == Ranges.of(np.array(sorted(offsets, reverse=True), np.int64))
    assert ranges == Ranges.from_pairs(ranges.pairs) == Ranges.from_structs(ranges.structs)
    assert ranges == pickle.loads(pickle.dumps(ranges))  # noqa: S301
    assert (bool(ranges), ranges.count) == (bool(offsets), len(offsets))
    if offsets:
        assert (ranges.first, ranges.end) == (min(offsets), max(offsets) + 1)


@given(OFFSETS)
def test_contains_is_that_of_sets(offsets: set[int]) -> None:
    ranges, every = Ranges.of(offsets), range(-1, 43)
    expected = [offset in offsets for offset in every]
    assert [ranges.contains(offset) for offset in every] == expected
    assert ranges.contains(np.array(every)).tolist() == expected
    for first, end in combinations(every, 2):
        assert ranges.overlaps(first, end) == any(expected[first + 1 : end + 1]), (first, end)


def test_ranges_are_written_as_pairs_and_structs() -> None:
    ranges = Ranges([(7, 9), (1, 2)])
    assert list(ranges) == [OffsetRange(1, 2), OffsetRange(7, 9)]
    assert ranges.pairs == ((1, 1), (7, 2))
    assert ranges.structs == [{"first": 1, "length": 1}, {"first": 7, "length": 2}]
    assert repr(ranges) == "Ranges[1..1, 7..8]"
    assert not Ranges.from_structs(None)
