"""Fetch the records of a source's partitions as Arrow columns, without an end and without a group (law H).

librdkafka asks for the coordinator of the group that it is named, even where it never joins: a broker that nobody ever
consumed from creates `__consumer_offsets` then, as it does for anybody's first consumer.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from operator import ne
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from mirrorlake.kafka.errors import COORDINATOR_COMES, ClientErrors, Need, client_log
from mirrorlake.model import flow
from mirrorlake.model.chunk_size import ChunkSize
from mirrorlake.model.late_times import EARLIEST_MS, LATEST_MS, too_late

log = logging.getLogger(__name__)

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
_GROUPS = {KafkaError.GROUP_AUTHORIZATION_FAILED, *COORDINATOR_COMES}
# One call takes at most so many; where there are as many, there may be more.
_AT_ONCE = 10_000
# A turn that begins with as many goes on for so long, unless nothing comes for a step.
_MANY, _GATHER_S, _STEP_S = 2_500, 0.5, 0.1
# An answer of a broker holds at most so much, of each partition, too: the largest that a fast source is asked for.
_MAX_ANSWER_BYTES = 8 << 20
# A new size costs a new consumer, and what the old one has prefetched is fetched again: 0.19 of a topic where answers began with
# 1 MiB and grew. So they begin with the largest, and after the first silence hold what 12 kB/s give in that time.
_MAX_AFTER_SILENCE_BYTES = 1 << 19
# A request that is not answered within 60 s is begun again. An answer that takes so long is asked for in a smaller size first.
_QUIET_S = 45.0
# What a record weighs before one was read.
_RECORD_BYTES = 16 << 10
# Arrow's offsets have four bytes.
_MOST_BYTES = 2**31 - 1
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
# Spark's TimestampType ids are Java's: none, create time, append time. librdkafka counts them from 0.
_JAVA_TYPES = np.array([-1, 0, 1], np.int32)


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
        self._at_end: set[flow.TopicPartition] = set()
        self._size = ChunkSize(_MAX_ANSWER_BYTES, start=_MAX_ANSWER_BYTES)
        self._record_bytes = _RECORD_BYTES
        self._open()

    def _open(self) -> None:
        """Create the consumer; it requests answers of the present size until it is closed."""
        self._answer_bytes = self._size.limit
        self._quiet_s = 0.0
        self._consumer = Consumer(
            {
                **self._errors.hearing(),
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
                # A backlog of 1 KB records comes in batches of some MB. Of a trickle a broker collects for 100 ms: an answer
                # for each few records would be 100 a second, and costs either side more than the records do.
                "fetch.wait.max.ms": "100",
                "fetch.min.bytes": str(min(262_144, self._answer_bytes)),
                "queued.min.messages": "100000",
                "queued.max.messages.kbytes": "32768",
                "fetch.message.max.bytes": str(self._answer_bytes),
                "fetch.max.bytes": str(self._answer_bytes),
                # librdkafka asks for at least as much; a record that is larger comes all the same, alone.
                "message.max.bytes": str(min(1_000_000, self._answer_bytes)),
            },
            logger=client_log,
        )
        self._consumer.assign([TopicPartition(tp.topic, tp.partition, at) for tp, at in self._positions.items()])

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def fetch(self, wait_s: float, *, at_most_s: float, most_bytes: int, most_records: int) -> Fetched:
        """Return the records that come within `wait_s`; of a backlog, which comes faster, about as much as the bounds allow.

        Raises:
            PositionGone: a partition is gone, or does not hold the next offset any more.
            UnreadableHeaders: a record is one for another client.
            NotAuthorized, ClusterError: the source refuses.
        """
        began, timeout, held, count = time.monotonic(), wait_s, 0, 0
        at_once = max(1, min(_AT_ONCE, most_records, most_bytes // self._record_bytes))
        parts: dict[flow.TopicPartition, list[pa.RecordBatch]] = {}
        read_to, epochs = dict(self._positions), dict[flow.TopicPartition, int]()
        while True:
            with _WITHOUT_GC:
                with self._errors.during("read records"):
                    messages = self._consumer.consume(at_once, timeout)
                brought = len(messages)
                for tp, rows in self._read(messages, read_to, epochs):
                    parts.setdefault(tp, []).append(rows)
                    held += rows.nbytes
                # Freed before the next call takes as much memory.
                del messages
            count, passed_s = count + brought, time.monotonic() - began
            if not brought or held >= most_bytes or count + at_once > most_records or passed_s >= at_most_s:
                break
            # Where many come, some more may be on their way: each turn has its price.
            gathers = count >= _MANY and passed_s < _GATHER_S
            if brought < at_once and not gathers:
                break
            timeout = _STEP_S if gathers else 0.0
        moved = {tp: at for tp, at in read_to.items() if at > self._positions.get(tp, 0)}
        self._positions = read_to
        self._follow_rate(held, count, time.monotonic() - began)
        return Fetched({tp: pa.Table.from_batches(several) for tp, several in parts.items()}, moved, epochs)

    def _follow_rate(self, size: int, count: int, passed_s: float) -> None:
        """Request smaller answers if one takes longer than a few seconds, and larger ones if they come faster."""
        self._quiet_s += passed_s
        if count:
            self._record_bytes = max(1, size // count)
            # A small answer may have come late because its records were written late; a large one is compressed on its way.
            if 2 * size >= self._answer_bytes:
                self._size.record_success(min(size, self._answer_bytes), seconds=self._quiet_s)
        elif self._quiet_s > _QUIET_S and not self._size.is_least:
            self._size.record_failure(at_most=_MAX_AFTER_SILENCE_BYTES)
        ratio = self._size.limit / self._answer_bytes
        if not 0.5 < ratio < 2:
            log.info("fetch.size source=%s bytes=%s after_s=%.1f", self._alias, self._size.limit, self._quiet_s)
            # A librdkafka consumer cannot change the size; an answer that is on its way is requested again.
            self._consumer.close()
            self._open()
        if count or len(self._at_end) == len(self._positions):
            self._quiet_s = 0.0

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
                    self._at_end.discard(tp)
                    rows = _columns(several, offsets, self._alias)
                    read_to[tp], epochs[tp] = int(offsets[-1]) + 1, _epoch(several[-1])
                    yield tp, rows
            elif problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                read_to[tp] = max(several[0].offset(), read_to.get(tp, 0))
                self._at_end.add(tp)
            else:
                self._judge(problem, tp)

    def _judge(self, problem: KafkaError, tp: flow.TopicPartition) -> None:
        if problem.code() in _CHANGED:
            raise PositionGone(f"{tp.topic}-{tp.partition} of {self._alias}: {problem.str()}")
        if problem.code() in _GROUPS or (problem.retriable() and not problem.fatal()):
            return
        own = self._errors.own(problem, f"read {tp.topic}-{tp.partition}", Need("READ", "TOPIC", tp.topic))
        raise own from KafkaException(problem)


class _WithoutGc:
    """Keep Python from looking for cycles as long as somebody is within; sources that drain side by side share a process.

    Thousands of messages at once have it look among them all, again and again: half of a fetch's CPU.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._was_on = gc.isenabled()
                gc.disable()
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within and self._was_on:
                gc.enable()


