"""Ten questions, asked of a real broker and of the cluster in memory that pure tests use: both must answer the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin, Fetcher, PositionGone
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.plan import TopicSpec
from tests.kit.memory_cluster import MemoryCluster
from tests.kit.processes import wait_until
from tests.kit.records import topic_name

# Older ones would be deleted at once.
NOON_MS = int(time.time() * 1000)


class RealCluster:
    """A broker, with the verbs of `MemoryCluster`."""

    def __init__(self, address: str) -> None:
        self.options = {"bootstrap.servers": address}
        self.admin = ClusterAdmin("east", self.options)

    def produce(self, topic: str, partition: int, *values: bytes | None, timestamp: int = 0, **more: Any) -> None:
        producer = Producer(self.options)
        for value in values:
            producer.produce(topic, value, partition=partition, timestamp=timestamp or NOON_MS, **more)
        assert producer.flush(60) == 0

    def fetcher(self, positions: dict[TopicPartition, int]) -> Fetcher:
        return Fetcher("east", {**self.options, "group.id": "asked"}, positions)


@pytest.fixture(params=["memory", "broker"])
def cluster(request: pytest.FixtureRequest) -> Any:
    """A cluster of either kind: `admin` asks and changes, the rest is what happens to it."""
    if request.param == "broker":
        return RealCluster(request.getfixturevalue("east").bootstrap_servers)
    made: Any = MemoryCluster()
    made.admin = made
    return made


@pytest.fixture
def topic(cluster: Any) -> str:
    return create(cluster, partitions=2)


def create(cluster: Any, *, partitions: int = 1, name: str = "", **configs: str) -> str:
    name = name or topic_name("asked")
    cluster.admin.create(TopicSpec(name=name, partitions=partitions, configs=configs))
    wait_shown(cluster, name, partitions)
    return name


def wait_shown(cluster: Any, name: str, partitions: int) -> None:
    until(lambda: name in (found := cluster.admin.describe([name])) and found[name].partitions == partitions)


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, "the broker shows it")


def ends(cluster: Any, topic: str, partition: int = 0) -> tuple[int, int, int]:
    tp = [TopicPartition(topic, partition)]
    admin = cluster.admin
    asked = (admin.log_start_offsets, admin.last_stable_offsets, admin.high_watermarks)
    return tuple(next(iter(ask(tp).values())) for ask in asked)  # type: ignore[return-value]


def read(cluster: Any, topic: str, start: int = 0) -> tuple[list[tuple[int, bytes | None]], int]:
    """Fetch from an offset to the last stable one; return offsets and values, and up to where it was read."""
    tp, rows, at = TopicPartition(topic, 0), list[tuple[int, bytes | None]](), start
    [end] = cluster.admin.last_stable_offsets([tp]).values()
    with cluster.fetcher({tp: start}) as fetcher:
        while at < end:
            found = fetcher.fetch(0.5, max_s=1.0, max_bytes=1 << 20, max_records=1_000)
            for table in found.rows.values():
                rows += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
            at = found.read_to.get(tp, at)
    return rows, at


def test_names_partitions_and_a_topic_that_nobody_made(cluster: Any, topic: str) -> None:
    state = cluster.admin.describe([topic, "nobody-made-it"])
    assert {name: (one.partitions, one.leaderless) for name, one in state.items()} == {topic: (2, frozenset())}
    assert topic in cluster.admin.topic_names()


def test_a_topic_that_was_deleted_and_made_again_has_another_id(cluster: Any, topic: str) -> None:
    before = cluster.admin.describe([topic])[topic].topic_id
    cluster.admin.delete(topic)
    until(lambda: not cluster.admin.describe([topic]))
    cluster.admin.delete(topic)
    create(cluster, name=topic)
    assert cluster.admin.describe([topic])[topic].topic_id != before


def test_a_topic_that_exists_stays_as_it_is_and_a_bad_name_is_refused(cluster: Any, topic: str) -> None:
    specs = [TopicSpec(name=topic, partitions=9), TopicSpec(name="n" * 250, partitions=1)]
    assert set(cluster.admin.create_all(specs)) == {"n" * 250}
    assert cluster.admin.describe([topic])[topic].partitions == 2


def test_a_topic_grows_and_what_is_grown_already_stays(cluster: Any, topic: str) -> None:
    for wanted in (3, 3):
        cluster.admin.grow(topic, wanted)
        wait_shown(cluster, topic, 3)


def test_settings_of_its_own_and_those_of_the_cluster(cluster: Any) -> None:
    topic = create(cluster, **{"retention.ms": "3600000"})
    assert cluster.admin.default_cleanup([topic]) == "delete"
    cluster.admin.set_configs(topic, {"retention.ms": None, "cleanup.policy": "compact"})
    until(lambda: cluster.admin.configs([topic]) == {topic: {"cleanup.policy": "compact"}})
    assert cluster.admin.config_value(topic, "retention.ms") == "604800000"
    assert cluster.admin.default_cleanup([topic]) == "", "it shows no default"


def test_an_empty_partition_begins_and_ends_at_0(cluster: Any, topic: str) -> None:
    assert ends(cluster, topic) == (0, 0, 0)
    assert read(cluster, topic) == ([], 0)


def test_records_are_deleted_below_an_offset_which_is_gone_then(cluster: Any, topic: str) -> None:
    cluster.produce(topic, 0, b"a", b"b", b"c")
    cluster.admin.delete_records_before({TopicPartition(topic, 0): 2})
    assert read(cluster, topic, 2) == ([(2, b"c")], 3)
    assert ends(cluster, topic) == (2, 3, 3)
    with pytest.raises(PositionGone), cluster.fetcher({TopicPartition(topic, 0): 0}) as fetcher:
        until(lambda: fetcher.fetch(0.5, max_s=1.0, max_bytes=1 << 20, max_records=10).read_to)


def test_keys_headers_and_nulls_come_as_they_were_written(cluster: Any, topic: str) -> None:
    headers = [("a", b"1"), ("a", None), ("", b"")]
    cluster.produce(topic, 0, None, key=b"k", headers=headers, timestamp=NOON_MS + 7)
    with cluster.fetcher({TopicPartition(topic, 0): 0}) as fetcher:
        found: Any = SimpleNamespace(rows={})
        while not found.rows:
            found = fetcher.fetch(0.5, max_s=1.0, max_bytes=1 << 20, max_records=10)
    [row] = found.rows[TopicPartition(topic, 0)].to_pylist()
    assert (row["key"], row["value"], row["timestamp_type"]) == (b"k", None, 0)
    assert [(one["key"], one["value"]) for one in row["headers"]] == headers
    assert row["timestamp"].timestamp() * 1000 == NOON_MS + 7


def test_the_first_offset_at_a_time_or_the_end(cluster: Any, topic: str) -> None:
    for late in (0, 10, 20):
        cluster.produce(topic, 0, b"v", timestamp=NOON_MS + late)
    tp = TopicPartition(topic, 0)
    asked = [cluster.admin.offsets_for_time([tp], NOON_MS + late)[tp] for late in (0, 1, 20, 21)]
    assert asked == [0, 1, 2, 3]


def test_a_partition_that_nobody_has(cluster: Any, topic: str) -> None:
    with pytest.raises(ClusterError):
        cluster.admin.log_start_offsets([TopicPartition(topic, 7)])
