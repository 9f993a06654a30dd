"""What a live lander asks of its source after a fetch: topics always, leaders where the records do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.kafka import Fetched, FetchedRows, TopicState
from mirrorlake.landing.live_task import LandTaskSpec, _find_change
from mirrorlake.model.flow import SourcePartition, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TASK = cast("LandTaskSpec", SimpleNamespace(topic_ids={"orders": "one"}, leader_epochs={A: 5, B: 5}))


class Source:
    """A cluster whose partitions have leaders of these epochs now; keeps what it was asked for."""

    def __init__(self, epochs: dict[TopicPartition, int], *, topic_id: str = "one") -> None:
        self._epochs = epochs
        self._topic_id = topic_id
        self.asked: list[TopicPartition] = []

    def describe(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(topic_id=self._topic_id) for name in names}

    def high_watermarks_and_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += partitions
        return {tp: (100, self._epochs[tp]) for tp in self.asked}


def changed(source: Source, epochs: dict[TopicPartition, int]) -> str:
    return _find_change(TASK, cast("Any", source), Fetched(FetchedRows(), dict.fromkeys([A, B], 9), epochs))


@pytest.mark.law("E")
@pytest.mark.parametrize("written", [3, 5])
def test_law_e_records_of_known_epochs_prove_that_nothing_before_them_was_cut(written: int) -> None:
    source = Source({A: 5, B: 6})
    assert changed(source, {A: 5, B: written}) == ""
    assert source.asked == [], "an election without a record since is the next fetch's business"


@pytest.mark.law("E")
@pytest.mark.parametrize("epochs", [{A: 5, B: 6}, {A: 5, B: -1}, {A: 5}])
def test_law_e_leaders_are_asked_for_where_records_do_not_tell(epochs: dict[TopicPartition, int]) -> None:
    source = Source({A: 5, B: 6})
    assert changed(source, epochs) == "orders-1 has another leader"
    assert source.asked == [B]
    assert changed(Source({A: 5, B: 5}), {A: 5}) == "", "control records only, under the leader that is known"
    assert changed(Source({A: 5, B: 5}, topic_id="two"), {A: 5, B: 5}) == "topic orders was deleted or created again"


@pytest.mark.parametrize(
    ("ends", "leaderless", "waits"), [({A: 5, B: 5}, (1,), True), ({A: 5, B: 5}, (), False), (None, (1,), False)]
)
def test_a_drain_waits_for_a_partition_that_lost_its_leader(
    ends: dict[TopicPartition, int] | None, leaderless: tuple[int, ...], waits: bool
) -> None:
    task: Any = SimpleNamespace(start={SourcePartition("orders", 1, number): 0 for number in range(2)}, ends=ends)
    states = {"orders": TopicState(name="orders", topic_id="one", partitions=2, leaderless=frozenset(leaderless))}
    assert LandTaskSpec.waits_for_leader(task, states) is waits
