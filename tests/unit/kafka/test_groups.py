"""What a broker says instead of its groups is an error that can be caught, and is waited for where it passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin, Groups


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
