"""Lake clusters in the settings, and what a producer into one refuses before anything is queued."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from mirrorlake.config import loads
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import ConfigError, StoreError, UsageError
from mirrorlake.publish import LakeProducer, Published
from mirrorlake.publish.publisher import PublishedRange
from mirrorlake.publish.rows import TopicLimits


def config(app: str, *, target: str = "east") -> MirrorConfig:
    return loads(
        f"lake: {{root: ./lake}}\nclusters:\n  app: {app}\n  east: {{bootstrap_servers: 'e:1'}}\n"
        f"flows: [{{source: {'app' if target == 'east' else 'east'}, target: {target}, topics: '.*'}}]"
    )


def test_a_lake_cluster_has_topics_and_counts() -> None:
    found = config("{kind: lake, partitions: 3, topics: {orders: {partitions: 6, configs: {retention.ms: 5}}, pay: }}")
    app = found.cluster("app")
    assert (found.lake_clusters, found.lake_cluster(None), found.lake_cluster("app")) == (("app",), "app", "app")
    assert [app.partitions_of(topic) for topic in ("orders", "pay", "other")] == [6, 3, 3]
    assert app.topics["orders"].configs == {"retention.ms": "5"}
    assert not found.cluster("east").is_lake
    with pytest.raises(UsageError, match="'east' is not a lake cluster"):
        found.lake_cluster("east")


@pytest.mark.parametrize(
    ("app", "place", "problem"),
    [
        ("{kind: lake, bootstrap_servers: 'a:1'}", ".bootstrap_servers", "a lake cluster has no brokers"),
        ("{kind: lake, client: {client.id: x}}", ".client", "'client' has no effect on a lake cluster"),
        ("{kind: lake, land: {on_gap: record}}", ".land", "'land' has no effect on a lake cluster"),
        ("{bootstrap_servers: 'a:1', partitions: 2}", ".partitions", "'partitions' is for lake clusters"),
        ("{bootstrap_servers: 'a:1', topics: {a: }}", ".topics", "'topics' is for lake clusters"),
        ("{kind: lke}", ".kind", "did you mean 'lake'?"),
        ("{}", "", "'bootstrap_servers' is missing"),
        ("{kind: lake, topics: {a/b: }}", ".topics.a/b", "not a legal topic name"),
        ("{kind: lake, topics: {__offsets: }}", ".topics.__offsets", "is internal to Kafka"),
        ("{kind: lake, topics: {a: {partitions: 0}}}", ".topics.a.partitions", "out of range"),
        ("{kind: lake, topics: {a: {configs: {retention: 1}}}}", ".topics.a.configs.retention", "not a topic setting"),
        ("{kind: lake, topics: [a]}", ".topics", "a mapping is expected"),
    ],
)
def test_faults_of_a_lake_cluster_say_place_and_remedy(app: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(app)
    found = [str(fault) for fault in refused.value.faults]
    assert any(f"clusters.app{place}" in text and problem in text and " — " in text for text in found), found


def test_a_lake_cluster_is_never_a_target() -> None:
    with pytest.raises(ConfigError, match=r"flows\[0\].target: 'app' is a lake cluster, which can only be a source"):
        config("{kind: lake}", target="app")


class Memory:
    """A publisher that keeps batches by name, as the lake does; it may be away."""

    def __init__(self) -> None:
        self.batches: dict[str, Any] = {}
        self.is_away = False
        self.sent = 0

    def limits(self, names: Sequence[str]) -> dict[str, TopicLimits]:
        return {name: TopicLimits(partitions=6, max_bytes=1000) for name in names}

    def now(self) -> datetime:
        return datetime.fromtimestamp(0.007, timezone.utc)

    def append_batch(self, rows: Any, *, name: str) -> Published:
        self.sent += 1
        self.batches[name] = rows.to_pylist()
        if self.is_away:
            raise StoreError("the store is away")
        places = {(row["topic"], row["partition"]) for row in rows.to_pylist()}
        ranges = [PublishedRange(topic=t, partition=p, first_offset=100, last_offset=199) for t, p in sorted(places)]
        return Published(cluster="app", records=len(rows), partitions=tuple(ranges))


def producer(memory: Memory, **options: Any) -> LakeProducer:
    config = {"linger.ms": 3_600_000, **{name.replace("_", "."): value for name, value in options.items()}}
    return LakeProducer(cast("Any", memory), config=config)


def test_records_without_a_key_go_over_all_partitions_and_are_told_their_offsets() -> None:
    memory, told = Memory(), []
    with producer(memory) as producing:
        for number in range(30):
            report = lambda _, m: told.append((m.value(), m.partition(), m.offset()))  # noqa: E731
            producing.produce("t", str(number), on_delivery=report)
    [rows] = memory.batches.values()
    assert {row["partition"] for row in rows} == set(range(6))
    assert sorted(told) == sorted((row["value"], row["partition"], 100 + row["rank"]) for row in rows)


def test_a_full_queue_is_a_buffer_error_and_a_flush_makes_room() -> None:
    memory = Memory()
    with producer(memory, queue_buffering_max_messages=2) as producing:
        producing.produce("t", "1")
        producing.produce("t", "2")
        with pytest.raises(BufferError, match="2 records wait"):
            producing.produce("t", "3")
        assert producing.flush() == 0
        producing.produce("t", "3")
    assert memory.sent == 2


@pytest.mark.law("F")
def test_law_f_what_failed_keeps_its_name_and_its_records() -> None:
    memory = Memory()
    with producer(memory) as producing:
        memory.is_away = True
        producing.produce("t", "1")
        with pytest.raises(StoreError):
            producing.flush()
        producing.produce("t", "2")
        assert len(producing) == 2
        memory.is_away = False
        assert producing.flush() == 0
    assert [[row["value"] for row in rows] for rows in memory.batches.values()] == [[b"1"], [b"2"]]


def test_a_failed_batch_is_published_later_though_nothing_more_is_queued() -> None:
    class AwayAtFirst(Memory):
        def append_batch(self, rows: Any, *, name: str) -> Published:
            self.is_away = not self.sent
            return super().append_batch(rows, name=name)

    memory = AwayAtFirst()
    with producer(memory, linger_ms=1) as producing:
        producing.produce("t", "1")
        producing.poll(20)
        assert (len(producing), memory.sent) == (0, 2), "it is tried again without a flush"
    assert [[row["value"] for row in rows] for rows in memory.batches.values()] == [[b"1"]]


def test_reports_come_from_poll_and_flush_only_and_may_produce() -> None:
    memory, told = Memory(), []
    with producer(memory, batch_num_messages=1) as producing:

        def report(_: Any, message: Any) -> None:
            told.append(message.value())
            if len(told) == 1:
                producing.produce("t", "again", on_delivery=report)

        producing.produce("t", "first", on_delivery=report)
        assert producing.poll(30) == 1
        assert producing.poll(30) == 1
        assert (told, len(producing), producing.poll(0)) == ([b"first", b"again"], 0, 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topic": "t", "partition": 6}, "t has 6 partitions, no partition 6"),
        ({"topic": "t", "partition": -2}, "partition -2"),
        ({"topic": "t", "timestamp": -1}, "1970 or before"),
        ({"topic": "t", "timestamp": 10**18}, "past the year 9999"),
        ({"topic": "t", "value": "x" * 1000}, "1000 bytes"),
        ({"topic": "t", "headers": [("h", "x" * 1000)]}, "1001 bytes"),
        ({"topic": "a b"}, "not a legal topic name"),
        ({"topic": "mirrorlake.a.ledger"}, "internal"),
    ],
)
def test_a_record_that_no_flow_could_carry_is_not_queued(arguments: dict[str, Any], problem: str) -> None:
    memory = Memory()
    with producer(memory) as producing, pytest.raises(UsageError, match=problem):
        producing.produce(**arguments)
    assert memory.sent == 0


def test_types_and_options_are_those_of_librdkafka() -> None:
    with producer(Memory()) as producing:
        for arguments in ({"value": 1}, {"key": 1.5}, {"headers": [(b"h", b"")]}, {"headers": {"h": 1}}):
            with pytest.raises(TypeError):
                producing.produce("t", **arguments)
    for config in ({"linger": 1}, {"linger.ms": "x"}, {"linger.ms": -1}):
        with pytest.raises(UsageError, match="is not an option of a lake cluster's producer"):
            LakeProducer(cast("Any", Memory()), config=config)
    with pytest.raises(RuntimeError, match="closed"):
        producing.produce("t")
