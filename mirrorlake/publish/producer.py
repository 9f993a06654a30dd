"""A producer with the shape of `confluent_kafka.Producer` that publishes into a lake cluster.

    produce  ->  queue  ->  one commit a batch  ->  delivery reports  ->  poll, flush

A batch has the same name until its publication is confirmed, so the retry of a failed flush doubles no record
(law F).
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import topic_fault
from mirrorlake.errors import UsageError
from mirrorlake.model.late_times import LATEST_MS
from mirrorlake.publish.message import Headers, Message, OnDelivery, bytes_of, pairs_of
from mirrorlake.publish.publisher import Publisher
from mirrorlake.publish.rows import OVERHEAD, TopicLimits
from mirrorlake.rules import partitions_for

log = logging.getLogger(__name__)

# The names are librdkafka's; the times are longer than its own because a commit takes half a second, not a few milliseconds.
_DEFAULTS = {
    "linger.ms": 1000.0,
    "batch.size": 16_000_000.0,
    "batch.num.messages": 100_000.0,
    "queue.buffering.max.messages": 1_000_000.0,
    "queue.buffering.max.kbytes": 1_048_576.0,
}
_LONGEST_PAUSE_S = 30.0
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("rank", pa.int64()),
    ]
)


@dataclass(slots=True)
class _Batch:
    """Messages under one name; every attempt sends the same `rows`."""

    name: str
    messages: list[Message]
    rows: pa.Table | None = None


class LakeProducer:
    """Publish record by record; threads may share it.

    Records wait in memory. They are published, in one commit, by `flush`, and by a thread of the producer once the
    first of them has waited for `linger.ms`, or `batch.size` bytes or `batch.num.messages` records are waiting.
    `poll` and `flush` serve delivery reports in their caller's thread. Leave the producer through its `with` block,
    or `flush` it: queued records are lost with the process.

    Args:
        publisher: publishes into the lake cluster.
        config: `linger.ms` (1000), `batch.size` (16 MB), `batch.num.messages` (100 000), `queue.buffering.max.messages`
            (1 000 000), `queue.buffering.max.kbytes` (1 GiB), in librdkafka's names.

    Raises:
        UsageError: an option that does not exist.

    Example:
        >>> with mirror.producer("app") as producer:  # doctest: +SKIP
        ...     producer.produce("orders", key="42", value=b"...", on_delivery=print)
    """

    def __init__(self, publisher: Publisher, *, config: Mapping[str, Any] | None = None) -> None:
        self._publisher = publisher
        self._options = _options(config or {})
        self._limits: dict[str, TopicLimits] = {}
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._oldest = 0.0
        self._reports: deque[Callable[[], object]] = deque()
        self._under_way: _Batch | None = None
        self._has_failed = False
        self._spread = 0
        self._produced = self._published = 0
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def __enter__(self) -> LakeProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of waiting records and delivery reports."""
        with self._changed:
            return self._produced - self._published + len(self._reports)

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Queue one record; the arguments are those of `confluent_kafka.Producer.produce`.

        Args:
            topic: the topic.
            value: bytes, or text as UTF-8; None is a tombstone.
            key: bytes, text or None.
            partition: -1 hashes the key like Kafka's default partitioner (murmur2), without a key one after another.
            on_delivery: called as `on_delivery(error, message)` from `poll` or `flush`.
            timestamp: milliseconds since 1970; 0 is now.
            headers: pairs in their order, or a mapping.

        Raises:
            BufferError: the queue is full; `poll` or `flush` and try again.
            UsageError: no flow could carry the record: topic, partition, timestamp, headers or size do not fit.
        """
        message = Message(
            topic,
            partition,
            bytes_of(key),
            bytes_of(value),
            pairs_of(headers),
            timestamp or int(self._publisher.now().timestamp() * 1000),
            on_delivery,
        )
        self._check(message)
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the producer is closed")
            waiting = self._produced - self._published
            if (
                waiting >= self._options["queue.buffering.max.messages"]
                or self._queued_bytes + message.size > self._options["queue.buffering.max.kbytes"] * 1024
            ):
                raise BufferError(f"the queue is full: {waiting} records wait to be published")
            if not self._queue:
                self._oldest = time.monotonic()
            self._queue.append(message)
            self._produced += 1
            self._queued_bytes += message.size
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mirrorlake-producer", daemon=True)
                self._thread.start()
            if len(self._queue) == 1 or self._is_due():
                self._changed.notify_all()

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports that are waiting, or come within `timeout` seconds; return their number."""
        with self._changed:
            if not self._reports and timeout and self._produced > self._published:
                self._changed.wait_for(
                    lambda: self._reports or self._produced == self._published, None if timeout < 0 else timeout
                )
        return self._serve()

    def flush(self, timeout: float = -1) -> int:
        """Publish the queued records and serve the delivery reports; return the number of records that still wait.

        Args:
            timeout: seconds after which no new batch is begun; negative waits for all.

        Raises:
            StoreError: the lake failed; the records stay queued, and another flush repeats none of them.
        """
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._changed:
            goal = self._produced
        while True:
            self._serve()
            left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
            if self._published >= goal or not self._sending.acquire(timeout=left):
                break
            try:
                self._publish()
            finally:
                self._sending.release()
            if deadline is not None and time.monotonic() >= deadline:
                break
        self._serve()
        return len(self)

    def close(self) -> None:
        """Flush and end.

        Raises:
            StoreError: the lake failed; queued records are lost with this producer.
        """
        try:
            self.flush()
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join()

    # -- publishing -----------------------------------------------------------------------------------------------

    def _check(self, message: Message) -> None:
        topic = message.topic()
        if topic not in self._limits:
            if fault := topic_fault(topic):
                raise UsageError(fault[0], consequence="the record was not queued", remedy=fault[1])
            self._limits |= self._publisher.limits([topic])
        limits = self._limits[topic]
        problem = None
        if message.partition() >= limits.partitions or message.partition() < -1:
            problem = f"the topic {topic} has {limits.partitions} partitions, no partition {message.partition()}"
        elif message.timestamp()[1] <= 0:
            problem = f"a record of {topic} with a timestamp of 1970 or before"
        elif message.timestamp()[1] > LATEST_MS:
            problem = f"a record of {topic} with a timestamp past the year 9999 (micro- or nanoseconds?)"
        elif message.size + OVERHEAD > limits.max_bytes:
            problem = f"a record of {message.size} bytes plus {OVERHEAD} of overhead, but {topic} takes {limits.max_bytes} bytes"
        if problem:
            raise UsageError(
                f"no flow could mirror the record: {problem}",
                consequence="the record was not queued",
                remedy="change the record, or `partitions` and `configs` of the topic under `topics` of the lake cluster",
            )

    def _is_due(self) -> bool:
        held, options = len(self._queue), self._options
        if self._has_failed or held:
            has_waited = time.monotonic() - self._oldest >= options["linger.ms"] / 1000
            is_large = held >= options["batch.num.messages"] or self._queued_bytes >= options["batch.size"]
            return has_waited or (is_large and not self._has_failed)
        return False

    def _work(self) -> None:
        """Publish due records until the producer is closed; failures are retried after a pause."""
        failures = 0
        while True:
            with self._changed:
                while not self._is_closed and not self._is_due():
                    linger = self._oldest + self._options["linger.ms"] / 1000 - time.monotonic()
                    self._changed.wait(max(0.001, linger) if self._queue or self._has_failed else None)
                if failures:
                    self._changed.wait_for(lambda: self._is_closed, min(2.0**failures, _LONGEST_PAUSE_S))
                if self._is_closed:
                    return
            with self._sending:
                # A flush may have published them meanwhile.
                if not self._is_due():
                    continue
                try:
                    self._publish()
                    failures = 0
                except Exception as error:
                    # The next flush raises it to the application.
                    failures += 1
                    log.warning("producer.not_published attempt=%s why=%s", failures, error)

    def _publish(self) -> None:
        """Publish one batch: the unfinished one, or the queued records. The caller holds `_sending`."""
        with self._changed:
            if self._under_way is None and self._queue:
                size = min(len(self._queue), int(self._options["batch.num.messages"]))
                self._under_way = _Batch(uuid.uuid4().hex, [self._queue.popleft() for _ in range(size)])
                self._oldest = time.monotonic()
            batch = self._under_way
        if batch is None:
            return
        try:
            if batch.rows is None:
                batch.rows = self._rows(batch.messages)
            done = self._publisher.append_batch(batch.rows, name=f"producer.{batch.name}")
        except BaseException:
            with self._changed:
                self._has_failed, self._oldest = True, time.monotonic()
            raise
        firsts = {(each.topic, each.partition): each.first_offset for each in done.partitions}
        places = zip(batch.rows["topic"].to_pylist(), batch.rows["partition"].to_pylist(), strict=True)
        with self._changed:
            for message, place, rank in zip(batch.messages, places, batch.rows["rank"].to_pylist(), strict=True):
                if (report := message.place(place[1], firsts[place] + rank)) is not None:
                    self._reports.append(report)
                self._queued_bytes -= message.size
            self._published += len(batch.messages)
            self._under_way, self._has_failed = None, False
            self._changed.notify_all()

    def _rows(self, messages: list[Message]) -> pa.Table:
        """Sort the messages by topic and partition, each in their order, and return them as rows with their rank."""
        self._limits |= self._publisher.limits(sorted({message.topic() for message in messages}))
        partitions = np.array([message.partition() for message in messages], np.int32)
        topics = np.array([message.topic() for message in messages], object)
        for topic in sorted(set(topics)):
            free = np.flatnonzero((topics == topic) & (partitions < 0))
            count = self._limits[topic].partitions
            keys = pa.array([messages[row].key() for row in free], pa.binary())
            by_key = partitions_for(keys, count)
            spread = np.flatnonzero(by_key < 0)
            by_key[spread] = (self._spread + np.arange(len(spread))) % count
            self._spread += len(spread)
            partitions[free] = by_key
        order = sorted(range(len(messages)), key=lambda row: (topics[row], partitions[row]))
        messages[:] = [messages[row] for row in order]
        ranks: dict[tuple[str, int], int] = {}
        rows = []
        for message, row in zip(messages, order, strict=True):
            topic, partition = message.topic(), int(partitions[row])
            ranks[topic, partition] = rank = ranks.get((topic, partition), -1) + 1
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "timestamp": message.timestamp()[1] * 1000,
                    "key": message.key(),
                    "value": message.value(),
                    "headers": message.headers(),
                    "rank": rank,
                }
            )
        return pa.Table.from_pylist(rows, _SCHEMA)

    def _serve(self) -> int:
        served = 0
        while True:
            with self._changed:
                if not self._reports:
                    return served
                report = self._reports.popleft()
            # Without the lock, because the application may produce from its report.
            report()
            served += 1


def _options(config: Mapping[str, Any]) -> dict[str, float]:
    found = dict(_DEFAULTS)
    for name, value in config.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if name not in found or number < 0:
            raise UsageError(
                f"'{name}: {value}' is not an option of a lake cluster's producer",
                consequence="no producer was created",
                remedy=f"known are {', '.join(_DEFAULTS)}, each a number",
            )
        found[name] = number
    return found
