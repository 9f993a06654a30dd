"""A source of three brokers, one of which is gone: what it led alone waits, and everything else is landed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.sandbox import KafkaCluster
from tests.chaos.cluster import Side
from tests.flow.kit import commit, count, produce, staying_on, topic_name, wait_until
from tests.servers.lakes import MakeMirror


@pytest.mark.law("E")
def test_law_e_a_partition_that_nobody_leads_waits_and_the_others_are_landed(
    central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path, caplog: pytest.LogCaptureFixture
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
        produce(side.direct, there, 5, partitions=1, seed=3)
        with pytest.raises(ClusterUnreachable, match=f"nobody leads {gone}-0 of three") as incomplete:
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
        mirror.sample(once=True)
        produce(side.direct, there, 5, partitions=1, seed=5)
        side.nodes[2].kill()
        wait_until(lambda: leader() < 0, "its broker is missed again")
        rows = {row.topic: row for row in mirror.status()["three->central"]}
        assert (rows[there].offset_lag, gone in rows) == (5, False), "the others are known"
        assert f"partitions={gone}-0" in caplog.text, "what is left out is named"
        report = mirror.failover("three->central")
        assert report.state == "done"
        assert f"nobody leads {gone}-0" in report.source_note
        assert {one.topic: one.missing for one in report.partitions} == {there: 0, gone: 0}
        assert count(central, f"three.{there}") == 40, "what can be landed is landed and sent first"
    finally:
        side.kill()
