"""Lanes, gaps, plans: the small pure laws."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import expired_ranges
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.plan import Change, TopicSpec, topic_changes

names = st.text("abcdefgh.-_0123", min_size=1, max_size=30)


@given(names, st.integers(1, 200), st.integers(1, 16))
def test_the_partitions_of_a_topic_are_dealt_evenly(topic: str, partitions: int, lanes: int) -> None:
    dealt = Counter(lane_of(topic, partition, lanes=lanes) for partition in range(partitions))
    counts = [dealt.get(lane, 0) for lane in range(lanes)]
    assert max(counts) - min(counts) <= 1


def test_a_lane_never_moves_between_releases() -> None:
    assert [lane_of("orders", partition, lanes=3) for partition in range(6)] == [2, 0, 1, 2, 0, 1]


@pytest.mark.law("E")
@given(
    st.dictionaries(st.builds(SourcePartition, names, st.just(1), st.integers(0, 5)), st.integers(0, 100), max_size=6),
    st.data(),
)
def test_law_e_a_gap_is_exactly_what_left_the_source(
    positions: dict[SourcePartition, int], data: st.DataObject
) -> None:
    earliest = {source: data.draw(st.integers(0, 100)) for source in positions}
    gaps = {gap.source: gap for gap in expired_ranges(positions, earliest)}
    for source, position in positions.items():
        lost = list(range(position, earliest[source]))
        if not lost:
            assert source not in gaps
        else:
            gap = gaps[source]
            assert (gap.first_offset, gap.last_offset, gap.missing) == (lost[0], lost[-1], len(lost)), "law E"


specs = st.builds(
    TopicSpec,
    name=st.just("t"),
    partitions=st.integers(1, 9),
    configs=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
)


@pytest.mark.law("G")
@given(specs, st.none() | specs)
def test_law_g_a_plan_applied_twice_changes_nothing(wanted: TopicSpec, actual: TopicSpec | None) -> None:
    for change in topic_changes(where="west", wanted=wanted, actual=actual):
        actual = _applied(change, actual)
    assert actual is not None
    assert topic_changes(where="west", wanted=wanted, actual=actual) == [], "law G"


def _applied(change: Change, actual: TopicSpec | None) -> TopicSpec:
    if change.action == "create":
        return TopicSpec(name=change.name, partitions=change.after["partitions"], configs=change.after["configs"])
    assert actual is not None
    if change.action == "add_partitions":
        return TopicSpec(name=actual.name, partitions=change.after, configs=actual.configs)
    return TopicSpec(name=actual.name, partitions=actual.partitions, configs={**actual.configs, **change.after})
