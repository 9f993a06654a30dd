"""A lane knows how far it has filled its remote topics (law F)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import RemoteTopicLost
from mirrorlake.kafka import TopicState, remotes
from mirrorlake.kafka.lane import LaneSpec
from mirrorlake.kafka.lane.sent_ends import SentEnds
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import Claim
from mirrorlake.model.remotes import Remote
from tests.builders import ledger_record, run

ORDERS = Remote("east.orders", "1")
PLACE = TopicPartition("east.orders", 0)


def task(**more: Any) -> LaneSpec:
    return LaneSpec(claim=Claim(flow="f", lanes=1), target="west", remotes={"orders": ORDERS}, **more)


@pytest.fixture(autouse=True)
def _soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "_RETRY_TIMEOUT_S", 0.02)


def target(end: int | None, *, topic_id: str = "1", leaderless: frozenset[int] = frozenset(), later: Any = None) -> Any:
    """Answer as a cluster whose logs end there, None where no leader tells it; `later` answers over new connections."""

    def ends(places: Any) -> Any:
        assert not {place.partition for place in places} & leaderless, "who asks for it waits for a time-out"
        return {} if end is None else dict.fromkeys(places, end)

    made = SimpleNamespace(
        describe=lambda names: {
            name: TopicState(name=name, topic_id=topic_id, partitions=1, leaderless=leaderless) for name in names
        },
        topic_metadata=SimpleNamespace(high_watermarks=ends),
    )
    made.reconnect = lambda: later or made
    return made


@pytest.mark.law("F")
def test_law_f_a_log_that_ends_before_what_was_sent_is_refused() -> None:
    ends = SentEnds(task(ends={PLACE: 20}))
    ends.record(ledger_record(runs=(run(0, 9, 5),), remotes={"orders": ORDERS}))
    ends.require_not_truncated(target(20))
    with pytest.raises(RemoteTopicLost, match=r"partition 0 ends at 19 and had records up to 20") as refused:
        ends.require_not_truncated(target(19))
    assert (refused.value.cut, refused.value.facts["topic"]) == ("cut 0@19..20 of 1", "east.orders")
    ends.record(ledger_record(runs=(run(10, 19, 25),), remotes={"orders": ORDERS}))
    with pytest.raises(RemoteTopicLost, match="had records up to 35"):
        ends.require_not_truncated(target(34))
    ends.require_not_truncated(target(0, topic_id="2"))


@pytest.mark.law("F")
def test_law_f_what_was_written_stands_after_what_was_sent() -> None:
    ends = SentEnds(task(ends={PLACE: 20}))
    ends.require_after([run(10, 19, 20)])
    with pytest.raises(RemoteTopicLost, match=r"partition 0 ends at 0 and had records up to 20"):
        ends.require_after([run(10, 19, 0)])


@pytest.mark.law("F")
def test_law_f_ends_of_an_earlier_topic_do_not_count() -> None:
    ends = SentEnds(task())
    ends.record(ledger_record(runs=(run(0, 9, 50),), remotes={"orders": Remote("east.orders", "0")}))
    ends.require_after([run(10, 19, 0)])
    ends.require_not_truncated(target(0))


@pytest.mark.law("F")
def test_law_f_a_leader_that_was_replaced_unheard_holds_no_topic() -> None:
    ends = SentEnds(task(ends={PLACE: 20}))
    ends.require_not_truncated(target(12, later=target(20)))


@pytest.mark.law("F")
def test_law_f_a_partition_that_nobody_leads_keeps_no_lane_from_starting() -> None:
    ends = SentEnds(task(ends={PLACE: 20}))
    ends.require_not_truncated(target(None))
    ends.require_not_truncated(target(12, leaderless=frozenset({0})))
    with pytest.raises(RemoteTopicLost):
        ends.require_after([run(10, 19, 12)])
