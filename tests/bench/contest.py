"""The ground that is the same for all: one source with the workload, and targets that are emptied after each pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from mirrorlake.sandbox import KafkaCluster, start_all
from tests.bench.copies import Copy, Part, parts_of
from tests.bench.processes import ProcessTree
from tests.bench.workload import PARTITIONS, Topic, fill

_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")
_WARM_UP = "warm-up"

Say = Callable[[str], None]


class Contest:
    """A source with the workload and its targets, a broker each; a `with` block starts and ends them."""

    def __init__(self, topics: Sequence[Topic], *, seed: int, directory: Path, say: Say, targets: int = 1) -> None:
        self.topics = topics
        self.directory = directory
        self.say = say
        self._seed = seed
        self._stack = ExitStack()
        aliases = ("east", "central", *(f"central{number}" for number in range(2, targets + 1)))
        self.source, *self.targets = (
            KafkaCluster(alias, directory=directory / alias, java_options=_HEAP) for alias in aliases
        )

    @property
    def target(self) -> KafkaCluster:
        return self.targets[0]

    @property
    def clusters(self) -> list[KafkaCluster]:
        return [self.source, *self.targets]

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def brokers(self) -> list[ProcessTree]:
        return [ProcessTree(cluster.pid) for cluster in self.clusters if cluster.pid is not None]

    def __enter__(self) -> Contest:
        for cluster in self.clusters:
            self._stack.callback(cluster.stop)
        start_all(self.clusters)
        self.say(f"{len(self.clusters)} brokers are up")
        for topic in self.topics:
            _create(self.source, topic.name)
            fill(self.source.bootstrap_servers, topic, seed=self._seed, say=self.say)
        self._warm_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def copy(self, name: Callable[[str], str]) -> Copy:
        return self.copies(name)[0]

    def copies(self, name: Callable[[str], str]) -> list[Copy]:
        return [Copy(target.bootstrap_servers, self.parts(name)) for target in self.targets]

    def parts(self, name: Callable[[str], str]) -> list[Part]:
        return parts_of(self.topics, name)

    def clean(self, *, containing: str = "") -> None:
        """Delete what a mirror left on all clusters, or only topics with this text in their name; let things settle."""
        for cluster in self.clusters:
            own = {topic.name for topic in self.topics} if cluster is self.source else set()
            client = _admin(cluster)
            names = [name for name in client.list_topics(timeout=30).topics if not name.startswith("__")]
            gone = [name for name in names if name not in own and containing in name]
            if gone:
                _all_done(client.delete_topics(gone, operation_timeout=30))
        time.sleep(1.0)

    def _warm_up(self) -> None:
        """Let the targets write and the source read once: a JVM's first million records are dearer, whoever sends them."""
        sample = Topic(name=_WARM_UP, records=min(400_000, self.records), value_bytes=500)
        for target in self.targets:
            _create(target, sample.name)
            fill(target.bootstrap_servers, sample, seed=self._seed, say=self.say)
        own = Copy(self.source.bootstrap_servers, self.parts(lambda name: name))
        own.prove(exactly_once=True)
        self.say("read the source back: complete")
        self.clean()


def _create(cluster: KafkaCluster, name: str) -> None:
    client = _admin(cluster)
    _all_done(client.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)]))


def _admin(cluster: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def _all_done(futures: dict[str, Any]) -> None:
    for name, future in futures.items():
        try:
            future.result(60)
        except KafkaException as error:
            raise RuntimeError(f"topic {name}: {error}") from error
