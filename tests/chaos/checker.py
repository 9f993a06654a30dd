"""Beside a run: each partition of the target must be, record by record, what the source committed.

Two `read_committed` readers follow source and target. A record of the target is compared with the one at its place on
the source as soon as both are known, so that a fault is found when it happens, and the pairs are the exact offset map.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.history import History
from tests.chaos.traffic import Journal, serial_of

_LOOK_S = 2.0
Place = tuple[str, int]


@dataclass(slots=True)
class Log:
    """What a partition holds that is committed: offsets, digests of content, and the writers' numbers."""

    offsets: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    # Appended to last: as many records are whole.
    serials: list[str] = field(default_factory=list)
    # Up to where the partition was read, control records included.
    read_to: int = 0

    def add(self, message: Message) -> None:
        kind, stamp = message.timestamp()
        content = (message.key(), message.value(), message.headers() or [], stamp, kind)
        self.offsets.append(message.offset())
        self.digests.append(hashlib.blake2b(repr(content).encode(), digest_size=12).digest())
        self.serials.append(serial_of(message.key(), message.value()))
        self.read_to = message.offset() + 1


class Reader(threading.Thread):
    """Follow all topics of a cluster that `wanted` names, new ones and new partitions included."""

    def __init__(self, alias: str, servers: str, wanted: Callable[[str], bool], history: History) -> None:
        super().__init__(daemon=True, name=f"reads {alias}")
        self._alias, self._wanted, self._history = alias, wanted, history
        self._ends = threading.Event()
        self.logs: dict[Place, Log] = defaultdict(Log)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"checker-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def end(self) -> None:
        self._ends.set()
        self.join()
        self._consumer.close()

    def run(self) -> None:
        known: set[Place] = set()
        next_look = 0.0
        while not self._ends.is_set():
            if time.monotonic() >= next_look:
                with suppress(KafkaException):
                    self._take(known)
                next_look = time.monotonic() + _LOOK_S
            for message in self._consumer.consume(2_000, 0.1):
                self._heard(message)

    def _take(self, known: set[Place]) -> None:
        topics = self._consumer.list_topics(timeout=2).topics.values()
        new = {(one.topic, number) for one in topics if self._wanted(one.topic) for number in one.partitions} - known
        if new:
            self._consumer.incremental_assign([TopicPartition(topic, number, 0) for topic, number in sorted(new)])
            known |= new

    def _heard(self, message: Message) -> None:
        error = message.error()
        place = (message.topic(), message.partition())
        if error is None:
            self.logs[place].add(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            self.logs[place].read_to = max(self.logs[place].read_to, message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._history.find("truncated", f"{self._alias} {place} no longer holds what was read: {error.str()}")


class Checker(threading.Thread):
    """Compare both logs of every partition while they grow."""

    def __init__(
        self, source: Reader, target: Reader, remote: Callable[[str], str], journal: Journal, history: History
    ) -> None:
        super().__init__(daemon=True, name="checks")
        self._source, self._target, self._remote = source, target, remote
        self._journal, self._history = journal, history
        self._done: dict[Place, int] = defaultdict(int)
        self._broken: set[Place] = set()
        self._ends = threading.Event()
        self._lock = threading.Lock()

    def end(self) -> None:
        self._ends.set()
        self.join()

    def run(self) -> None:
        while not self._ends.wait(0.5):
            self.look()

    @property
    def compared(self) -> int:
        return sum(self._done.values())

    def pairs(self, place: Place) -> tuple[list[int], list[int]]:
        """Return upstream and downstream offsets of the records that were found equal."""
        count = self._done[place]
        theirs = self._target.logs[self._remote(place[0]), place[1]]
        return self._source.logs[place].offsets[:count], theirs.offsets[:count]

    def places(self) -> list[Place]:
        return sorted(self._source.logs)

    def behind(self) -> dict[Place, int]:
        """Return by partition how many records the target lacks."""
        found = {place: len(log.serials) - self._done[place] for place, log in list(self._source.logs.items())}
        return {place: count for place, count in found.items() if count and place not in self._broken}

    def look(self) -> None:
        with self._lock:
            self._compare()

    def _compare(self) -> None:
        for place, ours in list(self._source.logs.items()):
            if place in self._broken:
                continue
            theirs = self._target.logs[self._remote(place[0]), place[1]]
            at, until = self._done[place], min(len(ours.serials), len(theirs.serials))
            if ours.digests[at:until] == theirs.digests[at:until]:
                self._done[place] = until
                continue
            while ours.digests[at] == theirs.digests[at]:
                at += 1
            self._done[place] = at
            self._broken.add(place)
            self._history.find(*self._difference(place, ours, theirs, at))

    def _difference(self, place: Place, ours: Log, theirs: Log, at: int) -> tuple[str, str]:
        """Say what the first difference of a partition is."""
        wanted, found = ours.serials[at], theirs.serials[at]
        where = f"{place[0]}-{place[1]} record {at} (upstream {ours.offsets[at]}, downstream {theirs.offsets[at]})"
        told = f"{where}: {wanted} was expected, {found} is there"
        if wanted == found:
            return "altered", told
        if self._journal.aborted(found):
            return "aborted record read", told
        if found in ours.serials[:at]:
            return "doubled", told
        if found in ours.serials[at:]:
            return ("reordered" if wanted in theirs.serials[at:] else "lost"), told
        return "never written", told

    def at_the_end(self) -> None:
        """Hold the source against the journal, and the target's surplus against the source."""
        for place, log in self._source.logs.items():
            held = dict(zip(log.offsets, log.serials, strict=True))
            acknowledged = self._journal.acknowledged(*place)
            missing = [offset for offset, serial in acknowledged.items() if held.get(offset) != serial]
            if missing:
                self._history.find(
                    "source", f"{place} lacks {len(missing)} acknowledged records from {min(missing)} on"
                )
            theirs = self._target.logs[self._remote(place[0]), place[1]]
            if place not in self._broken and len(theirs.offsets) > len(log.offsets):
                extra = theirs.serials[len(log.offsets)]
                kind = "doubled" if extra in log.serials else "never written"
                self._history.find(
                    kind, f"{place} holds {len(theirs.offsets) - len(log.offsets)} records too many: {extra}"
                )
        for place, count in self.behind().items():
            self._history.find("lost or stuck", f"{place}: {count} records did not arrive")


def check_map(
    rows: Iterable[dict[str, object]], checker: Checker, remote: Callable[[str], str], history: History
) -> int:
    """Hold each run of the offset map against both logs; return how many records were checked."""
    checked = 0
    pairs: dict[Place, dict[int, int]] = {}
    told: set[Place] = set()
    for row in rows:
        place = (str(row["source_topic"]), int(str(row["source_partition"])))
        if place not in pairs:
            upstream, downstream = checker.pairs(place)
            pairs[place] = dict(zip(upstream, downstream, strict=True))
        known = pairs[place]
        first, last, at = (
            int(str(row["first_upstream"])),
            int(str(row["last_upstream"])),
            int(str(row["first_downstream"])),
        )
        holes = row["holes"]
        assert isinstance(holes, list)
        skipped = {offset for hole in holes for offset in range(hole["first"], hole["first"] + hole["length"])}
        if (row["target_topic"], row["target_partition"]) != (remote(place[0]), place[1]):
            history.find("wrong map", f"{row} names another partition")
        for offset in range(first, last + 1):
            if offset in skipped:
                if offset in known and place not in told:
                    told.add(place)
                    history.find("wrong map", f"{place}@{offset} is a hole in the map and a record on both clusters")
                continue
            if offset in known:
                checked += 1
                if known[offset] != at and place not in told:
                    told.add(place)
                    history.find("wrong map", f"{place}@{offset} is at {known[offset]}, and the map says {at}: {row}")
            at += 1
    return checked
