"""Law F: a drain is killed at every step of landing and sending, run after run, and each record arrives once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import write_conf
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import Process
from tests.kit.records import (
    ABORTED,
    assert_equal_topics,
    commit,
    consume,
    create_topic,
    held,
    send_transactions,
    topic_name,
)

PARTITIONS, EACH = 4, 40
# In the order of a run. Each run commits to several tables, and claims two lanes.
POINTS = (
    *("land.numbered", "land.claimed", "land.file_written", "land.files_flushed"),
    *("commit.prepared", "commit.made", "commit.prepared:2", "commit.made:2", "land.committed"),
    *("land.gaps_recorded", "commit.prepared:3", "commit.made:3", "land.accounted"),
    *("send.fenced", "send.fenced:2", "ledger.copying", "ledger.copied", "ledger.trimming", "ledger.trimmed"),
    *("send.claim_recorded", "send.claimed", "send.claimed:2"),
    *("send.begun", "send.produced", "send.flushed", "send.recorded", "send.committed", "send.committed:2"),
)


@pytest.mark.law("A", "B", "C", "D", "E", "F")
def test_law_f_a_drain_that_is_killed_at_each_step_in_turn_lands_and_sends_every_record_once(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    topic = topic_name("killed")
    flow = {"name": topic, "source": "east", "target": "central", "topics": topic, "lanes": 2}
    clusters = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    conf = write_conf(tmp_path, clusters, [flow])
    create_topic(east, topic, PARTITIONS)

    def end(*arguments: str, **environment: str) -> tuple[int, str]:
        process = Process(tmp_path / "output", *arguments, "--conf", str(conf), **environment)
        return process.popen.wait(400), process.output[-2000:]

    for number, point in enumerate(("land.committed", *POINTS)):
        records = [(f"{number}-{one}".encode(), b"k%d" % one, one % PARTITIONS) for one in range(EACH)]
        aborted = [(ABORTED, None, one) for one in range(PARTITIONS)]
        send_transactions(east, topic, [(records[::2], True), (aborted, False), (records[1::2], True)])
        code, output = end("run", "--once", MIRRORLAKE_DIE_AT=point)
        assert code == -signal.SIGKILL, f"{point} was not reached: {output}"
        # The first drain lands by Spark: a live reader would have the broker create the topic of groups (law H).
        commit(east, "readers", topic, {0: 1})
    # Each Python worker of Spark dies at its first file: the drain gives up, and the next one lands.
    send_transactions(east, topic, [([(b"late", None, one) for one in range(PARTITIONS)], True)])
    in_workers = {"MIRRORLAKE_TIMING": "max_records_in_process=0", "MIRRORLAKE_DIE_AT": "land.file_written"}
    code, output = end("run", "--once", **in_workers)
    assert (code, "Python worker exited unexpectedly" in output) == (4, True), output
    for _ in range(2):
        code, output = end("run", "--once")
        assert code == 0, output
    source, target = consume(east, topic), consume(central, f"east.{topic}")
    assert sum(map(len, source.values())) == EACH * (len(POINTS) + 1) + PARTITIONS
    assert_equal_topics(source, target)
    assert_map_is_exact(tmp_path / "lake", topic, topic, source, target)
    landed = [(row["partition"], row["offset"]) for row in held(str(tmp_path / "lake" / "relay" / "east"), topic)]
    assert sorted(landed) == sorted((partition, one.offset) for partition in source for one in source[partition])
    code, output = end("verify", "--json")
    assert code == 0, output
