"""Producers on the source, and a journal outside of the system of what they were acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.kit.records import odd_record

_TICK_S = 0.05
_PER_TRANSACTION = (1, 80)
_ABORTS = 0.25
# A broker that is away for half a minute is no reason to give records up.
_PATIENCE_MS = 300_000


class Journal:
    """What was acknowledged, by partition and offset, and which transactions were aborted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
        self._aborted: set[str] = set()
        self.records = 0

    def acknowledge(self, topic: str, partition: int, offset: int | None, serial: str) -> None:
        with self._lock:
            # An attempt that the broker had taken before is confirmed without its offset.
            if offset is not None:
                self._acknowledged[topic, partition][offset] = serial
            self.records += 1

    def abort(self, transaction: str) -> None:
        with self._lock:
            self._aborted.add(transaction)

    def aborted(self, serial: str) -> bool:
        return serial.partition("/")[0] in self._aborted

    def acknowledged(self, topic: str, partition: int) -> dict[int, str]:
        with self._lock:
            return dict(self._acknowledged[topic, partition])


def serial_of(key: bytes | None, value: bytes | None) -> str:
    """Return the number that a writer gave a record: the front of its value, of its key where it is a tombstone."""
    return (value or key or b"").partition(b"|")[0].decode(errors="replace")


class Writer(threading.Thread):
    """Write to one topic until told to end, through whatever happens to the source."""

    def __init__(self, servers: str, topic: str, journal: Journal, *, seed: int, rate: int) -> None:
        super().__init__(daemon=True, name=f"writes {topic}")
        self._servers, self._topic, self._journal, self._rate = servers, topic, journal, rate
        self._rng = random.Random(f"{seed} {topic}")
        self._ends = threading.Event()
        self.partitions = 1
        self.failure: BaseException | None = None
        self._number = 0

    def end(self) -> None:
        self._ends.set()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error

    def _work(self) -> None:
        raise NotImplementedError

    def _producer(self, **options: Any) -> Producer:
        return Producer({"bootstrap.servers": self._servers, "linger.ms": 5, "log_level": 0, **options})

    def _due(self) -> int:
        """Return how many records a tick has; now and then there is a burst."""
        burst = 40 if self._rng.random() < 0.005 else 1
        return self._rng.randint(0, max(1, round(2 * self._rate * _TICK_S))) * burst

    def _record(self, mark: str) -> tuple[str, dict[str, Any]]:
        self._number += 1
        serial = f"{mark}/{self._number}"
        record = odd_record(self._rng, self._number % 500)
        front = f"{serial}|".encode()
        # A record without a value is told by its key, all others by their value.
        if record["value"] is None:
            record["key"] = front + (record["key"] or b"")
        else:
            record["value"] = front + record["value"]
        return serial, record


class Plain(Writer):
    """Idempotent producer; records in several partitions."""

    def _work(self) -> None:
        producer = self._producer(**{"enable.idempotence": True, "message.timeout.ms": _PATIENCE_MS})
        while not self._ends.is_set():
            for _ in range(self._due()):
                serial, record = self._record("p")
                partition = self._rng.randrange(self.partitions)
                try:
                    producer.produce(self._topic, partition=partition, on_delivery=self._told(serial), **record)
                except KafkaException as error:
                    # A partition that was just added, as a broker that came back a moment ago does not know it yet.
                    if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                        raise
                producer.poll(0)
            producer.poll(0)
            time.sleep(_TICK_S)
        producer.flush(120)

    def _told(self, serial: str) -> Any:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._journal.acknowledge(self._topic, message.partition(), message.offset(), serial)

        return told


class Transactional(Writer):
    """Transactions over all partitions, a quarter of them aborted."""

    def _work(self) -> None:
        while not self._ends.is_set():
            producer = self._producer(**{"transactional.id": f"app-{self._topic}", "transaction.timeout.ms": 60_000})
            try:
                producer.init_transactions(30)
                while not self._ends.is_set():
                    self._transaction(producer)
                    time.sleep(_PER_TRANSACTION[1] / 2 / self._rate)
            except KafkaException:
                # Fenced, timed out, unknown: the next producer's start ends the transaction one way or the other.
                continue

    def _transaction(self, producer: Producer) -> None:
        mark = f"t{self._number}"
        told: list[tuple[int, int, str]] = []

        def delivered(serial: str) -> Any:
            def tell(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    told.append((message.partition(), message.offset(), serial))

            return tell

        producer.begin_transaction()
        for _ in range(self._rng.randint(*_PER_TRANSACTION)):
            serial, record = self._record(mark)
            partition = self._rng.randrange(self.partitions)
            producer.produce(self._topic, partition=partition, on_delivery=delivered(serial), **record)
        producer.flush(30)
        if self._rng.random() < _ABORTS:
            producer.abort_transaction(30)
            self._journal.abort(mark)
            return
        producer.commit_transaction(30)
        for partition, offset, serial in told:
            self._journal.acknowledge(self._topic, partition, offset, serial)
