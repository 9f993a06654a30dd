"""A transaction that nobody ends: what other producers had acknowledged behind it is counted and named, never told as nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.records import consume, new_topic, send, topic_name

FLOW = "east->central"
BEHIND = 60
# Longer than a status waits until it takes an open transaction for one that hangs.
AGE_S = 600


@contextmanager
def hung_transaction(where: KafkaCluster, topic: str) -> Iterator[None]:
    """Keep a transaction open whose first record, in partition 0, is minutes old; it is committed at the end of the block."""
    options = {"transactional.id": topic_name("hung"), "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": where.bootstrap_servers, **options})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"in the transaction", partition=0, timestamp=int((time.time() - AGE_S) * 1000))
    assert producer.flush(60) == 0
    try:
        yield
    finally:
        producer.commit_transaction(60)


def assert_named(report: Mapping[str, Any], topic: str, first: int) -> None:
    [held] = report["blocked"]
    assert (held["cluster"], held["topic"], held["partition"], held["offset"]) == ("east", topic, 0, first)
    assert held["offsets"] == BEHIND + 1, "the open record, and all that was acknowledged behind it"
    assert held["since_ms"] <= (time.time() - AGE_S) * 1000
    assert "kafka-transactions.sh --bootstrap-server" in held["fix"]
    assert f"abort --topic {topic} --partition 0 --start-offset {first}" in held["fix"]


@pytest.mark.law("E")
def test_law_e_records_behind_an_open_transaction_are_counted_and_named_by_every_way_out(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    topic = new_topic(east, 20)
    flows = [
        {"source": "east", "target": "central", "topics": topic},
        {"source": "central", "target": "east", "topics": topic},
    ]
    clusters = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    conf = ["--conf", str(write_conf(tmp_path, clusters, flows))]
    told("run", "--once", *conf)
    with hung_transaction(east, topic):
        send(east, topic, [(b"acknowledged", b"k", 0)] * BEHIND)
        told("run", "--once", *conf)
        rows = {row["partition"]: row for flow in told("status", *conf)["flows"] for row in flow["partitions"]}
        assert (rows[0]["state"], rows[0]["blocked_offsets"]) == ("blocked", BEHIND + 1)

        planned = told("failover", "--flow", FLOW, "--dry-run", *conf)
        assert planned["missing"] == BEHIND + 1
        assert_named(planned, topic, 10)
        shown = run_cli("failover", "--flow", FLOW, "--dry-run", *conf).stdout
        assert f"{BEHIND + 1} offsets seen and not arrived" in " ".join(shown.split())

        checks = {check["name"]: check for check in told("cutover", "--flow", FLOW, *conf, code=1)["checks"]}
        assert checks["producers"]["state"] == "open"
        assert f"{BEHIND + 1} offsets from 10 on cannot be read yet" in checks["producers"]["said"]
        assert "kafka-transactions.sh" in checks["producers"]["next"]
        assert run_cli("cutover", "--flow", FLOW, "--commit", *conf).returncode == 3, "nothing is switched over"

        done = told("failover", "--flow", FLOW, *conf)
        assert (done["state"], done["missing"]) == ("done", BEHIND + 1)
        assert_named(done, topic, 10)
        assert done["rpo_s"] >= AGE_S, "as old as the first of them"
        back = told("failback", "--flow", FLOW, "--dry-run", *conf)
        assert_named(back, topic, 10)
    back = told("failback", "--flow", FLOW, "--tail", "restore", *conf)
    assert (back["state"], back["tail_records"], back["blocked"]) == ("done", BEHIND + 1, [])
    assert [record.content for record in consume(central, f"east.{topic}")[0]] == [
        record.content for record in consume(east, topic)[0]
    ]
