"""Read records of single partitions by offset, joining no group and committing nothing (law H).

One limit: librdkafka requests the coordinator of its configured group even if it never joins. On a broker without any
consumer so far, that creates `__consumer_offsets`, as any first consumer does. Landing by batches does not request it, nor do
`status`, `lag` and samples on such a broker; a long-lived landing task, `browse`, `passport` and `takeover` do.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.errors import LEADER_STARTING, ClientErrors, Need, client_log, retry_transient
from mirrorlake.model import flow
from mirrorlake.timing import timing

_POLL_S = 30.0
# Partitions that are read together: an answer holds up to 1 MB of each.
_BATCH_SIZE = 100
# How soon a following reader notices that it must stop.
_FOLLOW_S = 0.2
# For reading a few records: by default librdkafka fetches 64 MiB ahead, which nobody would read.
SMALL_QUEUES = {"queued.min.messages": "100", "queued.max.messages.kbytes": "4096"}
# Not every broker knows the leader of a partition that was just created or moved.
_LEADER_UNKNOWN = {
    *LEADER_STARTING,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One record as it was read; `timestamp_ms` is -1 if it has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1


class RecordReader:
    """Read one cluster's records; close it, or use it in a `with` block.

    `committed` leaves aborted and open transactions out. `unread` counts the offsets that the last `read` left before the
    high watermark: those since the first open transaction. `probes`: see `ClientErrors`.
    """

    def __init__(self, alias: str, options: Mapping[str, Any], *, committed: bool = True, probes: bool = False) -> None:
        self.alias = alias
        self.unread = 0
        self._known: set[str] = set()
        self._errors = ClientErrors.from_options(alias, options, probes=probes)
        self._consumer = Consumer(
            {
                **self._errors.with_error_callback(),
                # The group is never joined nor committed to; librdkafka only requires the name.
                "group.id": f"mirrorlake.reader.{uuid.uuid4()}",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": "10",
            },
            logger=client_log,
        )

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the log start offset, and the offset after the last record that this reader sees."""
        with self._errors.translating(f"read the ends of {topic}", Need("READ", "TOPIC", topic)):
            for attempt in retry_transient(_LEADER_UNKNOWN):
                with attempt:
                    if topic not in self._known:
                        # Otherwise librdkafka searches the leader at intervals until it is connected: 0.7 s in half the cases.
                        self._consumer.list_topics(topic, timeout=_POLL_S)
                        self._known.add(topic)
                    low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_POLL_S)
        return int(low), int(high)

    def read(self, topic: str, partition: int, start: int = 0) -> Iterator[RawRecord]:
        """Yield the records from an offset to the partition's end, as of when the reader reaches it."""
        doing = f"read {topic}-{partition}"
        with self._errors.translating(doing, Need("READ", "TOPIC", topic)), self._assigned(topic, partition, start):
            while True:
                message = self._consumer.poll(_POLL_S)
                if message is None:
                    raise self._silent_error(f"{topic}-{partition}")
                problem = message.error()
                if problem is None:
                    yield _raw(message)
                elif problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    # Cached by the fetch that reached the end.
                    _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
                    self.unread = max(0, int(high) - int(message.offset()))
                    return
                elif not problem.retriable():
                    raise self._errors.to_cluster_error(problem, doing, Need("READ", "TOPIC", topic))

    def read_each(self, places: Mapping[flow.TopicPartition, int]) -> dict[flow.TopicPartition, RawRecord]:
        """Return the first record at or past an offset in each of several partitions, read together.

        Partitions that end before such a record are omitted.
        """
        found: dict[flow.TopicPartition, RawRecord] = {}
        with self._errors.translating("read records"):
            each = [(tp, TopicPartition(tp.topic, tp.partition, offset)) for tp, offset in places.items()]
            for first in range(0, len(each), _BATCH_SIZE):
                left = dict(each[first : first + _BATCH_SIZE])
                self._consumer.assign(list(left.values()))
                try:
                    while left:
                        self._take_first(left, found)
                finally:
                    with suppress(RuntimeError):
                        self._consumer.unassign()
        return found

    def _take_first(
        self, left: dict[flow.TopicPartition, TopicPartition], found: dict[flow.TopicPartition, RawRecord]
    ) -> None:
        message = self._consumer.poll(_POLL_S)
        if message is None:
            raise self._silent_error(f"{min(left)} and {len(left) - 1} other partitions")
        tp, problem = flow.TopicPartition(message.topic() or "", message.partition() or 0), message.error()
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            if not problem.retriable():
                raise self._errors.to_cluster_error(problem, f"read {tp}", Need("READ", "TOPIC", tp.topic))
        elif (assigned := left.pop(tp, None)) is not None:
            self._consumer.incremental_unassign([assigned])
            if problem is None:
                found[tp] = _raw(message)

    def _silent_error(self, what: str) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"cluster {self.alias} did not deliver {what} within {_POLL_S:.0f} s",
            consequence="nothing was changed by this step",
            remedy="run the same command again when the cluster answers",
            alias=self.alias,
        )

    @contextmanager
    def _assigned(self, topic: str, partition: int, start: int) -> Iterator[None]:
        self._consumer.assign([TopicPartition(topic, partition, start)])
        try:
            yield
        finally:
            # Otherwise an idle reader would go on fetching, a hundred times a second.
            with suppress(RuntimeError):
                self._consumer.unassign()

    def follow(
        self, topic: str, positions: Mapping[int, int], *, stopped: Callable[[], bool], grows: bool = False
    ) -> Iterator[RawRecord]:
        """Yield the records of several partitions from these offsets on, as they arrive, until `stopped` returns True.

        If it `grows`, new partitions of the topic are read from their beginning.
        """
        doing, known = f"read {topic}", set(positions)
        look_at = time.monotonic() + timing().new_partitions_interval_s
        with self._errors.translating(doing, Need("READ", "TOPIC", topic)):
            self._consumer.assign([TopicPartition(topic, one, start) for one, start in positions.items()])
            while not stopped():
                if grows and time.monotonic() >= look_at:
                    look_at = time.monotonic() + timing().new_partitions_interval_s
                    new = self._partitions(topic) - known
                    known |= new
                    self._consumer.incremental_assign([TopicPartition(topic, one, 0) for one in sorted(new)])
                message = self._consumer.poll(_FOLLOW_S)
                if message is None:
                    continue
                problem = message.error()
                if problem is None:
                    yield _raw(message)
                elif problem.code() != KafkaError._PARTITION_EOF and not problem.retriable():  # noqa: SLF001
                    raise self._errors.to_cluster_error(problem, doing, Need("READ", "TOPIC", topic))

    def _partitions(self, topic: str) -> set[int]:
        # The next check sees what this one misses.
        with suppress(KafkaException):
            return set(
                self._consumer.list_topics(topic, timeout=timing().new_partitions_interval_s).topics[topic].partitions
            )
        return set()


def _raw(message: Any) -> RawRecord:
    return RawRecord(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=message.timestamp()[1],
    )
