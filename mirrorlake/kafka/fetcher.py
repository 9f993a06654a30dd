"""Fetch the records of a source's partitions as Arrow columns, without end and without a group (law H).

librdkafka requests the coordinator of its configured group even if it never joins. On a broker without any consumer so far,
that creates `__consumer_offsets`, as any first consumer does.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from mirrorlake.kafka.errors import COORDINATOR_MOVING, ClientErrors, Need, client_log
from mirrorlake.kafka.fetched_rows import Block, FetchedRows, Sorted, make_block, sort_messages
from mirrorlake.model import flow
from mirrorlake.model.chunk_size import ChunkSize

log = logging.getLogger(__name__)

# A fetch's errors if a topic was deleted or created again, or its log was truncated: the next start handles all of them.
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
# Errors about the group, which is never joined.
_GROUPS = {KafkaError.GROUP_AUTHORIZATION_FAILED, *COORDINATOR_MOVING}
# The most messages of one call; a full call may leave more of them.
_BATCH_SIZE = 10_000
# A fetch that begins with _MANY records gathers for _GATHER_S, or until nothing arrives for _STEP_S.
_MANY, _GATHER_S, _STEP_S = 2_500, 0.5, 0.1
# The largest answer of a broker, and of each partition in it.
_MAX_ANSWER_BYTES = 8 << 20
# A new size costs a new consumer, and what the old one has prefetched is fetched again: 0.19 of a topic where answers began with
# 1 MiB and grew. So they begin with the largest, and after the first silence hold what 12 kB/s give in that time.
_MAX_AFTER_SILENCE_BYTES = 1 << 19
# librdkafka names every partition in each request. Of few partitions a broker answers with the first record, which costs a task
# 0.015 cores at 1 000 records/s and saves it 25 ms; of more it collects a trickle, the longer the more partitions there are.
_FEW_PARTITIONS, _COLLECTED_BYTES = 50, 262_144
_COLLECT_MS, _MAX_WAIT_MS = 50, 500
# librdkafka repeats a request after 60 s without an answer. Before that, a smaller answer is requested.
_QUIET_S = 45.0
# The assumed size of a record before the first one.
_RECORD_BYTES = 16 << 10


class PositionGone(Exception):
    """A partition is gone, or does not hold the next offset any more."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of one fetch, in offset order: `offset, timestamp, timestamp_type, key, value, headers` per partition.

    `read_to` is past control records at a partition's end. `epochs` holds the leader epoch of the last record, -1 if its broker
    wrote none; epochs only grow along a log.
    """

    rows: FetchedRows = field(default_factory=FetchedRows)
    read_to: dict[flow.TopicPartition, int] = field(default_factory=dict)
    epochs: dict[flow.TopicPartition, int] = field(default_factory=dict)


class Fetcher:
    """Read partitions of one cluster from given offsets on, `read_committed`; close it, or use it in a `with` block."""

    def __init__(self, alias: str, options: Mapping[str, Any], positions: Mapping[flow.TopicPartition, int]) -> None:
        self._errors = ClientErrors.from_options(alias, options)
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
                **self._errors.with_error_callback(),
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
                **_answer_options(len(self._positions), self._answer_bytes),
                "queued.min.messages": "100000",
                "queued.max.messages.kbytes": "32768",
                "fetch.message.max.bytes": str(self._answer_bytes),
                "fetch.max.bytes": str(self._answer_bytes),
                # librdkafka requests at least this much; a larger record still arrives, alone.
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
        self._consumer.close()

    def fetch(self, gather_s: float, *, max_s: float, max_bytes: int, max_records: int, wait_s: float = 0.0) -> Fetched:
        """Return the records that arrive within `gather_s`, or of a backlog about as much as the bounds allow.

        If none has arrived by then, a broker's first answer within `wait_s` is returned at once.

        Raises:
            PositionGone: a partition is gone, or does not hold the next offset any more.
            UnreadableHeaders: only Java's client can read a record's headers.
            NotAuthorized, ClusterError: the source refuses.
        """
        began, timeout, size, count = time.monotonic(), gather_s, 0, 0
        batch_size = max(1, min(_BATCH_SIZE, max_records, max_bytes // self._record_bytes))
        blocks: list[Block] = []
        read_to, epochs = dict[flow.TopicPartition, int](), dict[flow.TopicPartition, int]()
        while True:
            with _WITHOUT_GC:
                with self._errors.translating("read records"):
                    messages = self._consumer.consume(batch_size, timeout)
                    if wait_s and not messages and not blocks and (messages := self._consumer.consume(1, wait_s)):
                        messages += self._consumer.consume(batch_size - 1, 0.0) if batch_size > 1 else []
                brought = len(messages)
                if (block := self._read(messages, read_to, epochs)) is not None:
                    blocks.append(block)
                    size += block.records.nbytes
                # Freed before the next call takes as much memory.
                del messages
            count, passed_s = count + brought, time.monotonic() - began
            if not brought or size >= max_bytes or count + batch_size > max_records or passed_s >= max_s:
                break
            # If many arrive, more may follow soon: each turn has a fixed cost.
            gathers = count >= _MANY and passed_s < _GATHER_S
            if brought < batch_size and not gathers:
                break
            timeout = _STEP_S if gathers else 0.0
        self._positions.update(read_to)
        self._follow_rate(size, count, time.monotonic() - began)
        return Fetched(FetchedRows(blocks), read_to, epochs)

    def _follow_rate(self, size: int, count: int, passed_s: float) -> None:
        """Request smaller answers if one takes longer than a few seconds, and larger ones if they come faster."""
        self._quiet_s += passed_s
        if count:
            self._record_bytes = max(1, size // count)
            # A small answer may have come late because its records were written late; a large one is compressed on its way.
            if 2 * size >= self._answer_bytes:
                self._size.record_success(min(size, self._answer_bytes), seconds=self._quiet_s)
        elif self._quiet_s > _QUIET_S and not self._size.is_minimal:
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
    ) -> Block | None:
        found, problems = sort_messages(messages)
        found, offsets = self._drop_repeated(found, read_to)
        block = make_block(found, offsets, self._alias) if found.messages else None
        for tp, end in zip(found.partitions, found.bounds[1:].tolist(), strict=True):
            read_to[tp], epochs[tp] = int(offsets[end - 1]) + 1, _epoch(found.messages[end - 1])
        self._at_end.difference_update(found.partitions)
        for problem, message in problems:
            tp = flow.TopicPartition(message.topic() or "", message.partition() or 0)
            if problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._at_end.add(tp)
                if message.offset() > self._next(tp, read_to):
                    read_to[tp] = message.offset()
            else:
                self._raise_problem(problem, tp)
        return block

    def _drop_repeated(
        self, found: Sorted, read_to: Mapping[flow.TopicPartition, int]
    ) -> tuple[Sorted, npt.NDArray[np.int64]]:
        """Return the messages past what was read, and their offsets.

        librdkafka resumes at its position after an election; if it stepped back, a record would be landed twice.
        """
        offsets, bounds = found.offsets, found.bounds
        nexts = [self._next(tp, read_to) for tp in found.partitions]
        rises = np.append(offsets[1:] > offsets[:-1], True)
        rises[bounds[1:] - 1] = True
        if rises.all() and (offsets[bounds[:-1]] >= nexts).all():
            return found, offsets
        reached = np.repeat(nexts, np.diff(bounds)) - 1
        for start, end in pairwise(bounds.tolist()):
            before = np.maximum.accumulate(offsets[start : end - 1])
            reached[start + 1 : end] = np.maximum(reached[start + 1 : end], before)
        is_new = offsets > reached
        return found.only(is_new), offsets[is_new]

    def _next(self, tp: flow.TopicPartition, read_to: Mapping[flow.TopicPartition, int]) -> int:
        return read_to.get(tp) or self._positions.get(tp, 0)

    def _raise_problem(self, problem: KafkaError, tp: flow.TopicPartition) -> None:
        if problem.code() in _CHANGED:
            raise PositionGone(f"{tp.topic}-{tp.partition} of {self._alias}: {problem.str()}")
        if problem.code() in _GROUPS or (problem.retriable() and not problem.fatal()):
            return
        own = self._errors.to_cluster_error(problem, f"read {tp.topic}-{tp.partition}", Need("READ", "TOPIC", tp.topic))
        raise own from KafkaException(problem)


class _WithoutGc:
    """Disable Python's garbage collection while any thread is inside; sources that drain side by side share a process.

    Thousands of new messages make the collector scan all of them again and again: half of a fetch's CPU.
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


def _epoch(message: Message) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def _answer_options(partitions: int, max_bytes: int) -> dict[str, str]:
    """Return when a broker answers a request that it has little for."""
    if partitions <= _FEW_PARTITIONS:
        return {"fetch.min.bytes": "1", "fetch.wait.max.ms": str(_MAX_WAIT_MS)}
    wait_ms = max(_COLLECT_MS, min(partitions // 10, _MAX_WAIT_MS))
    return {"fetch.min.bytes": str(min(_COLLECTED_BYTES, max_bytes)), "fetch.wait.max.ms": str(wait_ms)}
