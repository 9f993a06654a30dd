"""The doctor on real brokers: a mirror in order has no finding, and each fault of a topic, a ledger or a group is named."""

from __future__ import annotations

import pytest

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.mirror import Mirror
from tests.kit.processes import wait_until
from tests.kit.records import add_partitions, delete_topic, member
from tests.servers.lakes import Pair

# What depends on the machine that runs the tests.
MACHINE = ("java", "spark", "disk", "folders")


def found(mirror: Mirror, *only: str) -> dict[str, str]:
    """Return what some checks find, by name: the details, joined."""
    report = mirror.doctor(only=only)
    assert all(one.fix for one in report.bad)
    told: dict[str, str] = {}
    for one in report.bad:
        told[one.check] = f"{told.get(one.check, '')} {one.subject}: {one.detail}".strip()
    return told


def test_every_fault_of_topics_ledger_and_groups_has_its_finding(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, remote = pair.topic, pair.remote
    pair.create(40)
    mirror = pair.mirror()
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

    # Another mirror beside it.
    with member(pair.central, "east-mm2", remote):
        assert "1 worker on central" in found(mirror, "mm2")["mm2.beside"]

    # Settings that do not fit the clusters.
    odd = pair.mirror(
        pair.flow(topics=f"{topic}, no-such-topic", producer={"transaction.timeout.ms": "3600000"}),
    )
    told = found(odd, "source.topics", "target.transaction-timeout")
    assert "east has no topic no-such-topic" in told.pop("source.topics")
    assert "permits 900000: no lane can begin" in told.pop("target.transaction-timeout")
    assert told == {}

    # What is lost, last of all.
    add_partitions(pair.east, topic, 3)
    assert "2 partitions on central, 3 are needed" in found(mirror, "target.partitions")["target.partitions"]
    with monkeypatch.context() as patched:
        patched.setattr(ClusterAdmin, "broker_count", lambda _: 3)
        told = found(pair.mirror(), "target.replication", "ledger.replication", "kafka.internal-topics")
        assert told.keys() == {"target.replication", "ledger.replication", "kafka.internal-topics"}
    delete_topic(pair.central, remote)
    assert f"{remote} was deleted on central" in found(mirror, "target.remote-topics").get("target.remote-topics", "")
    delete_topic(pair.central, ledger)
    assert "its ledger is gone from central" in found(mirror, "ledger.state")["ledger.state"]
