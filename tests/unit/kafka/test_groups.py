"""Answers of brokers that are getting ready are asked for again, and errors can be caught."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin, Groups
from mirrorlake.kafka.errors import Need, need_of_selection
from mirrorlake.model.flow import TopicPartition


def asked(*answers: SimpleNamespace) -> Groups:
    groups, left = Groups("east", {"bootstrap.servers": "127.0.0.1:9"}), list(answers)
    client = SimpleNamespace(
        list_topics=lambda **_: None,
        list_consumer_groups=lambda **_: SimpleNamespace(result=lambda: left.pop(0)),
    )
    groups._client = client  # type: ignore[assignment]
    return groups


def answer(*valid: Any, error: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(valid=valid, errors=[] if error is None else [KafkaError(error)])


def test_a_coordinator_that_loads_is_asked_again() -> None:
    there = SimpleNamespace(group_id="readers", state=ConsumerGroupState.EMPTY)
    groups = asked(answer(error=KafkaError.COORDINATOR_LOAD_IN_PROGRESS), answer(there))
    assert groups.states() == {"readers": "empty"}


def test_members_are_counted_once_the_coordinator_has_loaded() -> None:
    def list_groups(*_: object, **__: object) -> list[SimpleNamespace]:
        if not loads:
            return [SimpleNamespace(members=["a", "b"])]
        raise KafkaException(KafkaError(loads.pop()))

    admin, loads = ClusterAdmin("central", {"bootstrap.servers": "127.0.0.1:9"}), [KafkaError.NOT_COORDINATOR]
    loads.append(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    admin._client = SimpleNamespace(list_groups=list_groups)  # type: ignore[assignment]
    assert admin.members("connect") == 2
    loads.append(KafkaError.INVALID_CONFIG)
    with pytest.raises(ClusterError, match="describe group connect"):
        admin.members("connect")


def test_what_does_not_pass_is_an_error_of_ours() -> None:
    """Librdkafka's own may be raised, and even `except BaseException` lets it through: the thread of a flow's duties ended."""
    with pytest.raises(ClusterError, match="east"):
        asked(answer(error=KafkaError.INVALID_CONFIG)).states()


PLACE = TopicPartition("orders", 0)


def admin_that_hears(monkeypatch: pytest.MonkeyPatch, *codes: int) -> ClusterAdmin:
    """Return an administrator whose broker refuses with these codes, one a question, and answers then."""
    refused = list(codes)

    def look_up(_: ClusterAdmin, partitions: Iterable[TopicPartition], *__: Any) -> Any:
        # What was asked for with the first question has to be there for the others.
        wanted = list(partitions)
        if refused:
            raise KafkaException(KafkaError(refused.pop(0)))
        return {place: SimpleNamespace(offset=7, leader_epoch=3) for place in wanted}

    monkeypatch.setattr(ClusterAdmin, "_list_offsets", look_up)
    return ClusterAdmin("west", {"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    "asked", ["log_start_offsets", "last_stable_offsets", "high_watermarks", "high_watermarks_and_epochs"]
)
def test_a_broker_that_does_not_lead_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    admin = admin_that_hears(
        monkeypatch,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    )
    assert getattr(admin, asked)(iter([PLACE])) == {PLACE: (7, 3) if "epochs" in asked else 7}


def test_a_partition_that_nobody_leads_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_that_hears(monkeypatch, KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(ClusterError, match="LEADER_NOT_AVAILABLE"):
        admin.last_stable_offsets([PLACE])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.text(min_size=1))
def test_no_name_leaves_its_word(principal: str, name: str) -> None:
    line = Need("READ", "TOPIC", name).command(servers="a:1", principal=f"User:{principal}")
    assert shlex.split(line)[-1] == name
    assert f"User:{principal}" in shlex.split(line)


@pytest.mark.parametrize(
    ("expression", "covered"),
    [("a", "a"), ("a.*", "a9"), ("b.c", "b.c"), ("b.*c", "bxc"), ("[xy]z", "yz"), (".*", "q")],
)
def test_every_topic_that_is_meant_is_covered(expression: str, covered: str) -> None:
    need, name = need_of_selection("TOPIC", expression)
    for one in (covered, name):
        assert need.name in ("*", one) or (need.pattern == "PREFIXED" and one.startswith(need.name))
