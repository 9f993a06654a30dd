"""The doctor on real brokers: a mirror in order has no finding; each fault of a topic, a ledger, a group or a broker is named."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import NewTopic

import mirrorlake as ml
from tests.chaos.cluster import Side
from tests.kit.commands import write_conf
from tests.kit.processes import wait_until
from tests.kit.records import add_partitions, delete_topic, member, set_configs
from tests.servers.lakes import Pair

# What depends on the machine that runs the tests.
MACHINE = ("java", "spark", "disk", "folders")
LEDGER = "mirrorlake.east.central.ledger"


def found(mirror: ml.Mirror, *only: str) -> dict[str, list[str]]:
    """Return what some checks find, by name: severity, subject and detail."""
    told: dict[str, list[str]] = {}
    for one in mirror.doctor(only=only).bad:
        assert one.fix, one
        told.setdefault(one.check, []).append(f"{one.severity} {one.subject}: {one.detail}")
    return told


def test_every_fault_of_topics_ledger_and_groups_has_its_finding(pair: Pair) -> None:
    topic, remote = pair.topic, pair.remote
    pair.create(40)
    mirror = pair.mirror()
    mirror.run(once=True)
    assert mirror.doctor(skip=MACHINE).bad == [], "nothing is wrong with a mirror that has just run"
    faults = {
        (remote, "max.message.bytes", "50000", None): ("target.max-message-bytes", "accepts 50000 bytes"),
        (remote, "message.timestamp.type", "LogAppendTime", None): ("target.timestamp-type", ""),
        (remote, "cleanup.policy", "compact", None): ("target.cleanup-policy", "records without a key"),
        (remote, "retention.ms", "1", None): ("target.retention", "the target deletes them"),
        (remote, "min.insync.replicas", "2", None): ("target.in-sync", f"{remote}-0 (1 of 2)"),
        (LEDGER, "retention.ms", "86400000", "-1"): ("ledger.settings", "retention.ms=86400000"),
    }
    for (name, key, value, before), (check, detail) in faults.items():
        set_configs(pair.central, name, **{key: value})
        told = found(mirror, check)
        set_configs(pair.central, name, **{key: before})
        assert (list(told), detail in str(told)) == ([check], True), (key, told)

    # Another mirror beside it.
    with member(pair.central, "east-mm2", remote):
        assert "1 worker on central" in str(found(mirror, "mm2")["mm2.beside"])
    # Settings that do not fit the clusters.
    odd = pair.mirror(pair.flow(topics=f"{topic}, no-such-topic", producer={"transaction.timeout.ms": "3600000"}))
    told = found(odd, "source.topics", "target.transaction-timeout")
    assert "east has no topic no-such-topic" in str(told.pop("source.topics"))
    assert "permits 900000: no lane can begin" in str(told.pop("target.transaction-timeout"))
    assert told == {}
    # What is lost, last of all.
    add_partitions(pair.east, topic, 3)
    assert "2 partitions on central, 3 are needed" in str(found(mirror, "target.partitions"))
    delete_topic(pair.central, remote)
    assert f"{remote} was deleted on central" in str(found(mirror, "target.remote-topics"))
    delete_topic(pair.central, LEDGER)
    assert "its ledger is gone from central" in str(found(mirror, "ledger.state"))


def test_a_broker_that_is_lost_shows_where_it_led_and_where_it_held_replicas(tmp_path: Path) -> None:
    side = Side("three", tmp_path / "brokers", brokers=3)
    side.start()
    try:
        admin = side.admin()
        for name, replicas, least in (
            ("orders", [[1], [2]], 1),
            ("east.orders", [[1, 2], [2, 3]], 1),
            ("clicks", [[2]], 1),
            ("east.clicks", [[3, 1]], 2),
            (LEDGER, [[2]], 1),
        ):
            new = NewTopic(name, len(replicas), replica_assignment=replicas, config={"min.insync.replicas": str(least)})
            [made] = admin.create_topics([new]).values()
            made.result(30)
        flow = {"source": "east", "target": "central", "topics": "orders, clicks"}
        mirror = ml.load(write_conf(tmp_path, dict.fromkeys(("east", "central"), side.direct), [flow]))

        def missed() -> dict[str, list[str]]:
            return found(mirror, "source.leaders", "target.in-sync")

        wait_until(lambda: missed() == {}, "all three brokers are in sync")
        assert found(mirror, "ledger.replication").keys() == {"ledger.replication"}
        side.nodes[0].kill()
        # Each question is answered by some broker, and one may know of it before the other.
        told = wait_until(lambda: (seen := missed()) and sum(map(len, seen.values())) > 2 and seen, "it is missed")
        assert {check: [one.partition(": ")[2] for one in several] for check, several in told.items()} == {
            "source.leaders": ["1 partition without a leader: orders-0"],
            "target.in-sync": [
                "too few replicas in sync to take a write: east.clicks-0 (1 of 2)",
                "1 partition with replicas out of sync: east.orders-0",
            ],
        }
        assert [one.split()[0] for one in told["target.in-sync"]] == ["failure", "warning"]
    finally:
        side.kill()
