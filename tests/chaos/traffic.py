"""Producers on the source."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kit.records import odd_record

_TICK_S = 0.05
_PER_TRANSACTION = (1, 80)
_ABORTS = 0.25
# A broker that is away for half a minute is no reason to give records up.
_PATIENCE_MS = 300_000


class Writer(threading.Thread):
    """Write to one topic until told to end, through whatever happens to the source."""

    def __init__(self, servers: str, topic: str, *, seed: int, rate: int) -> None:
        super().__init__(daemon=True, name=f"writes {topic}")
        self._servers, self._topic, self._rate = servers, topic, rate
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

    def _produce(self, producer: Producer, mark: str) -> None:
        """Hand a record of its own content to a producer: no two are alike, so that none stands for another."""
        self._number += 1
        record = odd_record(self._rng, self._number % 500)
        field = "key" if record["value"] is None else "value"
        record[field] = f"{mark}/{self._number}|".encode() + (record[field] or b"")
        producer.produce(self._topic, partition=self._rng.randrange(self.partitions), **record)


class Plain(Writer):
    """Idempotent producer; records in several partitions."""

    def _work(self) -> None:
        producer = self._producer(**{"enable.idempotence": True, "message.timeout.ms": _PATIENCE_MS})
        while not self._ends.is_set():
            for _ in range(self._due()):
                try:
                    self._produce(producer, "p")
                except KafkaException as error:
                    # A partition that was just added, as a broker that came back a moment ago does not know it yet.
                    if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                        raise
            producer.poll(0)
            time.sleep(_TICK_S)
        producer.flush(120)


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
        producer.begin_transaction()
        for _ in range(self._rng.randint(*_PER_TRANSACTION)):
            self._produce(producer, f"t{self._number}")
        producer.flush(30)
        aborts = self._rng.random() < _ABORTS
        (producer.abort_transaction if aborts else producer.commit_transaction)(30)
