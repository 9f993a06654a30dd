"""Laws E and F: a mirror that slept while another one took over, and a lander that was killed."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from mirrorlake.lake import read_landing_positions
from mirrorlake.lake.schema import GAPS
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import Process, running, wait_until
from tests.kit.records import ABORTED, count, delete_records, end_of, held, send_transactions
from tests.servers.lakes import Pair


def groups_in(mirror: Mirror) -> set[int]:
    """Return the landing groups that have committed something to the relay."""
    commits = mirror.lake.commits(mirror.lake.relay_location("east"))
    return {commit.signature["group"] for commit in commits if "group" in commit.signature}


def landing_workers(process: Process, source: KafkaCluster) -> list[psutil.Process]:
    """Return the Python workers of a mirror that fetch from its source."""
    port = int(source.bootstrap_servers.rpartition(":")[2])
    return [
        one
        for one in psutil.Process(process.popen.pid).children(recursive=True)
        if one.name().startswith("python") and any(to.raddr and to.raddr.port == port for to in one.net_connections())
    ]


@pytest.mark.law("C", "D", "F")
def test_law_f_a_woken_zombie_writes_nothing(pair: Pair, tmp_path: Path) -> None:
    pair.create(2000, partitions=4)
    mirror = pair.mirror(chunk_records=100, east={"land": {"tasks": 2}})
    sent = 2000

    def arrived() -> int:
        return count(pair.central, pair.remote)

    def more(records: int) -> None:
        nonlocal sent
        sent += records
        pair.produce(records, seed=sent)

    zombie = Process(tmp_path / "zombie.log", "run", "--conf", pair.conf)
    heir = None
    try:
        wait_until(lambda: arrived() > 0, "the first mirror has sent something")
        wait_until(lambda: groups_in(mirror) == {0, 1}, "two groups have landed")
        zombie.signal_tree(signal.SIGSTOP)
        more(2000)
        # The partitions of a group that the zombie has are another one's from here on.
        pair.mirror(chunk_records=100, east={"land": {"tasks": 3}})
        heir = Process(tmp_path / "heir.log", "run", "--conf", pair.conf)
        wait_until(lambda: arrived() == sent, "the second mirror has sent everything")
        zombie.signal_tree(signal.SIGCONT)
        more(500)
        wait_until(lambda: not zombie.is_running, "the zombie notices that it was replaced")
        assert zombie.popen.returncode == 3, zombie.output
        assert "belongs to another republisher" in zombie.output
        assert "another lander has claimed the relay of east" in zombie.output
        wait_until(lambda: arrived() == sent, "the heir goes on")
        assert groups_in(mirror) == {0, 1, 2}
        more(500)
        # One of the tasks dies with records on their way, the two others in the middle of theirs.
        landing_workers(heir, pair.east)[0].kill()
        more(500)
        wait_until(lambda: arrived() == sent, "the heir goes on although one of its tasks was killed")
        for drain in (["run"], ["land", "--source", "east"], ["republish", "--flow", "east->central"]):
            refused = pair.cli(*drain, "--once")
            assert (refused.returncode, f"is carried by process {heir.popen.pid}" in refused.stderr) == (3, True)
        assert heir.is_running, f"the heir was fenced by the zombie:\n{heir.output}"
        more(500)
        assert heir.terminate() == 0, heir.output
        pair.mirror(chunk_records=100)
        more(500)
        done = pair.cli("run", "--once")
        assert done.returncode == 0, done.stderr
        pair.check(with_map=True)
        held = mirror.lake.query_rows(
            "SELECT count(*) AS all, count(DISTINCT `partition`, `offset`) AS each FROM {relay}", relay="east"
        )
        assert (held[0].all, held[0].each) == (sent, sent), "each record was landed once"
    finally:
        for process in (zombie, heir):
            if process is not None and process.is_running:
                process.signal_tree(signal.SIGCONT)
                process.kill()


@pytest.mark.law("C", "E", "F")
def test_law_e_control_records_that_a_killed_lander_has_read_are_not_lost(pair: Pair, tmp_path: Path) -> None:
    pair.create(20)
    mirror = pair.mirror(east={"land": {"tasks": 2}})
    with running(tmp_path / "land.log", "land", "--source", "east", "--conf", pair.conf) as lander:
        kept, aborted = ([(b"k", value, partition) for partition in (0, 1)] for value in (b"kept", ABORTED))
        send_transactions(pair.east, pair.topic, [(kept, True), (aborted, False)])
        ends = {SourcePartition(pair.topic, 1, n): end_of(pair.east, pair.topic, n) for n in (0, 1)}
        wait_until(
            lambda: read_landing_positions(mirror.lake, "east") == ends, "a commit says that the markers were read"
        )
        lander.kill()
    for source, end in ends.items():
        delete_records(pair.east, pair.topic, source.partition, end)
    assert not Path(mirror.lake.checkpoint_root(), "land").exists(), "nothing is written beside the relay"
    pair.produce(10, seed=2)
    done = pair.cli("land", "--source", "east", "--once")
    assert done.returncode == 0, done.stderr
    assert {gap["kind"] for gap in held(mirror.lake.meta_location(GAPS), pair.topic)} == {"transactional"}
    places = [(row["partition"], row["offset"]) for row in held(mirror.lake.relay_location("east"), pair.topic)]
    assert len(places) == len(set(places)) == 32, "law F: each record once"
