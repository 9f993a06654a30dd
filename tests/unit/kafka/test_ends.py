"""Ends of partitions whose leader changes while they are asked for; no broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import TopicPartition


def test_a_leader_that_does_not_know_its_end_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    place, answers = TopicPartition("orders", 0), [KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))]

    def look_up(*_: Any, **__: Any) -> Any:
        if answers:
            raise answers.pop()
        return {place: SimpleNamespace(offset=7, leader_epoch=3)}

    monkeypatch.setattr(ClusterAdmin, "_look_up", look_up)
    admin = ClusterAdmin("west", {"bootstrap.servers": "127.0.0.1:1"})
    assert admin.ends_and_epochs([place]) == {place: (7, 3)}
