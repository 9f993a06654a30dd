"""Always on: new topics and partitions are picked up while running; SIGTERM ends cleanly; progress is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import (
    add_partitions,
    assert_equal_topics,
    consume,
    create_topic,
    delete_ledgers,
    produce,
    run_cli,
    running,
    staying_on,
    wait_until,
    write_conf,
)
from tests.flow.mirror.test_laws import topic_name
from tests.servers.lakes import MakeMirror


@pytest.mark.law("C", "D", "F")
def test_new_topics_and_partitions_are_mirrored_without_a_restart(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    prefix = topic_name("grow")
    first, second = f"{prefix}-a", f"{prefix}-b"
    create_topic(east.bootstrap_servers, first, 1)
    produce(east.bootstrap_servers, first, 50, partitions=1)
    flow = {"source": "east", "target": "central", "topics": f"{prefix}-.*"}
    mirror = make_mirror({"east": east, "central": central}, [flow])
    with staying_on(mirror) as failures:
        names = lambda: mirror.admin("central").topic_names()  # noqa: E731
        wait_until(lambda: f"east.{first}" in names() or failures, "the first topic is mirrored")
        create_topic(east.bootstrap_servers, second, 3, retention_ms="86400000")
        produce(east.bootstrap_servers, second, 300, partitions=3)
        add_partitions(east.bootstrap_servers, first, 3)
        produce(east.bootstrap_servers, first, 300, partitions=3, seed=2)

        def arrived() -> bool:
            if failures or f"east.{second}" not in names():
                return bool(failures)
            return all(
                sum(map(len, consume(central.bootstrap_servers, f"east.{name}").values())) == count
                for name, count in ((first, 350), (second, 300))
            )

        wait_until(arrived, "both topics with all their partitions are mirrored")
    for name in (first, second):
        assert_equal_topics(consume(east.bootstrap_servers, name), consume(central.bootstrap_servers, f"east.{name}"))
    assert mirror.admin("central").configs([f"east.{second}"])[f"east.{second}"] == {"retention.ms": "86400000"}
    assert all(row.verdict == "in_step" for row in mirror.status()["east->central"])


@pytest.mark.law("C", "D", "F")
def test_sigterm_ends_a_run_cleanly_and_the_next_one_goes_on(
    east: KafkaCluster, central: KafkaCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_name()
    delete_ledgers(central.bootstrap_servers)
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 1000)
    conf = write_conf(
        tmp_path,
        {"east": east.bootstrap_servers, "central": central.bootstrap_servers},
        [{"source": "east", "target": "central", "topics": topic}],
    )
    with running(tmp_path / "run.log", "run", "--conf", str(conf)) as process:
        wait_until(
            lambda: f"east.{topic}" in _topics(central) or process.popen.poll() is not None, "something is mirrored"
        )
        assert process.terminate() == 0, process.output
        assert "Traceback" not in process.output
    done = run_cli("run", "--once", "--conf", str(conf), "--json")
    assert done.returncode == 0, done.stderr
    assert_equal_topics(consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}"))


def _topics(cluster: KafkaCluster) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics)
