"""Fetch the records of a source's partitions as Arrow columns, without an end and without a group (law H).

librdkafka asks for the coordinator of the group that it is named, even where it never joins: a broker that nobody ever
consumed from creates `__consumer_offsets` then, as it does for anybody's first consumer.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from mirrorlake.kafka.errors import ClientErrors, Need, client_log
from mirrorlake.model import flow

# What a fetch finds where a topic was deleted or made again, or its log was cut: the next start looks and knows what to do.
_CHANGED = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001  confluent_kafka names librdkafka's local errors this way
    KafkaError._LOG_TRUNCATION,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
}
# Of the group that is never joined.
_GROUPS = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
}
# One call takes at most so many; where there are as many, there may be more.
_AT_ONCE = 10_000
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
# Spark's TimestampType ids are Java's; librdkafka counts from NOT_AVAILABLE = 0.
_JAVA_TYPE = {TIMESTAMP_NOT_AVAILABLE: -1, TIMESTAMP_LOG_APPEND_TIME: 1}


class PositionGone(Exception):
    """A partition is gone, or does not hold the next offset any more."""


class UnreadableHeaders(Exception):
    """The name of a header is not UTF-8: librdkafka's binding cannot read it, Java's client replaces what is not."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch brought, in offset order: `offset, timestamp, timestamp_type, key, value, headers` a partition.

    `read_to` is the next offset to read of each partition that moved, past control records at its end.
    """

    rows: dict[flow.TopicPartition, pa.Table] = field(default_factory=dict)
    read_to: dict[flow.TopicPartition, int] = field(default_factory=dict)


class Fetcher:
    """Read partitions of one cluster from given offsets on, `read_committed`; close it, or use it in a `with` block."""

    def __init__(self, alias: str, options: Mapping[str, Any], positions: Mapping[flow.TopicPartition, int]) -> None:
        self._errors = ClientErrors.of(alias, options)
        self._alias = alias
        self._positions = dict(positions)
        self._consumer = Consumer(
            {
                **options,
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
                # A backlog of 1 KB records comes in batches of some MB; 100 ms is how long an idle broker may hold an answer.
                "fetch.wait.max.ms": "100",
                "queued.min.messages": "100000",
                "queued.max.messages.kbytes": "32768",
                "fetch.message.max.bytes": "8388608",
            },
            logger=client_log,
        )
        self._consumer.assign([TopicPartition(tp.topic, tp.partition, at) for tp, at in positions.items()])

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def fetch(self, wait_s: float, *, at_most_s: float, most_bytes: int, most_records: int) -> Fetched:
        """Return the records that come within `wait_s`; of a backlog about as much as the bounds allow.

        Raises:
            PositionGone: a partition is gone, or does not hold the next offset any more.
            UnreadableHeaders: a record is one for another client.
            NotAuthorized, ClusterError: the source refuses.
        """
        began, timeout, held, count = time.monotonic(), wait_s, 0, 0
        at_once = min(_AT_ONCE, most_records)
        parts: dict[flow.TopicPartition, list[pa.RecordBatch]] = {}
        read_to = dict(self._positions)
        while True:
            with _without_gc():
                with self._errors.during("read records"):
                    messages = self._consumer.consume(at_once, timeout)
                brought = len(messages)
                for tp, rows in self._read(messages, read_to):
                    parts.setdefault(tp, []).append(rows)
                    held += rows.nbytes
                # Freed before the next call takes as much memory.
                del messages
            count, timeout = count + brought, 0.0
            is_full = held >= most_bytes or count + at_once > most_records
            if brought < at_once or is_full or time.monotonic() - began >= at_most_s:
                break
        moved = {tp: at for tp, at in read_to.items() if at > self._positions.get(tp, 0)}
        self._positions = read_to
        return Fetched({tp: pa.Table.from_batches(several) for tp, several in parts.items()}, moved)

    def _read(
        self, messages: Sequence[Message], read_to: dict[flow.TopicPartition, int]
    ) -> Iterator[tuple[flow.TopicPartition, pa.RecordBatch]]:
        """Yield the records of what one call brought, those of one partition together; moves `read_to`."""
        for tp, several in _by_partition(messages):
            problem = several[0].error()
            if problem is None:
                # librdkafka goes on where it was after an election; were it to step back, a record would be landed twice.
                if several[0].offset() < read_to.get(tp, 0):
                    several = [one for one in several if one.offset() >= read_to[tp]]
                if several:
                    read_to[tp] = several[-1].offset() + 1
                    yield tp, _columns(several)
            elif problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                read_to[tp] = max(several[0].offset(), read_to.get(tp, 0))
            else:
                self._judge(problem, tp)

    def _judge(self, problem: KafkaError, tp: flow.TopicPartition) -> None:
        if problem.code() in _CHANGED:
            raise PositionGone(f"{tp.topic}-{tp.partition} of {self._alias}: {problem.str()}")
        if problem.code() in _GROUPS or (problem.retriable() and not problem.fatal()):
            return
        own = self._errors.own(problem, f"read {tp.topic}-{tp.partition}", Need("READ", "TOPIC", tp.topic))
        raise own from KafkaException(problem)


@contextmanager
def _without_gc() -> Iterator[None]:
    # Thousands of messages at once have Python look for cycles among them all, again and again: half of a fetch's CPU.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _by_partition(messages: Sequence[Message]) -> Iterator[tuple[flow.TopicPartition, Sequence[Message]]]:
    """Cut what one call brought into runs of one partition; what is not a record is a run of its own.

    librdkafka hands out whole fetches, so runs are long.
    """
    if not messages:
        return
    # Methods are called by `map`: a loop in Python costs more than the fetch.
    topics, partitions = list(map(Message.topic, messages)), list(map(Message.partition, messages))
    errors = list(map(Message.error, messages))
    changes = [
        at
        for at in range(1, len(messages))
        if partitions[at] != partitions[at - 1]
        or topics[at] != topics[at - 1]
        or errors[at] is not None
        or errors[at - 1] is not None
    ]
    for start, end in pairwise([0, *changes, len(messages)]):
        yield flow.TopicPartition(topics[start] or "", partitions[start]), messages[start:end]


def _columns(messages: Sequence[Message]) -> pa.RecordBatch:
    kinds, stamps = zip(*map(Message.timestamp, messages), strict=True)
    try:
        headers = list(map(Message.headers, messages))
    except UnicodeDecodeError as error:
        raise UnreadableHeaders(f"{messages[0].topic()}-{messages[0].partition()}: {error}") from error
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(map(Message.offset, messages)), pa.int64()),
            # Spark reads a time that a record lacks as -1 ms.
            pc.multiply(pa.array(stamps, pa.int64()), 1000).cast(_SCHEMA.field("timestamp").type),
            pa.array([_JAVA_TYPE.get(kind, 0) for kind in kinds], pa.int32()),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _header_column(headers),
        ],
        schema=_SCHEMA,
    )


def _header_column(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS)
    return pa.array(
        [[{"key": key, "value": value} for key, value in each] if each else None for each in headers], _HEADERS
    )
