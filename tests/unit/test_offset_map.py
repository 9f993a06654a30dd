"""Laws A, B and E of the offset map, over histories with holes of every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import (
    BeforeFirst,
    Exact,
    InHole,
    NotYetRepublished,
    OffsetMap,
    Run,
    UnknownPartition,
    holes_between,
)

SOURCE, TARGET = SourcePartition("orders", 1, 3), TopicPartition("east.orders", 3)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Run], dict[int, int]]:
    """Return runs as a sender would write them, and the truth: downstream offset by upstream offset."""
    upstream, downstream = draw(st.integers(0, 50)), draw(st.integers(0, 50))
    runs, truth = [], {}
    for _ in range(draw(st.integers(1, 6))):
        gaps = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 7]), min_size=1, max_size=25))
        offsets = []
        for gap in gaps:
            upstream += gap
            offsets.append(upstream)
            upstream += 1
        runs.append(
            Run(
                source=SOURCE,
                target=TARGET,
                first_upstream=offsets[0],
                last_upstream=offsets[-1],
                first_downstream=downstream,
                count=len(offsets),
                holes=holes_between(offsets),
            )
        )
        truth |= {offset: downstream + index for index, offset in enumerate(offsets)}
        downstream += len(offsets) + draw(st.integers(0, 3))
        upstream += draw(st.integers(0, 4))
    return runs, truth


@given(histories())
def test_every_offset_is_exact_or_explained_both_ways(history: tuple[list[Run], dict[int, int]]) -> None:
    runs, truth = history
    offset_map = OffsetMap(runs)
    back = {downstream: upstream for upstream, downstream in truth.items()}
    for offset in range(max(truth) + 3):
        found = offset_map.translate(offset)
        if offset in truth:
            assert found == Exact(truth[offset], TARGET), f"law E: {offset}"
        elif offset < min(truth):
            assert found == BeforeFirst(min(truth))
        elif offset > max(truth):
            assert found == NotYetRepublished(max(truth) + 1)
        else:
            following = min(o for o in truth if o > offset)
            assert found == InHole(truth[following]), f"law A: resuming at {found} skips a record or stops before one"
    for offset in range(max(back) + 2):
        found = offset_map.translate_back(offset, partition=TARGET)
        assert (
            (found == Exact(back[offset], SOURCE)) == (offset in back)
            if offset in back
            else not isinstance(found, Exact)
        )


@given(histories())
def test_law_b_a_later_upstream_offset_never_translates_earlier(history: tuple[list[Run], dict[int, int]]) -> None:
    runs, truth = history
    offset_map = OffsetMap(runs)
    exact = [offset_map.translate(offset) for offset in sorted(truth)]
    offsets = [found.offset for found in exact if isinstance(found, Exact)]
    assert offsets == sorted(set(offsets)), "law B"
    assert len(offsets) == len(truth)


@given(histories())
def test_copies_of_a_run_are_one_run(history: tuple[list[Run], dict[int, int]]) -> None:
    runs, _ = history
    assert OffsetMap(runs + runs).runs == OffsetMap(runs).runs


def _run(first: int, last: int, downstream: int) -> Run:
    return Run(
        source=SOURCE,
        target=TARGET,
        first_upstream=first,
        last_upstream=last,
        first_downstream=downstream,
        count=last - first + 1,
    )


def test_law_f_a_stretch_that_was_sent_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="law F"):
        OffsetMap([_run(0, 9, 0), _run(5, 14, 10)])


def test_law_b_runs_that_go_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="law B"):
        OffsetMap([_run(0, 9, 100), _run(10, 19, 50)])


def test_a_run_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="add up"):
        Run(source=SOURCE, target=TARGET, first_upstream=0, last_upstream=9, first_downstream=0, count=5)


def test_an_empty_map_knows_no_partition() -> None:
    assert OffsetMap([]).translate(5) == UnknownPartition()
    assert OffsetMap([_run(0, 1, 0)]).translate_back(0, partition=TopicPartition("other", 0)) == UnknownPartition()