_WITHOUT_GC = _WithoutGc()


def _by_partition(messages: Sequence[Message]) -> Iterator[tuple[flow.TopicPartition, Sequence[Message]]]:
    """Gather what one call brought by partition, in its order; after the records, what is not a record, each on its own.

    librdkafka hands out one fetch of a partition after another: where little comes, a few records each.
    """
    if not messages:
        return
    # Methods are called by `map`: a loop in Python costs more than the fetch.
    topics = list(map(Message.topic, messages))
    partitions = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    errors: dict[int, None] = {}
    if any(map(Message.error, messages)):
        # A dictionary keeps their order, and knows them at once: of a thousand partitions a thousand ends come.
        errors = dict.fromkeys(at for at, error in enumerate(map(Message.error, messages)) if error is not None)
    differs = partitions[1:] != partitions[:-1]
    if len(set(topics)) > 1:
        differs |= np.fromiter(map(ne, topics, topics[1:]), bool, len(messages) - 1)
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


def _columns(messages: Sequence[Message], offsets: np.ndarray[Any, np.dtype[np.int64]], alias: str) -> pa.RecordBatch:
    times = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    kinds, stamps = times.reshape(-1, 2).T
    if stamps.max() > LATEST_MS or stamps.min() < EARLIEST_MS:
        row = int(np.argmax((stamps > LATEST_MS) | (stamps < EARLIEST_MS)))
        topic, partition = messages[0].topic() or "", messages[0].partition() or 0
        raise too_late(topic, partition, int(offsets[row]), int(stamps[row]), alias=alias)
    try:
        headers = list(map(Message.headers, messages))
    except UnicodeDecodeError as error:
        raise UnreadableHeaders(f"{messages[0].topic()}-{messages[0].partition()}: {error}") from error
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            # Spark reads a time that a record lacks as -1 ms.
            pa.array(stamps * 1000, pa.int64()).view(_SCHEMA.field("timestamp").type),
            pa.array(_JAVA_TYPES[kinds]),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            _binary_column(list(map(Message.value, messages))),
            _header_column(headers),
        ],
        schema=_SCHEMA,
    )


def _binary_column(values: Sequence[bytes | None]) -> pa.Array:
    """Make a column of values; joined at once, they are copied once, where Arrow's own builder grows again and again."""
    if None in values:
        return pa.array(values, pa.binary())
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=ends[1:])  # type: ignore[arg-type]
    if ends[-1] > _MOST_BYTES:
        return pa.array(values, pa.binary())
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]  # type: ignore[arg-type]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)


def _header_column(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS)
    return pa.array(
        [[{"key": key, "value": value} for key, value in each] if each else None for each in headers], _HEADERS
    )
