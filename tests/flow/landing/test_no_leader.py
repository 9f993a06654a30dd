"""A source of three brokers, one of which is gone: what it led alone waits, and everything else is landed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.chaos.cluster import Side
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import commit, count, produce, topic_name
from tests.servers.lakes import MakeMirror


def check_questions(mirror: Mirror, there: str, gone: str) -> None:
    """Whatever asks the source leaves the leaderless partition out by name, and answers everything else."""
    [proof] = mirror.verify("three->central")
    assert (proof.equal, proof.differences) == (False, ()), "law E: what was not compared is never called equal"
    assert [(one.topic, one.partition) for one in proof.left_out] == [(gone, 0)]
    assert {one.topic: one.verified for one in proof.partitions} == {there: 35, gone: 30}
    proven = {(one.kind, one.partition.topic) for one in mirror.proof_report(mirror.verify().verification).proofs}
    assert ("source-relay", gone) not in proven, "nothing is proven of what was not asked, nor called gone"
    bad = [one for one in mirror.doctor(only=["source", "target", "groups", "ledger"]) if one.severity == "failure"]
    assert [(one.check, f"{gone}-0" in one.detail, bool(one.fix)) for one in bad] == [("source.leaders", True, True)]
    plan = mirror["three->central"].groups()
    assert {one.topic: one.action for one in plan} == {there: "move", gone: "in_step"}
    assert plan.leaderless == (f"{gone}-0",)
    assert f"no leader on the source: {gone}-0" in str(plan)


@pytest.mark.law("E")
def test_law_e_a_partition_that_nobody_leads_waits_and_the_others_are_landed(
    central: KafkaCluster,
    make_mirror: MakeMirror,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    side = Side("three", tmp_path / "brokers", brokers=3)
    side.start()
    try:
        there, gone = topic_name("there"), topic_name("gone")
        admin = side.admin()
        for name, broker in ((there, 1), (gone, 3)):
            [made] = admin.create_topics(
                [NewTopic(name, 1, replica_assignment=[[broker]], config={"min.insync.replicas": "1"})]
            ).values()
            made.result(30)
            produce(side.direct, name, 20, partitions=1)
        source: Any = SimpleNamespace(bootstrap_servers=side.direct)
        flow = {"source": "three", "target": "central", "topics": [there, gone]}
        mirror = make_mirror({"three": source, "central": central}, [flow])
        mirror.run(once=True)
        side.nodes[2].kill()

        def leader() -> int:
            # A client of its own each time: one that knew the broker may wait for its answer in vain.
            found: int = side.admin().list_topics(gone, timeout=60).topics[gone].partitions[0].leader
            return found

        wait_until(lambda: leader() < 0, "its broker is missed")
        # Somebody consumes from this cluster, so a drain is a task, too.
        commit(side.direct, "readers", there, {0: 1})
        commit(side.direct, "readers", gone, {0: 2})
        produce(side.direct, there, 5, partitions=1, seed=3)
        with pytest.raises(ClusterUnreachable, match=f"cluster three: no leader for {gone}-0") as incomplete:
            mirror.run(once=True)
        assert incomplete.value.exit_code == 4
        assert count(central, f"three.{there}") == 25, (
            "law E: a drain lands and sends the others, and says what it left"
        )
        with staying_on(mirror) as failures:
            produce(side.direct, there, 10, partitions=1, seed=2)
            wait_until(lambda: failures or count(central, f"three.{there}") == 35, "the others go on")
            assert not failures
            assert mirror.parked() == {}
            side.nodes[2].start()
            wait_until(lambda: leader() > 0, "its broker is back")
            produce(side.direct, gone, 10, partitions=1, seed=2)
            wait_until(lambda: failures or count(central, f"three.{gone}") == 30, "it goes on by itself")
        mirror.sample()
        produce(side.direct, there, 5, partitions=1, seed=5)
        side.nodes[2].kill()
        wait_until(lambda: leader() < 0, "its broker is missed again")
        rows = {row.topic: row for row in mirror.status()["three->central"]}
        assert (rows[there].offset_lag, gone in rows) == (5, False), "the others are known"
        assert f"partitions={gone}-0" in caplog.text, "what is left out is named"
        commit(side.direct, "readers", there, {0: 3})
        check_questions(mirror, there, gone)
        report = mirror.failover("three->central")
        assert report.state == "done"
        assert f"no leader for {gone}-0" in report.source_note
        assert {one.topic: one.missing for one in report.partitions} == {there: 0, gone: 0}
        assert count(central, f"three.{there}") == 40, "what can be landed is landed and sent first"
    finally:
        side.kill()
