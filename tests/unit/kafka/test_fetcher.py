"""What one fetch makes of the messages that come: a partition's records together, each once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    Message,
)

from mirrorlake.kafka import FetchedRows, Fetcher, PositionGone
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.late_times import EARLIER_US, LATER_US

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


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
    block = fetcher._read(messages, read_to, {})
    rows = FetchedRows([] if block is None else [block])
    return {tp: table.column("offset").to_pylist() for tp, table in rows.items()}


@pytest.mark.law("D", "F")
def test_law_f_a_client_that_steps_back_brings_no_record_twice(fetcher: Fetcher) -> None:
    read_to = {A: 5}
    messages = [record(A, 3), record(A, 5), record(B, 0), record(A, 6), record(A, 5), record(A, 6), record(A, 8)]
    assert read(fetcher, messages, read_to) == {A: [5, 6, 8], B: [0]}
    assert read(fetcher, [record(A, 7), record(A, 8), end(A, 12)], read_to) == {}
    assert read_to == {A: 12, B: 1}, "control records at an end are passed"


def test_a_position_that_is_gone_ends_the_fetch(fetcher: Fetcher) -> None:
    with pytest.raises(PositionGone, match="orders-1"):
        read(fetcher, [record(A, 1), said(B, 3, KafkaError.OFFSET_OUT_OF_RANGE)], {})


class Link:
    """A source behind a link of a rate: an answer comes as a whole, or is asked for again after 60 s."""

    def __init__(self, rate: float) -> None:
        self.rate, self.now, self.answers = rate, 0.0, list[int]()
        self._asked_at, self._next = 0.0, 0

    def open(self, fetcher: Fetcher) -> None:
        fetcher._consumer, self._asked_at = self, self.now  # type: ignore[assignment]
        fetcher._answer_bytes, fetcher._quiet_s = fetcher._size.limit, 0.0
        self.answers.append(fetcher._answer_bytes)

    def consume(self, _: int, timeout: float) -> list[Message]:
        self.now += timeout
        due_s = self.answers[-1] / self.rate
        if due_s > 60 and self.now - self._asked_at > 60:
            self._asked_at = self.now
        if due_s > 60 or self.now - self._asked_at < due_s:
            return []
        self._asked_at, first = self.now, self._next
        self._next += max(1, self.answers[-1] // 1000)
        value, time = b"v" * 1000, (TIMESTAMP_CREATE_TIME, 1)
        return [
            Message(topic=A.topic, partition=0, offset=n, value=value, timestamp=time) for n in range(first, self._next)
        ]

    def close(self) -> None:
        pass


@pytest.mark.law("F")
@pytest.mark.parametrize("rate", [3_000, 50_000, 400_000, 100_000_000])
def test_law_f_answers_come_to_take_seconds_whatever_the_rate_of_the_source(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(rate)
    monkeypatch.setattr(Fetcher, "_open", lambda self: link.open(self))
    monkeypatch.setattr("mirrorlake.kafka.fetcher.time", SimpleNamespace(monotonic=lambda: link.now))
    fetcher = Fetcher("east", {"bootstrap.servers": "127.0.0.1:9"}, {A: 0})
    landed: list[float] = []
    while link.now < 400 and len(landed) < 20:
        if fetcher.fetch(0.25, max_s=2.0, max_bytes=1 << 20, max_records=100_000).rows:
            landed.append(link.now)
    assert landed, "law F: an answer that outlasts its time-out is asked for again for ever"
    assert landed[0] < 200
    assert link.answers[-1] == 8 << 20 or 1 < link.answers[-1] / rate < 7
    assert len(link.answers) < 9, "a new consumer each time costs connections"


@pytest.mark.law("C")
@pytest.mark.parametrize("values", [[b"v", b"", b"long" * 99], [b"v", None, b""], [b"", b"", b""]])
def test_law_c_columns_hold_what_came(fetcher: Fetcher, values: list[bytes | None]) -> None:
    kinds = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE)
    times, keys = (1_700_000_000_123, 0, -1), (b"k", None, b"")
    headers = [[("h", b"1"), ("h", None)], None, [("e", b"")]]
    messages = [
        Message(topic="orders", partition=0, offset=n, key=key, value=value, headers=each, timestamp=(kind, time))
        for n, (key, value, each, kind, time) in enumerate(zip(keys, values, headers, kinds, times, strict=True))
    ]
    block = fetcher._read(messages, {}, {})
    assert block is not None
    rows, epoch = block.records, datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert rows.column("key").to_pylist() == list(keys)
    assert rows.column("value").to_pylist() == values
    assert rows.column("timestamp").to_pylist() == [epoch + timedelta(milliseconds=time) for time in times]
    assert rows.column("timestamp_type").to_pylist() == [0, 1, -1], "Java's numbers"
    assert [each and [tuple(one.values()) for one in each] for each in rows.column("headers").to_pylist()] == headers


@pytest.mark.law("C")
@pytest.mark.parametrize(
    ("stamp", "mark"),
    [
        (1_764_000_000_000_000, LATER_US),
        (2**63 - 1, LATER_US),
        (-62_135_596_800_001, EARLIER_US),
        (-(2**63), EARLIER_US),
        (253_402_300_799_999, 253_402_300_799_999_000),
    ],
)
def test_law_c_a_time_that_the_relay_cannot_hold_becomes_a_mark_that_no_record_has(
    fetcher: Fetcher, stamp: int, mark: int
) -> None:
    late = Message(topic="orders", partition=1, offset=7, value=b"v", timestamp=(TIMESTAMP_CREATE_TIME, stamp))
    block = fetcher._read([record(B, 6), late, record(B, 8)], {B: 6}, {})
    assert block is not None
    assert block.records["timestamp"].cast(pa.int64()).to_pylist()[1] == mark
    assert mark % 1000 or mark == stamp * 1000


@pytest.mark.law("C", "D")
def test_the_rows_of_several_calls_are_one_table_sorted_by_partition(fetcher: Fetcher) -> None:
    other = TopicPartition("clicks", 1 << 20)
    calls = [[record(B, 0), record(other, 4), record(A, 0), record(B, 1)], [end(B, 2), record(A, 1), record(A, 2)]]
    read_to: dict[TopicPartition, int] = {}
    blocks = [block for messages in calls if (block := fetcher._read(messages, read_to, {})) is not None]
    for these, counts, offsets in ((blocks[:1], [1, 1, 2], [4, 0, 0, 1]), (blocks, [1, 3, 2], [4, 0, 1, 2, 0, 1])):
        rows = FetchedRows(these)
        partitions, found, table = rows.concatenate()
        assert (partitions, found, table.column("offset").to_pylist()) == ([other, A, B], counts, offsets)
        assert pa.concat_tables([rows[tp] for tp in partitions]).equals(table)
        assert (rows.count, len(rows)) == (len(offsets), 3)
