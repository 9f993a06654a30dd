"""A consumer group that cannot be read or set is held by name; it stops neither the other groups nor the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import told, write_conf
from tests.kit.records import (
    Where,
    address_of,
    commit,
    committed,
    count,
    new_topic,
    topic_name,
)
from tests.servers.guarded import GUARDED, Acl, login, set_acls


@contextmanager
def committing(where: Where, group: str, topic: str, positions: Mapping[int, int]) -> Iterator[None]:
    """Commit for a group in a transaction that stays open for the block, and is committed at its end."""
    options = {"bootstrap.servers": address_of(where)}
    producer = Producer({**options, "transactional.id": topic_name("app"), "transaction.timeout.ms": 900_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    reader = Consumer({**options, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, partition, at) for partition, at in positions.items()]
    producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 60)
    reader.close()
    yield
    producer.commit_transaction(60)


def rows_of(document: Any, group: str) -> list[Any]:
    return [row for row in document["groups"] if row["group"] == group]


@pytest.mark.law("A")
def test_law_a_a_group_that_an_open_transaction_commits_for_is_held_and_the_others_move(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    topic, readers = new_topic(east, 40), topic_name("readers")
    plain, hung = f"{readers}-plain", f"{readers}-hung"
    commit(east, plain, topic, {0: 5, 1: 6})
    commit(east, hung, topic, {0: 3, 1: 4})
    flow = {"name": readers, "source": "east", "target": "central", "topics": topic, "groups": f"{readers}.*"}
    clusters = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    conf = str(write_conf(tmp_path, clusters, [flow]))
    with committing(east, hung, topic, {0: 9}):
        told("run", "--once", "--conf", conf)
        assert count(central, f"east.{topic}") == 40
        assert committed(central, plain, f"east.{topic}", 2) == {0: 5, 1: 6}, "it waits for no other group"
        assert committed(central, hung, f"east.{topic}", 2) == {}
        rows = rows_of(told("groups", "--flow", readers, "--conf", conf), hung)
        assert [(row["partition"], row["upstream_offset"], row["action"]) for row in rows] == [
            (0, 3, "hold"),
            (1, 4, "hold"),
        ]
        assert all("a transaction that is open on east" in row["reason"] for row in rows)
        report = told("failover", "--flow", readers, "--dry-run", "--conf", conf)
        assert {row["action"] for row in rows_of(report, hung)} == {"hold"}, "a failover does not place it silently"
        assert "hold" not in {row["action"] for row in rows_of(report, plain)}
    told("groups", "--flow", readers, "--apply", "--conf", conf)
    assert committed(central, hung, f"east.{topic}", 2) == {0: 9, 1: 4}


def test_a_group_that_the_login_may_not_read_or_set_is_named_and_the_others_move(
    guarded_clusters: Mapping[str, KafkaCluster], tmp_path: Path
) -> None:
    east, central = guarded_clusters["east"], guarded_clusters["central"]
    topic, readers = new_topic(east, 40), topic_name("readers")
    hidden, fixed, free = (f"{readers}-{name}" for name in ("a-hidden", "b-fixed", "free"))
    for group in (hidden, fixed, free):
        commit(east, group, topic, {0: 5, 1: 6})
    everything = [Acl("*", "ALL", resource=kind, principal="User:mirror") for kind in ("TOPIC", "TRANSACTIONAL_ID")]
    cluster = Acl("kafka-cluster", "ALL", resource="CLUSTER", principal="User:mirror")
    everything += [Acl("mirrorlake", "ALL", resource="GROUP", pattern="PREFIXED", principal="User:mirror")]
    seen = [Acl(group, "ALL", resource="GROUP", principal="User:mirror") for group in (fixed, free)]
    read = [Acl(group, "DESCRIBE", resource="GROUP", principal="User:mirror") for group in (hidden, fixed)]
    set_acls(east, add=[*everything, *seen, cluster])
    set_acls(central, add=[*everything, *read, seen[1], cluster])
    flow = {"name": readers, "source": "east", "target": "central", "topics": topic, "groups": [hidden, fixed, free]}
    addresses = {alias: cluster.address(GUARDED.name) for alias, cluster in guarded_clusters.items()}
    logins = {alias: {"client": login("mirror")} for alias in addresses}
    conf = str(write_conf(tmp_path, addresses, [flow], **logins))
    refused = told("run", "--once", "--conf", conf, code=4)
    assert (refused["error"], fixed in refused["cause"]) == ("NotAuthorized", True)
    assert f"--group {fixed}" in refused["remedy"]
    assert count(central, f"east.{topic}") == 40
    assert committed(central, free, f"east.{topic}", 2) == {0: 5, 1: 6}, "the groups after it are placed"
    [row] = rows_of(told("groups", "--flow", readers, "--conf", conf), hidden)
    assert (row["action"], row["partition"]) == ("hold", None)
    assert "does not allow User:mirror" in row["reason"]
    set_acls(central, add=[Acl(fixed, "READ", resource="GROUP", principal="User:mirror")])
    refused = told("run", "--once", "--conf", conf, code=4)
    assert (hidden in refused["remedy"], committed(central, fixed, f"east.{topic}", 2)) == (True, {0: 5, 1: 6})
    # Only who may describe the cluster is listed the groups that it may not read.
    set_acls(east, remove=[cluster])
    report = told("failover", "--flow", readers, "--conf", conf)
    assert [(row["action"], row["source"]) for row in rows_of(report, hidden)] == [("hold", "")]
