"""Five groups of two languages fail over: each goes on at the target with exactly the records that it had not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import told
from tests.kit.java import CONSUMER, java
from tests.kit.records import (
    ABORTED,
    Where,
    address_of,
    commit,
    committed,
    create_topic,
    end_of,
    send,
    send_transactions,
    topic_name,
)
from tests.servers.lakes import MakeMirror

PARTITIONS = 4
PLAIN, TRANSACTIONS, EACH = 4_000, 12, 200
# How many records each group still has to read.
BEHIND = {"at-the-tip": 0, "a-hundred": 100, "half": 3_000, "nearly-all": 5_600}
JAVA_READ = 1_000


def fill(where: Where, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """Write plain records and then transactions, every sixth aborted; return offset and value of what counts."""
    written: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(PARTITIONS)}
    options = {"linger.ms": 20, "compression.type": "lz4"}
    for number in range(PLAIN):
        written[number % PARTITIONS].append((number // PARTITIONS, b"%d" % number))
    plain = ((b"%d" % number, None, number % PARTITIONS) for number in range(PLAIN))
    send(where, topic, plain, **options, **{"enable.idempotence": True})

    def transaction(count: int) -> tuple[list[tuple[bytes, None, int]], bool]:
        is_aborted = count % 6 == 5
        # Each transaction leaves a marker after its records in every partition.
        first = PLAIN // PARTITIONS + count * (EACH // PARTITIONS + 1)
        values = [b"%s%d-%d" % (ABORTED if is_aborted else b"", count, number) for number in range(EACH)]
        for number, value in enumerate(() if is_aborted else values):
            written[number % PARTITIONS].append((first + number // PARTITIONS, value))
        return [(value, None, number % PARTITIONS) for number, value in enumerate(values)], not is_aborted

    send_transactions(where, topic, map(transaction, range(TRANSACTIONS)), **options)
    return written


def commit_behind(
    where: Where, group: str, topic: str, written: dict[int, list[tuple[int, bytes]]], behind: int
) -> None:
    share = behind // PARTITIONS
    places = {p: records[-share][0] if share else end_of(where, topic, p) for p, records in written.items()}
    commit(where, group, topic, places)


def read_on(where: Where, group: str, topic: str, expected: int) -> dict[int, list[bytes]]:
    """Go on as a member of the group until it has read what is expected and the end of every partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address_of(where),
            "group.id": group,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    read: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS or sum(map(len, read.values())) < expected:
        for message in consumer.consume(20_000, timeout=0.2):
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", f"{group}: {message.error()}"
                ended.add(message.partition())
            else:
                read[message.partition()].append(message.value())
    consumer.close()
    return read


@pytest.mark.law("A")
def test_law_a_five_groups_carry_on_when_the_source_is_gone(
    make_cluster: Callable[..., KafkaCluster], central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    source = make_cluster("east")
    source.start()
    tag = topic_name()
    topic, java_group = f"orders-{tag}", f"java-{tag}"
    create_topic(source, topic, PARTITIONS)
    written = fill(source, topic)
    groups = {f"{name}-{tag}": behind for name, behind in BEHIND.items()}
    for group, behind in groups.items():
        commit_behind(source, group, topic, written, behind)
    options = ("--isolation-level", "read_committed")
    arguments = ("--bootstrap-server", source.bootstrap_servers, "--topic", topic, "--group", java_group)
    java(CONSUMER, *arguments, *options, "--from-beginning", "--max-messages", str(JAVA_READ))
    reached = {group: committed(source, group, topic, PARTITIONS) for group in (*groups, java_group)}

    flow = {"source": "east", "target": "central", "topics": "orders-.*", "groups": f".*-{tag}"}
    mirror = make_mirror({"east": source, "central": central}, [flow])
    mirror.run(once=True)
    plan = mirror["east->central"].groups()
    assert {p.group for p in plan} == {*groups, java_group}
    assert all(p.action == "in_step" and p.resume.exact for p in plan), f"--once keeps groups in step:\n{plan}"
    source.kill()

    conf = str(tmp_path / "mirror.yml")
    recorded = told("groups", "--flow", "east->central", "--recorded", "--conf", conf)["groups"]
    assert {row["action"] for row in recorded} == {"in_step"}, "the lake knows the groups when the source is gone"

    unread = {
        group: {p: [value for offset, value in records if offset >= at.get(p, 0)] for p, records in written.items()}
        for group, at in reached.items()
    }
    for group, behind in groups.items():
        assert sum(map(len, unread[group].values())) == behind
        read = read_on(central, group, f"east.{topic}", behind)
        assert read == unread[group], f"law A: {group} skipped or repeated records"
    arguments = ("--bootstrap-server", central.bootstrap_servers, "--topic", f"east.{topic}", "--group", java_group)
    # Without --from-beginning a group that had no position would read nothing; one that goes on too early ends too early, and
    # one that goes on too late waits for more. That nothing comes past the end, the other groups have seen.
    due = sum(map(len, unread[java_group].values()))
    printed = java(CONSUMER, *arguments, *options, "--max-messages", str(due), "--timeout-ms", "60000", check=False)
    assert sorted(printed.split()) == sorted(v.decode() for vs in unread[java_group].values() for v in vs), (
        "law A: Java's group skipped or repeated records"
    )
