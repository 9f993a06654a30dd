"""Landing groups: the partitions of a source are shared between tasks, each of them once."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.lake import RelayClaim
from mirrorlake.landing.live_driver import split_task
from mirrorlake.landing.live_task import LandTaskSpec
from mirrorlake.model.flow import SourcePartition, TopicPartition

TOPICS = [f"orders-{number}" for number in range(25)]


def task_of(partitions: int, **parts: Any) -> LandTaskSpec:
    start = {SourcePartition(name, 1, partition): 7 for name in TOPICS for partition in range(partitions)}
    seat, run_marker = RelayClaim("east", "/relay", 3, "me", as_of=5), lambda: True
    return LandTaskSpec(
        **{
            "relay_claim": seat,
            "schema": None,
            "options": {},
            "start": start,
            "topic_ids": {},
            "leader_epochs": {},
            "pace_s": 0.0,
        }
        | parts,
        run_marker=run_marker,  # type: ignore[arg-type]
    )


@pytest.mark.law("E", "F")
def test_law_e_each_partition_is_in_one_group_and_each_group_knows_them_all() -> None:
    waiting, elsewhere = TopicPartition("orders-0", 99), SourcePartition("left", 1, 0)
    ends = {TopicPartition(name, partition): 9 for name in TOPICS for partition in range(8)}
    whole = task_of(8, ends=ends, read_to={elsewhere: 4}, leaderless=frozenset({waiting}))
    shares = split_task(whole, 3)
    assert [share.relay_claim for share in shares] == [
        RelayClaim("east", "/relay", 3, "me", group, 5) for group in range(3)
    ]
    assert {share.groups for share in shares} == {3}
    assert sorted(source for share in shares for source in share.start) == sorted(whole.start)
    assert all(60 <= len(share.start) <= 75 for share in shares), [len(share.start) for share in shares]
    for share in shares:
        assert share.ends is not None
        assert share.ends.keys() == {TopicPartition(one.topic, one.partition) for one in share.start}
        assert share.read_to == {**whole.start, elsewhere: 4}
    assert [share.leaderless for share in shares] == [{waiting}, frozenset(), frozenset()]


def test_a_group_without_a_partition_is_none() -> None:
    one = task_of(1, start={SourcePartition("orders", 1, 0): 7})
    assert split_task(one, 4) == [one] == split_task(one, 1), "one task has the application id of the source alone"
    pair = task_of(1, start={SourcePartition("orders", 1, partition): 7 for partition in (0, 1)})
    assert [(share.relay_claim.group, share.groups) for share in split_task(pair, 8)] == [(0, 2), (1, 2)]
