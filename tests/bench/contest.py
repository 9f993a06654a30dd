"""The ground that is the same for all: one source with the workload, and targets that are emptied after each pass."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from mirrorlake.sandbox import KafkaCluster, start_all
from tests.bench.copies import Copy, parts_of
from tests.bench.processes import ProcessTree
from tests.bench.results import Say
from tests.bench.workload import Topic, described, fill

_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")
_WARM_UP = "warm-up"


class Contest:
    """A source with the workload and its targets, a broker each; a `with` block starts and ends them."""

    def __init__(self, topics: Sequence[Topic], *, seed: int, directory: Path, say: Say, targets: int = 1) -> None:
        self.topics = topics
        self.directory = directory
        self.say = say
        self.seed = seed
        self._stack = ExitStack()
        aliases = ("east", "central", *(f"central{number}" for number in range(2, targets + 1)))
        self.source, *self.targets = (
            KafkaCluster(alias, directory=directory / alias, java_options=_HEAP) for alias in aliases
        )

    @property
    def clusters(self) -> list[KafkaCluster]:
        return [self.source, *self.targets]

    @property
    def workload(self) -> str:
        return described(self.topics)

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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fill(self) -> None:
        """Write the workload, and let the targets write and the source read once: a JVM's first million records are dearer."""
        self.create(self.topics)
        self.write(self.topics)
        sample = Topic(name=_WARM_UP, records=min(400_000, self.records), value_bytes=500)
        for target in self.targets:
            _create(target, sample)
            fill(target.bootstrap_servers, sample, seed=self.seed, say=self.say)
        Copy(self.source.bootstrap_servers, parts_of(self.topics, lambda name: name)).prove()
        self.say("read the source back: complete")
        self.clean()

    def create(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            _create(self.source, topic)

    def write(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            fill(self.source.bootstrap_servers, topic, seed=self.seed, say=self.say)

    def copies(self, name: Callable[[str], str], topics: Sequence[Topic] | None = None) -> list[Copy]:
        parts = parts_of(topics or self.topics, name)
        return [Copy(target.bootstrap_servers, parts) for target in self.targets]

    def write_settings(
        self,
        flows: Iterable[Mapping[str, Any]],
        *,
        name: str = "mirror",
        source: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Path:
        """Write the settings of a mirror between the clusters and return their file; a lake of its own if `more` names none."""
        clusters = {one.alias: {"bootstrap_servers": one.bootstrap_servers} for one in self.clusters}
        clusters[self.source.alias] |= source or {}
        settings = {"lake": {"root": str(self.directory / f"lake-{name}")}, "clusters": clusters, "flows": [*flows]}
        path = self.directory / f"{name}.yml"
        path.write_text(json.dumps(settings | more))
        return path

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


def _create(cluster: KafkaCluster, topic: Topic) -> None:
    client = _admin(cluster)
    new = NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=1)
    _all_done(client.create_topics([new]))


def _admin(cluster: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def _all_done(futures: dict[str, Any]) -> None:
    for name, future in futures.items():
        try:
            future.result(60)
        except KafkaException as error:
            raise RuntimeError(f"topic {name}: {error}") from error
