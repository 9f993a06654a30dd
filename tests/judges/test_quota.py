"""A target that throttles the making of topics (the quota `controller_mutation_rate`) is waited for, by name, and gets every record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import write_conf
from tests.kit.java import java
from tests.kit.processes import Process, wait_until
from tests.kit.records import count, topic_name, topics_of

_QUOTAS = "kafka.admin.ConfigCommand"
# By its eleven windows of a second, a broker puts the next change off for 40 s after the first request of 100 topics.
_TOPICS, _RATE = 105, 2


def test_a_quota_of_the_target_on_making_topics_is_waited_for_and_named(
    east: KafkaCluster, make_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    target, prefix = make_cluster("target").start(), topic_name("many")
    rate = f"controller_mutation_rate={_RATE}"
    to = ("--bootstrap-server", target.bootstrap_servers, "--entity-type", "users", "--entity-default")
    java(_QUOTAS, *to, "--alter", "--add-config", rate)
    wait_until(lambda: rate in java(_QUOTAS, *to, "--describe"), "the quota is set")
    names = [f"{prefix}-{number:03}" for number in range(_TOPICS)]
    source = {"bootstrap.servers": east.bootstrap_servers}
    admin, producer = AdminClient(source), Producer(source)
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result()
    for name in names:
        producer.produce(name, b"value")
    assert producer.flush(60) == 0
    flow = {"source": "east", "target": "target", "topics": f"{prefix}-.*", "groups": "none"}
    conf = str(write_conf(tmp_path, {"east": east.bootstrap_servers, "target": target.bootstrap_servers}, [flow]))
    drain = Process(tmp_path / "drain.log", "run", "--once", "--conf", conf)
    assert drain.popen.wait(400) == 0, drain.output
    assert "controller_mutation_rate" in drain.output, "what it waits for is named"
    assert {f"east.{name}" for name in names} <= topics_of(target)
    assert [name for name in names if count(target, f"east.{name}") != 1] == []
