"""A cluster in memory, for tests of pure logic: it answers as a real broker does (`tests/kafka/test_memory_cluster.py` asks both).

It shows neither transactions, nor fencing, nor quotas, nor time-outs: nothing of lanes and claims is proven by it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from mirrorlake.errors import ClusterError, ClusterUnreachable
from mirrorlake.kafka import Fetched, PositionGone, TopicState
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.plan import TopicSpec
from tests.builders import fetched_rows

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record."""

    offset: int
    timestamp: int
    epoch: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


@dataclass
class Log:
    """One partition: its entries from `start` on, and the next offset."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    has_leader: bool = True

    def append(self, entry: Entry) -> None:
        self.entries.append(replace(entry, offset=self.end, epoch=self.epoch))
        self.end += 1

    def drop(self, *, below: int) -> None:
        self.start = max(self.start, below)
        self.entries = [one for one in self.entries if self.start <= one.offset]


@dataclass
class Topic:
    topic_id: str
    logs: list[Log]
    configs: dict[str, str]


class MemoryCluster:
    """A cluster: what `ClusterAdmin` asks and does, records, and a `fetcher`."""

    def __init__(self, alias: str = "east", **spans: tuple[int, int]) -> None:
        """Make it, with topics of one partition each whose records fill these spans of offsets."""
        self.alias, self.topics = alias, dict[str, Topic]()
        self.defaults = {"cleanup.policy": "delete", "retention.ms": "604800000"}
        for name, (start, end) in spans.items():
            self.fill(name, start, end)

    # What happens to a cluster.

    def fill(self, topic: str, start: int, end: int, *, anew: bool = False) -> None:
        """Let a topic's first partition hold a record at each offset from `start` to `end`; `anew`: deleted and created again."""
        if anew:
            self.topics.pop(topic, None)
        if topic not in self.topics:
            self.create(TopicSpec(name=topic, partitions=1))
        log = self.topics[topic].logs[0]
        made = [Entry(offset, offset * 1000, log.epoch, value=b"v") for offset in range(start, end)]
        log.entries, log.start, log.end = made, start, end

    def produce(
        self,
        topic: str,
        partition: int,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int = 0,
    ) -> None:
        """Write records."""
        log = self._log(TopicPartition(topic, partition))
        for value in values:
            log.append(Entry(0, timestamp, 0, key, value, headers))

    def elect(self, topic: str, partition: int) -> None:
        """Give a partition another leader."""
        log = self.topics[topic].logs[partition]
        log.epoch, log.has_leader = log.epoch + 1, True

    def lose_leader(self, topic: str, partition: int = 0) -> None:
        self.topics[topic].logs[partition].has_leader = False

    # What an admin client asks.

    def cluster_id(self) -> str:
        return f"id of {self.alias}"

    def broker_count(self) -> int:
        return 1

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def describe(self, names: Iterable[str], **_: object) -> dict[str, TopicState]:
        return {
            name: TopicState(
                name=name,
                topic_id=topic.topic_id,
                partitions=len(topic.logs),
                replicas=1,
                leaderless=frozenset(number for number, log in enumerate(topic.logs) if not log.has_leader),
            )
            for name in sorted(set(names))
            if (topic := self.topics.get(name))
        }

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: dict(self.topics[name].configs) for name in sorted(set(names))}

    def effective_configs(self, topic: str) -> dict[str, str]:
        return self.defaults | self.configs([topic])[topic]

    def config_value(self, topic: str, key: str) -> str | None:
        return self.effective_configs(topic).get(key)

    def default_cleanup(self, topics: Iterable[str]) -> str:
        shows = any(name in self.topics and "cleanup.policy" not in self.topics[name].configs for name in topics)
        return self.defaults["cleanup.policy"] if shows else ""

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._log(tp).start for tp in partitions}

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._log(tp).end for tp in partitions}

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._log(tp).end for tp in partitions}

    def high_watermarks_and_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: ((log := self._log(tp)).end, log.epoch) for tp in partitions}

    def offsets_for_time(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        found = {}
        for tp in partitions:
            log = self._log(tp)
            later = (one.offset for one in log.entries if one.timestamp >= timestamp_ms)
            found[tp] = next(later, log.end)
        return found

    def _log(self, tp: TopicPartition) -> Log:
        topic = self.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.logs):
            raise ClusterError(f"{tp.topic}-{tp.partition} is unknown to {self.alias}", alias=self.alias)
        if not topic.logs[tp.partition].has_leader:
            raise ClusterUnreachable(f"{tp.topic}-{tp.partition} has no leader", alias=self.alias)
        return topic.logs[tp.partition]

    # What an admin client changes.

    def create_all(self, specs: Iterable[TopicSpec], **_: bool) -> dict[str, ClusterError]:
        refused = {}
        for spec in specs:
            if spec.partitions < 1 or len(spec.name) > 249:
                refused[spec.name] = ClusterError(f"could not create topic {spec.name}", alias=self.alias)
            elif spec.name not in self.topics:
                logs = [Log() for _ in range(spec.partitions)]
                self.topics[spec.name] = Topic(str(uuid.uuid4()), logs, dict(spec.configs))
        return refused

    def create(self, spec: TopicSpec) -> None:
        for error in self.create_all([spec]).values():
            raise error

    def delete(self, name: str) -> None:
        self.topics.pop(name, None)

    def grow(self, name: str, partitions: int) -> None:
        logs = self.topics[name].logs
        logs += [Log() for _ in range(partitions - len(logs))]

    def set_configs(self, name: str, values: Mapping[str, str | None]) -> None:
        configs = self.topics[name].configs | values
        self.topics[name].configs = {key: value for key, value in configs.items() if value is not None}

    def delete_records_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            self._log(tp).drop(below=offset)

    def fetcher(self, positions: Mapping[TopicPartition, int], *, step: int = 1_000) -> MemoryFetcher:
        return MemoryFetcher(self, positions, step)


class MemoryFetcher:
    """A consumer that returns at most `step` offsets of a partition at a time."""

    def __init__(self, cluster: MemoryCluster, positions: Mapping[TopicPartition, int], step: int) -> None:
        self._cluster, self._positions, self._step = cluster, dict(positions), step

    def __enter__(self) -> MemoryFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fetch(self, *_: object, **__: object) -> Fetched:
        rows, read_to, epochs = {}, {}, {}
        for tp, position in self._positions.items():
            log = self._cluster._log(tp)
            if not log.start <= position <= log.end:
                raise PositionGone(f"{tp.topic}-{tp.partition} of {self._cluster.alias}")
            end = min(position + self._step, log.end)
            if end <= position:
                continue
            read_to[tp] = end
            if held := [one for one in log.entries if position <= one.offset < end]:
                rows[tp], epochs[tp] = _table(held), held[-1].epoch
        self._positions |= read_to
        return Fetched(fetched_rows(rows), read_to, epochs)


def _table(entries: Sequence[Entry]) -> pa.Table:
    headers = [[{"key": key, "value": value} for key, value in one.headers] or None for one in entries]
    return pa.table(
        {
            "offset": [one.offset for one in entries],
            "timestamp": pa.array([one.timestamp for one in entries], pa.timestamp("ms", tz="UTC")),
            "timestamp_type": [0] * len(entries),
            "key": pa.array([one.key for one in entries], pa.binary()),
            "value": pa.array([one.value for one in entries], pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )
