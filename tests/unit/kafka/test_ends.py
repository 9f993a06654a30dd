"""Ends of partitions whose leader changes while they are asked for; no broker."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import TopicPartition

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


def test_a_leader_that_does_not_know_its_end_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_that_hears(monkeypatch, KafkaError.OFFSET_NOT_AVAILABLE)
    assert admin.high_watermarks_and_epochs(iter([PLACE])) == {PLACE: (7, 3)}


@pytest.mark.parametrize("asked", ["log_start_offsets", "last_stable_offsets", "high_watermarks"])
def test_a_broker_that_does_not_lead_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    admin = admin_that_hears(
        monkeypatch,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    )
    assert getattr(admin, asked)(iter([PLACE])) == {PLACE: 7}


def test_a_partition_that_nobody_leads_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_that_hears(monkeypatch, KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(ClusterError, match="LEADER_NOT_AVAILABLE"):
        admin.last_stable_offsets([PLACE])
