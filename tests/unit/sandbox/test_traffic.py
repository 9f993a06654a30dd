"""What sample traffic does while a broker that has just started gets ready."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.model.flow import TopicPartition
from mirrorlake.sandbox import traffic


class Coming:
    """Stands for a consumer whose coordinator loads at first."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.committed: list[Any] = []
        self.closed = False

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert not asynchronous
        if self.answers:
            raise KafkaException(KafkaError(self.answers.pop(0)))
        self.committed = [(one.topic, one.partition, one.offset) for one in offsets]

    def close(self) -> None:
        self.closed = True


def read_half(consumer: Coming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "Consumer", lambda _: consumer)
    traffic._read_half("127.0.0.1:1", {TopicPartition("orders", 1): 10})


def test_a_coordinator_that_loads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Coming(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    read_half(consumer, monkeypatch)
    assert consumer.committed == [("orders", 1, 5)]
    assert consumer.closed


def test_any_other_refusal_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Coming(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        read_half(consumer, monkeypatch)
    assert consumer.closed
