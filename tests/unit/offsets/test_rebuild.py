"""A rebuild: which flows it pairs, the recorded order of a merged partition, and what another target still lacks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.offsets.merge_order import Origin, RecordedRange, in_recorded_order, ranges_to_send
from mirrorlake.offsets.rebuild import counterparts


def flow(source: str, target: str, **settings: Any) -> FlowConfig:
    return FlowConfig(**{"source": source, "target": target, "topics": "orders", **settings})


def test_flows_into_the_new_target_repeat_those_of_the_same_source() -> None:
    flows = [flow("east", "c1"), flow("west", "c1"), flow("east", "c2", lanes=4), flow("west", "c2", groups="none")]
    found = counterparts(flows, reference="c1", target="c2")
    assert {name: other.name for name, other in found.items()} == {"east->c2": "east->c1", "west->c2": "west->c1"}


@pytest.mark.parametrize(
    "other",
    [{"topics": "clicks"}, {"policy": "identity"}, {"placement": {"by": "key", "count": 3}}, {"source": "west"}],
)
def test_a_flow_that_makes_something_else_repeats_nothing(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no flow into c2"):
        counterparts(
            [flow("east", "c1"), flow(**{"source": "east", "target": "c2", **other})], reference="c1", target="c2"
        )


def test_two_counterparts_are_one_too_many() -> None:
    flows = [flow("east", "c1"), flow("east", "c1", name="again"), flow("east", "c2")]
    with pytest.raises(UsageError, match="could repeat the order of"):
        counterparts(flows, reference="c1", target="c2")


FLOWS = ("east->b", "west->b")


def stretch(flow: str, first: int, last: int, at: int, *, target: int = 0, partition: int = 0) -> RecordedRange:
    return RecordedRange(
        flow=flow,
        source=SourcePartition("orders", 1, partition),
        target=TopicPartition("all.orders", target),
        first_upstream=first,
        last_upstream=last,
        first_downstream=at,
        count=last - first + 1,
    )


@st.composite
def histories(draw: st.DrawFn) -> list[RecordedRange]:
    """Return runs of two flows with two source partitions each, as they stand in two target partitions."""
    upstream: dict[tuple[str, int], int] = {}
    ends = {0: 0, 1: 0}
    found = []
    for flow, partition, count, gap in draw(
        st.lists(
            st.tuples(st.sampled_from(FLOWS), st.integers(0, 1), st.integers(1, 5), st.integers(0, 2)), max_size=20
        )
    ):
        first = upstream.get((flow, partition), 0) + gap
        found.append(stretch(flow, first, first + count - 1, ends[partition], target=partition, partition=partition))
        upstream[flow, partition] = first + count
        ends[partition] += count + gap
    return found


def sent_of(stretches: list[RecordedRange]) -> dict[Origin, int]:
    return {(one.flow, one.source): one.last_upstream + 1 for one in stretches}


@pytest.mark.law("D", "F")
@given(histories(), st.data())
def test_law_f_what_is_left_and_what_was_sent_are_the_recorded_order(
    history: list[RecordedRange], data: st.DataObject
) -> None:
    ordered = in_recorded_order(data.draw(st.permutations(history)))
    assert sum(one.count for one in ordered) == sum(one.count for one in history)
    for target in (0, 1):
        mine = [one.first_downstream for one in ordered if one.target.partition == target]
        assert mine == sorted(mine), "law D: the order of the target partition"
    done = data.draw(st.integers(0, len(ordered)))
    assert ranges_to_send(ordered, sent_of(ordered[:done])) == ordered[done:], "a killed rebuild goes on where it ended"


@given(histories(), st.data())
def test_a_target_that_holds_another_order_is_refused(history: list[RecordedRange], data: st.DataObject) -> None:
    ordered = in_recorded_order(history)
    left_out = data.draw(st.integers(0, max(0, len(ordered) - 1)))
    sent = sent_of([one for at, one in enumerate(ordered) if at != left_out])
    if not ordered:
        return
    out = ordered[left_out]
    follows = [one for one in ordered[left_out + 1 :] if one.target == out.target]
    if any((one.flow, one.source) != (out.flow, out.source) for one in follows) and not any(
        (one.flow, one.source) == (out.flow, out.source) for one in follows
    ):
        with pytest.raises(ValueError, match="comes before it"):
            ranges_to_send(ordered, sent)


def test_half_a_stretch_that_was_sent_is_the_beginning_of_the_order() -> None:
    ordered = in_recorded_order([stretch(FLOWS[0], 0, 9, 0), stretch(FLOWS[1], 0, 9, 10)])
    half = {(FLOWS[0], SourcePartition("orders", 1, 0)): 5}
    assert ranges_to_send(ordered, half) == ordered


def test_a_source_partition_that_is_spread_by_key_has_no_order_to_repeat() -> None:
    with pytest.raises(ValueError, match="several partitions"):
        in_recorded_order([stretch(FLOWS[0], 0, 9, 0), stretch(FLOWS[0], 3, 3, 0, target=1)])
