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
from itertools import compress, pairwise
from operator import ne
from typing import Any

import numpy as np
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

    `read_to` is the next offset to read of each partition that moved, past control records at its end. `epochs` are the leader
    epochs in which the last record of each was written: they only grow along a log; -1 where its broker wrote none.
    """

    rows: dict[flow.TopicPartition, pa.Table] = field(default_factory=dict)
    read_to: dict[flow.TopicPartition, int] = field(default_factory=dict)
    epochs: dict[flow.TopicPartition, int] = field(default_factory=dict)


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
                # A backlog of 1 KB records comes in batches of some MB. Of a trickle a broker collects for 100 ms: an answer
                # for each few records would be 100 a second, and costs either side more than the records do.
                "fetch.wait.max.ms": "100",
                "fetch.min.bytes": "262144",
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
        read_to, epochs = dict(self._positions), dict[flow.TopicPartition, int]()
        while True:
            with _without_gc():
                with self._errors.during("read records"):
                    messages = self._consumer.consume(at_once, timeout)
                brought = len(messages)
                for tp, rows in self._read(messages, read_to, epochs):
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
        return Fetched({tp: pa.Table.from_batches(several) for tp, several in parts.items()}, moved, epochs)

    def _read(
        self,
        messages: Sequence[Message],
        read_to: dict[flow.TopicPartition, int],
        epochs: dict[flow.TopicPartition, int],
    ) -> Iterator[tuple[flow.TopicPartition, pa.RecordBatch]]:
        """Yield the records of what one call brought, those of one partition together; moves `read_to` and `epochs`."""
        for tp, several in _by_partition(messages):
            problem = several[0].error()
            if problem is None:
                offsets = np.fromiter(map(Message.offset, several), np.int64, len(several))
                # librdkafka goes on where it was after an election; were it to step back, a record would be landed twice.
                reached = np.maximum.accumulate(np.concatenate(([read_to.get(tp, 0) - 1], offsets)))[:-1]
                if not (is_new := offsets > reached).all():
                    several, offsets = list(compress(several, is_new)), offsets[is_new]
                if several:
                    read_to[tp], epochs[tp] = int(offsets[-1]) + 1, _epoch(several[-1])
                    yield tp, _columns(several, offsets)
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
    """Gather what one call brought by partition, in its order; after the records, what is not a record, each on its own.

    librdkafka hands out one fetch of a partition after another: where little comes, a few records each.
    """
    if not messages:
        return
    # Methods are called by `map`: a loop in Python costs more than the fetch.
    topics = list(map(Message.topic, messages))
    partitions = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    # A dictionary keeps their order, and knows them at once: of a thousand partitions a thousand ends come.
    errors = dict.fromkeys(at for at, error in enumerate(map(Message.error, messages)) if error is not None)
    differs = (partitions[1:] != partitions[:-1]) | np.fromiter(map(ne, topics, topics[1:]), bool, len(messages) - 1)
    cuts = {*(np.flatnonzero(differs) + 1).tolist(), *errors, *(at + 1 for at in errors), 0, len(messages)}
    records: dict[flow.TopicPartition, list[Message]] = {}
    for start, end in pairwise(sorted(cuts)):
        if start not in errors:
            tp = flow.TopicPartition(topics[start] or "", int(partitions[start]))
            records.setdefault(tp, []).extend(messages[start:end])
    yield from records.items()
    for at in errors:
        yield flow.TopicPartition(topics[at] or "", int(partitions[at])), messages[at : at + 1]


def _epoch(message: Message) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def _columns(messages: Sequence[Message], offsets: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    kinds, stamps = zip(*map(Message.timestamp, messages), strict=True)
    try:
        headers = list(map(Message.headers, messages))
    except UnicodeDecodeError as error:
        raise UnreadableHeaders(f"{messages[0].topic()}-{messages[0].partition()}: {error}") from error
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
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
