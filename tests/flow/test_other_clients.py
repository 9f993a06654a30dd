"""Records that Java's console producer wrote are read back by Java's console consumer, through the lake."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from mirrorlake.sandbox import KafkaCluster
from tests.flow.java import CONSUMER, PRODUCER, java
from tests.flow.kit import consume, create_topic
from tests.flow.test_laws import topic_name
from tests.servers.lakes import MakeMirror


def test_java_writes_and_java_reads(
    make_cluster: Callable[..., KafkaCluster], central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    east, topic = make_cluster("east").start(), topic_name()
    create_topic(east.bootstrap_servers, topic, 1)
    lines = [f"a:1,b:{number}\tkey-{number}\tvälue-{number}" for number in range(200)]
    java(
        PRODUCER,
        *("--bootstrap-server", east.bootstrap_servers, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        stdin="\n".join(lines) + "\n",
    )
    mirror = make_mirror({"east": east, "central": central}, [{"source": "east", "target": "central", "topics": topic}])
    mirror.run(once=True)
    mirror.sample(once=True)
    mirror.plan_groups("east->central")
    assert mirror.verify()[0].equal
    # A broker makes the topic of its groups when somebody first asks for one.
    there = AdminClient({"bootstrap.servers": east.bootstrap_servers}).list_topics(timeout=20).topics
    assert set(there) == {topic}, "law H: a source that nobody ever consumed from keeps a trace of the mirror"
    printed = java(
        CONSUMER,
        *("--bootstrap-server", central.bootstrap_servers, "--topic", f"east.{topic}", "--from-beginning"),
        *("--max-messages", "200", "--isolation-level", "read_committed"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
    )
    assert printed.splitlines() == lines
    source, target = consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}")
    assert [r.content for r in source[0]] == [r.content for r in target[0]], "law C"
