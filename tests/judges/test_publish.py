"""Produce once: what is published into the lake arrives in both data centres, also in the one that was down."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake import Mirror, from_settings
from mirrorlake.sandbox import KafkaCluster
from tests.kit.map_check import assert_map_is_exact
from tests.kit.records import Record, assert_equal_topics, configs_of, consume, create_topic, rows_of, send, topic_name


def relay_records(mirror: Mirror, topic: str, partitions: int) -> dict[int, list[Record]]:
    """Read the relay as `consume` reads a topic."""
    found: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
    for row in sorted(rows_of(mirror, "relay_app", topic), key=itemgetter("offset")):
        headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
        stamp = round(row["timestamp"].timestamp() * 1000)
        found[row["partition"]].append(Record(row["offset"], row["key"], row["value"], headers, stamp))
    return found


def publish_a_bit(mirror: Mirror, topic: str, *, start: int) -> None:
    """Publish 200 records as a frame and 100 through a producer."""
    numbers = range(start, start + 200)
    frame = mirror.spark.createDataFrame([(f"k{n % 37}", str(n)) for n in numbers], "key string, value string")
    mirror.publish(frame, topic=topic)
    with mirror.producer("app") as producer:
        for number in range(50):
            producer.produce(topic, None if number % 10 == 0 else str(number), f"k{number % 37}")
            producer.produce(topic, b"", None, headers=[("h", b"1"), ("h", None), ("leer", b"")])


@pytest.mark.law("C", "D", "F", "G")
def test_both_data_centres_get_everything_and_the_one_that_was_down_catches_up(
    east: KafkaCluster, make_cluster: Callable[..., KafkaCluster], spark: SparkSession, tmp_path: Path
) -> None:
    topic, reference = topic_name(), topic_name("reference")
    madrid = make_cluster("madrid").start()
    flow: dict[str, Any] = {"source": "app", "topics": topic, "policy": "identity"}

    def mirror_with(partitions: int) -> Mirror:
        published = {topic: {"partitions": partitions, "configs": {"retention.ms": 7_200_000}}}
        targets = {"east": east, "madrid": madrid}
        settings = {
            "lake": {"root": str(tmp_path / "lake")},
            "clusters": {
                "app": {"kind": "lake", "topics": published},
                **{alias: {"bootstrap_servers": cluster.bootstrap_servers} for alias, cluster in targets.items()},
            },
            "flows": [{**flow, "target": alias} for alias in targets],
        }
        return from_settings(settings, spark=spark)

    mirror = mirror_with(6)
    mirror.apply()
    assert not mirror.plan(), "law G"
    assert configs_of(madrid, topic) == {"retention.ms": "7200000"}
    publish_a_bit(mirror, topic, start=0)
    madrid.stop()
    mirror.republish("app->east", once=True)
    publish_a_bit(mirror, topic, start=200)
    mirror.republish("app->east", once=True)
    published = relay_records(mirror, topic, 6)
    assert sum(map(len, published.values())) == 600
    assert_equal_topics(published, consume(east, topic))

    madrid.restart()
    landed, sent = mirror.run(once=True)
    assert (landed, [each.records for each in sent]) == ([], [0, 600])
    for target, cluster in (("east", east), ("madrid", madrid)):
        arrived = consume(cluster, topic)
        assert_equal_topics(published, arrived)
        name = f"app->{target}"
        assert_map_is_exact(tmp_path / "lake", name, topic, published, arrived, asked=mirror[name])
    assert all(one.equal and sum(p.verified for p in one.partitions) == 600 for one in mirror.verify())
    for rows in mirror.status().values():
        assert [(r.source_end, r.landed, r.republished, r.state) for r in rows] == [
            (len(part), len(part), len(part), "caught_up") for part in published.values()
        ]
    assert all(finding.ok for finding in mirror.doctor())

    # The same keys through a client of Kafka's, with the partitioner that is Java's default.
    create_topic(east, reference, 6)
    send(east, reference, [(b"", f"k{number}") for number in range(37)], partitioner="murmur2_random")
    wanted = {r.key: p for p, records in consume(east, reference).items() for r in records}
    assert {r.key: p for p, records in published.items() for r in records if r.key is not None} == wanted

    grown = mirror_with(8)
    assert [(change.where, change.action, change.after) for change in grown.plan().changes] == [
        ("settings", "change", {f"topics.{topic}.partitions": 8}),
        ("east", "add_partitions", 8),
        ("madrid", "add_partitions", 8),
    ]
