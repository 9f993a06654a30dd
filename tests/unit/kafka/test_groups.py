"""What a broker says instead of its groups is an error that can be caught, and is waited for where it passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError

from mirrorlake.errors import ClusterError
from mirrorlake.kafka.groups import Groups


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


def test_what_does_not_pass_is_an_error_of_ours() -> None:
    """Librdkafka's own may be raised, and even `except BaseException` lets it through: the thread of a flow's duties ended."""
    with pytest.raises(ClusterError, match="east"):
        asked(answer(error=KafkaError.INVALID_CONFIG)).states()
