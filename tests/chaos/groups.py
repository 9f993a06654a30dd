"""Consumer groups that read on the source, and the proof that the mirror never moves one past what it has read."""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

from confluent_kafka import KafkaException

from tests.kit.records import Record, commit, committed, end_of

Logs = dict[int, list[Record]]


class Groups(threading.Thread):
    """One group a topic: it commits growing positions on the source; what the target then has is noted with them.

    Law A: a position on the target is at most that of the first record that the group has not read. What it has read is
    bounded by the furthest commit that was ever tried, since one without an answer may have worked.
    """

    def __init__(
        self, source: str, target: str, partitions: Callable[[str], int], topics: list[str], *, seed: int
    ) -> None:
        super().__init__(daemon=True, name="groups")
        self._source, self._target, self._partitions, self._topics = source, target, partitions, topics
        self._rng = random.Random(f"{seed} groups")
        self._tried: dict[tuple[str, int], int] = defaultdict(int)
        self._seen: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self._ends = threading.Event()

    @property
    def checked(self) -> int:
        return sum(map(len, self._seen.values()))

    def end(self) -> None:
        self._ends.set()
        self.join()

    def run(self) -> None:
        while not self._ends.wait(1.0):
            for topic in self._topics:
                with suppress(KafkaException):
                    self.read_on(topic, self._rng.random() ** 2)
                with suppress(KafkaException):
                    self.look(topic)

    def read_on(self, topic: str, share: float) -> None:
        """Commit a share of what is left of each partition."""
        positions = dict[int, int]()
        for partition in range(self._partitions(topic)):
            tried = self._tried[topic, partition]
            positions[partition] = tried + int((end_of(self._source, topic, partition) - tried) * share)
            self._tried[topic, partition] = positions[partition]
        commit(self._source, _group(topic), topic, positions)

    def look(self, topic: str) -> None:
        """Note the positions on the target, beside the furthest on the source."""
        for partition, at in committed(self._target, _group(topic), f"source.{topic}", self._partitions(topic)).items():
            self._seen[topic, partition].append((self._tried[topic, partition], at))

    def faults(self, topic: str, source: Logs, target: Logs) -> Iterator[str]:
        """Hold all that was seen of a topic against both logs, which are equal; the last is after all that was read."""
        for partition, records in source.items():
            upstream, downstream = ([one.offset for one in log] for log in (records, target[partition]))
            at = -1
            for tried, at in self._seen[topic, partition]:
                unread = bisect_left(upstream, tried)
                if unread < len(upstream) and at > downstream[unread]:
                    yield f"{topic}-{partition}: a group that read to {tried} skips {downstream[unread]}, it goes on at {at}"
                    break
            else:
                if bisect_left(downstream, at) < bisect_left(upstream, self._tried[topic, partition]):
                    yield f"{topic}-{partition}: the group's position {at} did not follow"


def _group(topic: str) -> str:
    return f"readers-of-{topic}"
