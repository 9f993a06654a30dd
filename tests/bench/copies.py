"""When a copy on the target is complete, and the proof that it is: no figure without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.bench.workload import Topic, key_of

_LOOK_S = 0.1
_TAIL = 8
_SILENCE_S = 30.0
_BATCH = 20_000
_ABSENT = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)

Ends = Mapping[tuple[str, int], int]


class IncompleteCopy(Exception):
    """A copy lacks records, or holds what it should not: there is no figure for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One partition of a remote topic, and what it must hold."""

    topic: str
    partition: int
    partitions: int
    """Of the topic."""
    records: int

    def key(self, place: int) -> bytes:
        """Return the key of the record at a place, counted from 0 without control records."""
        return key_of(self.key_number(place))

    def key_number(self, place: int) -> int:
        return place * self.partitions + self.partition


def parts_of(topics: Iterable[Topic], name: Callable[[str], str]) -> list[Part]:
    """Return the partitions that a complete copy has; `name` gives the remote topic."""
    return [
        Part(
            topic=name(topic.name),
            partition=partition,
            partitions=topic.partitions,
            records=topic.in_partition(partition),
        )
        for topic in topics
        for partition in range(topic.partitions)
    ]


def lacking(parts: Iterable[Part], ends: Ends) -> list[Part]:
    """Return the partitions whose end says that records are missing; control records also move an end."""
    return [part for part in parts if ends.get((part.topic, part.partition), 0) < part.records]


@dataclass(slots=True)
class Tally:
    """Count the records of one partition in the order in which they stand there; `again` those that stand there more than once."""

    part: Part
    seen: int = 0
    again: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, key: bytes) -> None:
        if key == self.part.key(self.seen):
            self.seen += 1
        elif key.isdigit() and int(key) < self.part.key_number(self.seen):
            self.again += 1
        elif len(self.wrong) < 3:
            self.wrong.append(f"{key!r} where {self.part.key(self.seen)!r} was due")

    def faults(self) -> list[str]:
        """List the faults of the partition; none when its copy is complete and in order."""
        where = f"{self.part.topic}-{self.part.partition}"
        found = [f"{where}: {text}" for text in self.wrong]
        if self.seen != self.part.records:
            found.append(f"{where}: {self.seen} of {self.part.records} records")
        if self.again:
            found.append(f"{where}: {self.again} records twice")
        return found


class Copy:
    """One copy of the workload on the target."""

    def __init__(self, bootstrap_servers: str, parts: Sequence[Part]) -> None:
        self._servers = bootstrap_servers
        self._parts = parts

    def await_first(self, alive: Callable[[], None], *, patience_s: float) -> None:
        """Return when the first record stands on the target."""
        with _Reader(self._servers) as reader:
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                alive()
                if any(reader.ends(self._parts).values()):
                    return
                time.sleep(_LOOK_S / 2)
        raise IncompleteCopy(f"no record came within {patience_s:.0f} s")

    def await_complete(self, alive: Callable[[], None], *, patience_s: float) -> None:
        """Return when the last record of every partition stands on the target, committed."""
        with _Reader(self._servers) as reader:
            waiting = list(self._parts)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                alive()
                ends = reader.ends(waiting)
                short = lacking(waiting, ends)
                # An end may lie past records that are still under way, by the control records before it.
                reached = [part for part in waiting if part not in short]
                waiting = short + [
                    part for part in reached if not reader.has_last(part, ends[part.topic, part.partition])
                ]
                if not waiting:
                    return
                time.sleep(_LOOK_S)
        raise IncompleteCopy(f"{len(waiting)} partitions were not complete after {patience_s:.0f} s")

    def prove(self) -> None:
        """Read everything back: each record stands there once, in order."""
        tallies = {(part.topic, part.partition): Tally(part) for part in self._parts}
        with _Reader(self._servers) as reader:
            for message in reader.everything(self._parts):
                tallies[message.topic(), message.partition()].add(message.key() or b"")
        faults = [text for tally in tallies.values() for text in tally.faults()]
        if faults:
            raise IncompleteCopy("; ".join(faults[:5]))


class _Reader:
    def __init__(self, bootstrap_servers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: Any) -> None:
        self._consumer.close()

    def ends(self, parts: Iterable[Part]) -> dict[tuple[str, int], int]:
        """Return the last stable offsets; a partition that does not exist yet ends at 0."""
        found = {}
        for part in parts:
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(part.topic, part.partition), timeout=10)
            except KafkaException as error:
                problem = error.args[0]
                # A topic is on its way into being: not there yet, or its leader does not know that it is one.
                if not problem.retriable() and problem.code() not in _ABSENT:
                    raise
                end = 0
            found[part.topic, part.partition] = max(end, 0)
        return found

    def has_last(self, part: Part, end: int) -> bool:
        self._consumer.assign([TopicPartition(part.topic, part.partition, max(0, end - _TAIL))])
        last = part.key(part.records - 1)
        while (message := self._consumer.poll(5.0)) is not None:
            if message.error() is None and message.key() == last:
                return True
            if message.error() is not None:
                return False
        return False

    def everything(self, parts: Sequence[Part]) -> Iterable[Message]:
        self._consumer.assign([TopicPartition(part.topic, part.partition, 0) for part in parts])
        open_parts = len(parts)
        heard = time.monotonic()
        while open_parts:
            # `consume` waits until it has as many messages as it was asked for, or for the whole of its time-out.
            messages = self._consumer.consume(_BATCH, timeout=_LOOK_S)
            heard = time.monotonic() if messages else heard
            if time.monotonic() - heard > _SILENCE_S:
                raise IncompleteCopy(f"the target delivered nothing for {_SILENCE_S:.0f} s")
            for message in messages:
                if (error := message.error()) is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_parts -= 1
                else:
                    raise KafkaException(error)
