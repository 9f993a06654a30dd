"""The doctor on real brokers: a mirror in order has no finding, and each fault of a topic, a ledger or a group is named."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.mirror import Mirror
from tests.flow.kit import add_partitions, address_of, delete_topic, member, open_transaction, send, wait_until
from tests.servers.lakes import Pair

# What depends on the machine that runs the tests.
MACHINE = ("java", "spark", "disk", "memory", "limits", "folders", "tracking", "metrics")


@contextmanager
def clock(mirror: Mirror, later: timedelta) -> Iterator[None]:
    """Let a mirror live at a later time."""
    connections = mirror._context
    now = connections.now
    connections.now = lambda: datetime.now(timezone.utc) + later
    try:
        yield
    finally:
        connections.now = now


def found(mirror: Mirror, *only: str, later: timedelta = timedelta()) -> dict[str, str]:
    """Return what some checks find, by name: the details, joined; at a later time where that is given."""
    with clock(mirror, later):
        report = mirror.doctor(only=only)
    assert all(one.fix for one in report.bad)
    told: dict[str, str] = {}
    for one in report.bad:
        told[one.check] = f"{told.get(one.check, '')} {one.subject}: {one.detail}".strip()
    return told


def test_every_fault_of_topics_ledger_and_groups_has_its_finding(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, remote = pair.topic, pair.remote
    pair.create(40)
    # A live task has no checkpoint location that could be lost.
    mirror = pair.mirror(east={"land": {"execution": "streaming"}})
    mirror.run(once=True)
    central = mirror.admin("central")
    assert mirror.doctor(skip=MACHINE).bad == [], "nothing is wrong with a mirror that has just run"

    # Settings of topics, put back at once.
    def with_setting(name: str, key: str, value: str, check: str) -> str:
        central.set_configs(name, {key: value})
        wait_until(lambda: central.configs([name])[name].get(key) == value, f"{key} is set")
        told = found(mirror, check)
        central.set_configs(name, {key: None} if name == remote else {key: before[key]})
        assert list(told) == [check], (key, value)
        return told[check]

    ledger = mirror.config.flows[0].ledger_topic
    before = central.configs([ledger])[ledger]
    assert "accepts 50000 bytes" in with_setting(remote, "max.message.bytes", "50000", "target.max-message-bytes")
    assert "law C" not in with_setting(remote, "message.timestamp.type", "LogAppendTime", "target.timestamp-type")
    assert "records without a key" in with_setting(remote, "cleanup.policy", "compact", "target.cleanup-policy")
    assert "the target deletes them" in with_setting(remote, "retention.ms", "1", "target.retention")
    assert f"{remote}-0 (1 of 2)" in with_setting(remote, "min.insync.replicas", "2", "target.in-sync")
    assert "retention.ms=86400000" in with_setting(ledger, "retention.ms", "86400000", "ledger.settings")

    # Time that passes, and records that wait.
    assert found(mirror, "source.retention", later=timedelta(days=30)) == {}, "nobody waits in an idle topic"
    send(pair.east, topic, [(b"waits", b"k", 0)])
    assert "may delete them in 0 ms" in found(mirror, "source.retention", later=timedelta(days=8))["source.retention"]
    east = mirror.admin("east")
    east.set_configs(topic, {"cleanup.policy": "compact"})
    wait_until(lambda: "compact" in east.configs([topic])[topic].get("cleanup.policy", ""), "the policy is set")
    told = found(mirror, "source.retention", later=timedelta(days=8))["source.retention"]
    assert "keeps tombstones for 1 d 0 h" in told
    assert "may delete" not in told
    with open_transaction(pair.east, topic):
        assert found(mirror, "transactions.open") == {}, "a transaction may be open"
        told = found(mirror, "transactions.open", later=timedelta(minutes=5))["transactions.open"]
        assert f"{topic}-0: a transaction of the source is open since " in told
        assert "offsets from 21 on cannot be read yet" in told
        with clock(mirror, timedelta(minutes=5)):
            [reason] = [row.reason for row in mirror.status().flows[0] if row.state == "blocked"]
        assert reason.partition(",")[0] in told, "status says the same"
    in_an_hour = int((time.time() + 3600) * 1000)
    send(pair.east, topic, [{"value": b"early", "key": b"k", "partition": 1, "timestamp": in_an_hour}])
    assert f"those of {topic}-1 by " in found(mirror, "clock.skew")["clock.skew"]

    # Groups that live, here and there.
    with member(pair.east, "app", topic), member(pair.central, "app", remote), member(pair.central, "east-mm2", remote):
        told = found(mirror, "groups", "mm2")
        assert told.keys() == {"groups.live-on-target", "mm2.beside"}
        assert "live on east and central: app" in told["groups.live-on-target"]
        assert "1 worker on central" in told["mm2.beside"]

    # Settings that do not fit the clusters.
    odd = pair.mirror(
        pair.flow(topics=f"{topic}, no-such-topic", producer={"transaction.timeout.ms": "3600000"}),
        {**pair.flow(), "name": "again", "policy": {"template": "again.{topic}"}},
        east={"bootstrap_servers": f"127.0.0.1:9,{address_of(pair.east)}", "never_leave": "no-such-secret"},
    )
    told = found(odd, "source.topics", "target.transaction-timeout", "flow", "kafka.addresses")
    assert "east has no topic no-such-topic" in told.pop("source.topics")
    assert "permits 900000: no lane can begin" in told.pop("target.transaction-timeout")
    assert "goes to central by east->central, again" in told.pop("flow.twice")
    assert "names no topic it has: no-such-secret" in told.pop("flow.never-leave")
    assert told.pop("kafka.addresses") == "east: 127.0.0.1:9 connection refused"
    assert told == {}

    # What is lost, last of all.
    add_partitions(pair.east, topic, 3)
    assert "2 partitions on central, 3 are needed" in found(mirror, "target.partitions")["target.partitions"]
    with monkeypatch.context() as patched:
        patched.setattr(ClusterAdmin, "broker_count", lambda _: 3)
        told = found(pair.mirror(), "target.replication", "ledger.replication", "kafka.internal-topics")
        assert told.keys() == {"target.replication", "ledger.replication", "kafka.internal-topics"}
    for folder in Path(pair.lake, "checkpoints", "land", "east").iterdir():
        for name in ("offsets", "commits"):
            shutil.rmtree(folder / name, ignore_errors=True)
    told = found(mirror, "lake.checkpoint-location")
    assert "holds no offsets/ and commits/ any more" in told["lake.checkpoint-location"]
    delete_topic(pair.central, remote)
    assert f"{remote} was deleted on central" in found(mirror, "target.remote-topics").get("target.remote-topics", "")
    delete_topic(pair.central, ledger)
    assert "its ledger is gone from central" in found(mirror, "ledger.state")["ledger.state"]
