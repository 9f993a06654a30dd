"""Laws A, B and E of the offset map, over histories with holes of every kind."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Contribution, position_among
from mirrorlake.model.offset_map import (
    BeforeFirst,
    Exact,
    MappedRange,
    NoRecord,
    NotYetRepublished,
    OffsetMap,
    UnknownPartition,
    standing_at,
)
from tests.builders import run, run_over

SOURCE, TARGET = SourcePartition("orders", 1, 3), TopicPartition("east.orders", 3)


Placed = dict[int, tuple[int, int]]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[MappedRange], Placed]:
    """Return runs of a source partition in one target partition, or by key, and every record's place."""
    count = draw(st.integers(1, 4))
    upstream = draw(st.integers(0, 20))
    ends = [draw(st.integers(0, 30)) for _ in range(count)]
    runs: list[MappedRange] = []
    truth: Placed = {}
    for _ in range(draw(st.integers(1, 5))):
        chunk: dict[int, list[int]] = {}
        for gap, place in draw(
            st.lists(st.tuples(st.sampled_from([0, 0, 1, 3]), st.integers(0, count - 1)), max_size=20)
        ):
            upstream += gap
            chunk.setdefault(place, []).append(upstream)
            upstream += 1
        for place, offsets in chunk.items():
            # Another source partition may have written to the target partition in between.
            ends[place] += draw(st.integers(0, 3))
            runs.append(run_over(offsets, ends[place], source=SOURCE, target=TopicPartition("east.orders", place)))
            truth |= {offset: (place, ends[place] + i) for i, offset in enumerate(offsets)}
            ends[place] += len(offsets)
    return draw(st.permutations(runs)), truth


@pytest.mark.law("A", "B", "E")
@given(histories())
def test_every_offset_is_exact_or_explained_both_ways(history: tuple[list[MappedRange], Placed]) -> None:
    runs, truth = history
    offset_map = OffsetMap(runs)
    back = {place: upstream for upstream, place in truth.items()}
    for offset in range(max(truth, default=0) + 3):
        found = offset_map.translate(offset)
        if offset in truth:
            partition, place = truth[offset]
            assert found == Exact(place, TopicPartition("east.orders", partition)), f"law E: {offset}"
        elif not truth:
            assert found == UnknownPartition()
        elif offset < min(truth):
            assert found == BeforeFirst(min(truth))
        elif offset > max(truth):
            assert found == NotYetRepublished(max(truth) + 1)
        else:
            assert isinstance(found, NoRecord), f"law E: {offset} holds no record"
            if len({partition for partition, _ in truth.values()}) == 1:
                _, before = truth[max(one for one in truth if one < offset)]
                assert found == NoRecord(before + 1), f"law A: {found} is not after the last record before the hole"
    for partition in range(4):
        places = sorted(place for target, place in back if target == partition)
        upstream = [back[partition, place] for place in places]
        assert upstream == sorted(upstream), "law B holds on each target partition"
        for place in range(max(places, default=0) + 2):
            found = offset_map.translate_back(place, partition=TopicPartition("east.orders", partition))
            expected = back.get((partition, place))
            assert (found == Exact(expected, SOURCE)) if expected is not None else not isinstance(found, Exact)


@pytest.mark.law("F")
@given(histories())
def test_copies_of_a_run_are_one_run(history: tuple[list[MappedRange], Placed]) -> None:
    runs, _ = history
    assert OffsetMap(runs + runs).runs == OffsetMap(runs).runs


@pytest.mark.law("F")
@given(histories(), st.data())
def test_law_f_a_record_in_two_partitions_is_refused(
    history: tuple[list[MappedRange], Placed], data: st.DataObject
) -> None:
    runs, truth = history
    assume(truth)
    offset = data.draw(st.sampled_from(sorted(truth)))
    twice = run(offset, offset, 0, source=SOURCE, target=TopicPartition("east.orders", 9))
    with pytest.raises(ValueError, match="law F"):
        OffsetMap([*runs, twice])


def test_a_hole_between_two_sources_of_one_target_partition_names_no_upstream_offset() -> None:
    other = run(70, 79, 20, source=SourcePartition("clicks", 1, 0), target=TARGET)
    runs = [run(0, 9, 0, source=SOURCE), other, run(10, 19, 40, source=SOURCE)]
    assert standing_at(runs, 25) == Exact(75, SourcePartition("clicks", 1, 0))
    assert standing_at(runs, 15) == NoRecord(None)
    assert standing_at(runs, 35) == NoRecord(None)
    assert standing_at(runs[::2], 35) == NoRecord(10)
    assert standing_at(runs, 50) == NotYetRepublished(50)


@pytest.mark.law("A")
def test_law_a_a_hole_between_records_of_other_regions_has_one_answer() -> None:
    """Four records of another region lie between the two runs: `translate` and `groups` both stop before them."""
    runs = [run(0, 4, 0, source=SOURCE), run(6, 9, 9, source=SOURCE)]
    group = Contribution(flow="f", source=SOURCE, upstream_offset=5, last_read=4, first_unread=9)
    assert OffsetMap(runs).translate(5) == NoRecord(5)
    assert position_among([group]) == 5


@pytest.mark.law("B", "F")
@pytest.mark.parametrize(("first", "second", "law"), [((0, 9, 0), (5, 14, 10), "F"), ((0, 9, 100), (10, 19, 50), "B")])
def test_laws_b_f_ranges_that_were_sent_twice_or_go_backwards_are_refused(
    first: tuple[int, int, int], second: tuple[int, int, int], law: str
) -> None:
    with pytest.raises(ValueError, match=f"law {law}"):
        OffsetMap([run(*first, source=SOURCE), run(*second, source=SOURCE)])
    with pytest.raises(ValueError, match="add up"):
        MappedRange(source=SOURCE, target=TARGET, first_upstream=0, last_upstream=9, first_downstream=0, count=5)
