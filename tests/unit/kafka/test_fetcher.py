"""What one fetch makes of the messages that come: a partition's records together, each once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message

from mirrorlake.kafka import Fetcher, PositionGone
from mirrorlake.model.flow import TopicPartition

A, B, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    with Fetcher("east", {"bootstrap.servers": "127.0.0.1:9", "group.id": "none", "log_level": "0"}, {}) as made:
        yield made


def record(tp: TopicPartition, offset: int) -> Message:
    return Message(
        topic=tp.topic, partition=tp.partition, offset=offset, value=b"v", timestamp=(TIMESTAMP_CREATE_TIME, offset)
    )


def said(tp: TopicPartition, offset: int, code: int) -> Message:
    return Message(topic=tp.topic, partition=tp.partition, offset=offset, error=KafkaError(code))


def end(tp: TopicPartition, offset: int) -> Message:
    return said(tp, offset, KafkaError._PARTITION_EOF)


def read(fetcher: Fetcher, messages: list[Message], read_to: dict[TopicPartition, int]) -> dict[Any, list[int]]:
    return {tp: rows.column("offset").to_pylist() for tp, rows in fetcher._read(messages, read_to, {})}


def test_small_fetches_of_a_partition_become_one_batch(fetcher: Fetcher) -> None:
    messages = [
        record(A, 5),
        record(A, 6),
        end(A, 7),
        record(OTHER, 1),
        record(B, 0),
        record(A, 9),
        end(A, 12),
        end(B, 1),
    ]
    read_to = {A: 5, B: 0, OTHER: 1}
    assert read(fetcher, messages, read_to) == {A: [5, 6, 9], OTHER: [1], B: [0]}
    assert read_to == {A: 12, B: 1, OTHER: 2}, "control records at an end are passed"
    assert read(fetcher, [], read_to) == {}
    assert read(fetcher, [end(A, 12)], read_to) == {}


@pytest.mark.law("D", "F")
def test_law_f_a_client_that_steps_back_brings_no_record_twice(fetcher: Fetcher) -> None:
    read_to = {A: 5}
    messages = [record(A, 3), record(A, 5), record(B, 0), record(A, 6), record(A, 5), record(A, 6), record(A, 8)]
    assert read(fetcher, messages, read_to) == {A: [5, 6, 8], B: [0]}
    assert read(fetcher, [record(A, 7), record(A, 8)], read_to) == {}
    assert read_to == {A: 9, B: 1}


def test_a_position_that_is_gone_ends_the_fetch(fetcher: Fetcher) -> None:
    with pytest.raises(PositionGone, match="orders-1"):
        read(fetcher, [record(A, 1), said(B, 3, KafkaError.OFFSET_OUT_OF_RANGE)], {})
