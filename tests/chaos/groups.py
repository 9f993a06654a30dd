"""Consumer groups that read on the source, and the proof that the mirror moves each of them to where it has read on the target."""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.checker import Checker, Place, Reader
from tests.chaos.history import History

_TIMEOUT_S = 4.0


class Groups(threading.Thread):
    """One group a topic: it commits growing positions on the source, and its positions on the target are held against them.

    Law A: a position on the target is at most that of the first record that the group has not read. What it has read is
    bounded by the furthest commit that was ever tried, since one without an answer may have worked.
    """

    def __init__(
        self, source: str, target: str, read: Reader, checker: Checker, remote: str, history: History, *, seed: int
    ) -> None:
        super().__init__(daemon=True, name="groups")
        self._servers = {"source": source, "target": target}
        self._read, self._checker, self._remote, self._history = read, checker, remote, history
        self._rng = random.Random(f"{seed} groups")
        self._tried: dict[Place, int] = {}
        self._ends = threading.Event()
        self._open: dict[tuple[str, str], Consumer] = {}
        self._told: set[Place] = set()
        self.checked = 0

    def end(self) -> None:
        self._ends.set()
        self.join()

    def close(self) -> None:
        for consumer in self._open.values():
            consumer.close()

    def run(self) -> None:
        while not self._ends.wait(1.0):
            for topic in sorted({place[0] for place in self._checker.places()}):
                with suppress(KafkaException):
                    self.commit(topic)
                with suppress(KafkaException):
                    self.look(topic)

    def commit(self, topic: str, *, share: float | None = None) -> None:
        """Commit somewhere between the last position and what was read so far."""
        offsets = []
        for place in self._of(topic):
            known = list(self._read.logs[place].offsets)
            if not known:
                continue
            at = bisect_left(known, self._tried.get(place, 0))
            step = self._rng.random() ** 2 if share is None else share
            read = at + int((len(known) - at) * step)
            position = known[read - 1] + 1 if read else known[0]
            self._tried[place] = max(position, self._tried.get(place, 0))
            offsets.append(TopicPartition(topic, place[1], self._tried[place]))
        if offsets:
            self._consumer("source", topic).commit(offsets=offsets, asynchronous=False)

    def look(self, topic: str) -> list[Place]:
        """Check the positions on the target; return the partitions whose group is not yet exactly where it belongs."""
        places = self._of(topic)
        asked = [TopicPartition(self._remote.format(topic=topic), number) for _, number in places]
        found = self._consumer("target", topic).committed(asked, timeout=_TIMEOUT_S) if asked else []
        late = []
        for place, one in zip(places, found, strict=True):
            upstream, downstream = self._checker.pairs(place)
            tried = self._tried.get(place)
            if tried is None:
                continue
            unread = bisect_left(upstream, tried)
            self.checked += 1
            if unread < len(upstream) and one.offset > downstream[unread] and place not in self._told:
                self._told.add(place)
                self._history.find(
                    "group skipped",
                    f"{self.group_of(topic)} goes on at {one.offset} of {place} on the target, and has not read "
                    f"{downstream[unread]} yet (upstream {upstream[unread]}, committed {tried})",
                )
            if unread and (one.offset < 0 or bisect_left(downstream, one.offset) < unread):
                late.append(place)
        return late

    def _of(self, topic: str) -> list[Place]:
        return [place for place in self._checker.places() if place[0] == topic]

    @staticmethod
    def group_of(topic: str) -> str:
        return f"readers-of-{topic}"

    def _consumer(self, side: str, topic: str) -> Consumer:
        key = (side, topic)
        if key not in self._open:
            self._open[key] = Consumer(
                {
                    "bootstrap.servers": self._servers[side],
                    "group.id": self.group_of(topic),
                    "enable.auto.commit": False,
                    "socket.timeout.ms": int(_TIMEOUT_S * 1000),
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                }
            )
        return self._open[key]
