"""Law F: a republisher that slept while another one took over writes nothing when it wakes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import (
    Process,
    assert_equal_topics,
    consume,
    create_topic,
    delete_ledgers,
    produce,
    run_cli,
    wait_until,
    write_conf,
)
from tests.flow.map_check import assert_map_is_exact
from tests.flow.mirror.test_laws import topic_name


@pytest.mark.law("C", "D", "F")
def test_law_f_a_woken_zombie_writes_nothing(
    east: KafkaCluster, central: KafkaCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_name()
    delete_ledgers(central.bootstrap_servers)
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 2000, seed=1)
    conf = write_conf(
        tmp_path,
        {"east": east.bootstrap_servers, "central": central.bootstrap_servers},
        [{"source": "east", "target": "central", "topics": topic, "chunk_records": 100}],
    )
    landed = run_cli("land", "--source", "east", "--once", "--conf", str(conf))
    assert landed.returncode == 0, landed.stderr
    arguments = ("republish", "--flow", "east->central", "--conf", str(conf))
    zombie = Process(tmp_path / "zombie.log", *arguments)
    heir = None
    try:
        remote = f"east.{topic}"
        wait_until(lambda: _count(central, remote) > 0, "the first republisher has sent something")
        _signal_tree(zombie, signal.SIGSTOP)
        produce(east.bootstrap_servers, topic, 2000, seed=2)
        landed = run_cli("land", "--source", "east", "--once", "--conf", str(conf))
        assert landed.returncode == 0, landed.stderr
        heir = Process(tmp_path / "heir.log", *arguments)
        wait_until(lambda: _count(central, remote) == 4000, "the second republisher has sent everything")
        _signal_tree(zombie, signal.SIGCONT)
        produce(east.bootstrap_servers, topic, 500, seed=3)
        landed = run_cli("land", "--source", "east", "--once", "--conf", str(conf))
        assert landed.returncode == 0, landed.stderr
        wait_until(lambda: zombie.popen.poll() is not None, "the zombie notices that it was replaced")
        assert zombie.popen.returncode == 3, zombie.output
        assert "belongs to another republisher" in zombie.output
        wait_until(lambda: _count(central, remote) == 4500, "the heir goes on")
        assert heir.popen.poll() is None, f"the heir was fenced by the zombie:\n{heir.output}"
        assert heir.terminate() == 0, heir.output
        source, target = consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, remote)
        assert_equal_topics(source, target)
        assert_map_is_exact(tmp_path / "lake", "east->central", topic, source, target)
    finally:
        for process in (zombie, heir):
            if process is not None and process.popen.poll() is None:
                _signal_tree(process, signal.SIGCONT)
                process.kill()


def _count(cluster: KafkaCluster, topic: str) -> int:
    from confluent_kafka.admin import AdminClient

    if topic not in AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics:
        return 0
    return sum(len(records) for records in consume(cluster.bootstrap_servers, topic).values())


def _signal_tree(process: Process, number: signal.Signals) -> None:
    """Stop or wake the command with its JVM and its Python workers."""
    import psutil

    root = psutil.Process(process.popen.pid)
    for one in [root, *root.children(recursive=True)]:
        one.send_signal(number)
