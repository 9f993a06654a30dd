"""The tables `metadata` and `removed` in a folder: what is recorded is read again, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.kafka import TopicState
from mirrorlake.lake import Lake, Observations, SourceTopics, newest_topics, removed_from, write_removed
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import LogTruncation
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import EXPIRED, Removed

ALL = "SELECT * FROM {metadata}"
ADMIN: Any = SimpleNamespace(configs=lambda names: {name: {"cleanup.policy": "compact"} for name in names})


@pytest.fixture
def now() -> Callable[[], datetime]:
    seconds = count()
    return lambda: datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(seconds=next(seconds))


def topic(topic_id: str, partitions: int = 2) -> dict[str, TopicState]:
    return {"t": TopicState(name="t", topic_id=topic_id, partitions=partitions)}


def test_only_changes_of_a_target_are_recorded(lake: Lake, now: Callable[[], datetime]) -> None:
    seen = Observations(lake, now=now)
    looks = [topic("1"), topic("1"), {}, {}, topic("2"), topic("2", 3)]
    rows = []
    for states in looks:
        seen.record_topics("west", states, {}, scope=["t"])
        rows.append(len(lake.query(ALL)))
    assert rows == [1, 1, 2, 2, 3, 4]
    newest = newest_topics(lake, "west", "target")["t"]
    assert (newest.generation, newest.topic_id, newest.partitions, newest.present) == (2, "2", 3, True)
    assert newest_topics(lake, "west", "source") == {}


def test_lives_of_a_source_cuts_and_leader_epochs_are_read_again(lake: Lake, now: Callable[[], datetime]) -> None:
    topics = SourceTopics(lake, "east")
    topics.observe(topic("1"), ADMIN, at=now(), read_leader_epochs=lambda fresh: dict.fromkeys(fresh, 4))
    topics.record_truncations({"t": [LogTruncation(partition=0, generation=2, first_offset=5)]}, {"t": {0: 6}}, now())
    again = SourceTopics(lake, "east")
    assert again.load() == topics.known
    again.compare({**topic("1", 3), "new": TopicState(name="new", topic_id="9", partitions=1)}, {}, now())
    held = SourceTopics(lake, "east").load()
    assert held.keys() == {"t"}, "only landing begins a generation"
    assert (held["t"].partitions, held["t"].leader_epochs, held["t"].generation_of(0)) == (3, {0: 6, 1: 4}, 2)
    assert again.recreated(topic("2")) == ["t"]
    again.observe(topic("2", 1), ADMIN, at=now())
    assert (again.known["t"].generation, again.known["t"].truncations, again.known["t"].leader_epochs) == (3, (), {})


AT = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
ORDERS = SourcePartition("orders", 1, 0)


def act(removal: str, *ranges: tuple[int, int], **more: Any) -> Removed:
    return Removed(removal=removal, source=ORDERS, ranges=Ranges(ranges), **more)


EXPIRY = act("a", (0, 100), kind=EXPIRED, records=90, removed_at=AT, reason="age: 1d")


def test_what_two_upkeeps_announced_at_the_same_moment_left_once(lake: Lake) -> None:
    wider = replace(EXPIRY, removal="d", ranges=Ranges([(0, 110)]), records=100, relay_version=8)
    write_removed(lake, "east", [EXPIRY, wider])
    write_removed(lake, "east", [replace(EXPIRY, relay_version=9)])
    assert removed_from(lake, "east") == [wider]
