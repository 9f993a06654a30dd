"""Laws C to F of landers: one that slept, one that was killed anywhere, two at once, and what they leave in the relay."""

from __future__ import annotations

import shlex
import signal
import sys
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mirrorlake.sandbox import KafkaCluster
from tests.kit.deaths import dying
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import Process, ended, running, staying_on, wait_until
from tests.kit.records import (
    ABORTED,
    assert_equal_topics,
    commit,
    consume,
    count,
    create_topic,
    delete_records,
    end_of,
    produce,
    send_transactions,
    topic_name,
)
from tests.servers.lakes import Pair


def how_often(pair: Pair, topic: str = "") -> Counter[int]:
    """Return how many places of a topic the relay holds how often."""
    rows = pair.landed(topic)
    return Counter(Counter((row["generation"], row["partition"], row["offset"]) for row in rows).values())


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
    pair.mirror(chunk_records=100, east={"land": {"tasks": 2}})
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
        wait_until(lambda: len(landing_workers(zombie, pair.east)) == 2, "two tasks land")
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
        wait_until(lambda: len(landing_workers(heir, pair.east)) == 3, "three tasks land")
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
        assert how_often(pair) == {1: sent}, "each record was landed once"
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
        ends = {n: end_of(pair.east, pair.topic, n) for n in (0, 1)}
        wait_until(
            lambda: {row.partition: row.landed for row in mirror.status()["east->central"]} == ends,
            "a commit says that the markers were read",
        )
        lander.kill()
    for partition, end in ends.items():
        delete_records(pair.east, pair.topic, partition, end)
    assert not (pair.lake / "checkpoints" / "land").exists(), "nothing is written beside the relay"
    pair.produce(10, seed=2)
    done = pair.cli("land", "--source", "east", "--once")
    assert done.returncode == 0, done.stderr
    assert {gap["kind"] for gap in pair.gaps()} == {"transactional"}
    assert how_often(pair) == {1: 32}, "law F: each record once"


@pytest.mark.law("C", "D", "F")
def test_law_f_of_two_landers_the_older_one_writes_nothing_and_a_relay_that_holds_records_twice_is_mended(
    pair: Pair, tmp_path: Path
) -> None:
    topic = pair.topic
    pair.create(200)
    fed = pair.flow(name="fed", policy={"template": "fed.{topic}"}, execution="streaming")
    mirror = pair.mirror(pair.flow(), fed)
    land = ("land", "--source", "east", "--conf", pair.conf)
    with running(tmp_path / "idle.log", *land) as idle:
        wait_until(lambda: not idle.is_running or how_often(pair) == {1: 200}, "the first lander has landed")
        mirror.land("east", once=True, rebuild_checkpoint=True)
        pair.produce(100, seed=2)
        wait_until(lambda: not idle.is_running, "the first lander notices")
        assert idle.popen.returncode == 3, idle.output
        assert "run only one lander" in idle.output
    # Two tasks drain the rest, each up to the ends of its own partition: the source has readers already (law H).
    commit(pair.east, "readers", topic, {0: 1})
    pair.mirror(pair.flow(), fed, east={"land": {"tasks": 2}})
    with running(tmp_path / "tasks.log", *land, "--once") as tasks:
        wait_until(lambda: not tasks.is_running, "two tasks drain")
        assert tasks.popen.returncode == 0, tasks.output
    assert how_often(pair) == {1: 300}, "both landers saw the records, one has landed them"

    # Records twice, as from a release without a fence: in files that lie over one another, out of order.
    relay = str(pair.lake / "relay" / "east")
    rows = DeltaTable(relay).to_pyarrow_table()
    offsets = rows.column("offset")
    late, middle = pc.greater_equal(offsets, 100), pc.and_(pc.greater_equal(offsets, 20), pc.less(offsets, 120))
    for again, order in ((late, "descending"), (middle, "ascending")):
        write_deltalake(relay, rows.filter(again).sort_by([("offset", order)]), mode="append")
    doubled = how_often(pair)
    assert doubled == {1: 40, 2: 220, 3: 40}
    mirror = pair.mirror(pair.flow(), fed)
    mirror.republish("east->central", once=True)
    pair.check()

    assert pair.cli("repair", "--source", "east", "--check").returncode == 1
    assert how_often(pair) == doubled
    mirror.republish("fed", once=True)
    assert_equal_topics(pair.source(), pair.target(f"fed.{topic}"))
    done = mirror.repair("east")
    assert (done.rows, done.left) == (300, 0)
    assert how_often(pair) == {1: 300}
    assert mirror.repair("east").rows == 0
    pair.produce(50, seed=4)
    mirror.run(once=True)
    for remote in (pair.remote, f"fed.{topic}"):
        assert_equal_topics(pair.source(), pair.target(remote))


@pytest.mark.law("F")
@pytest.mark.parametrize("execution", ["live", "streaming"])
def test_law_f_a_lander_that_is_replaced_between_its_file_and_its_commit_lands_nothing(
    pair: Pair, tmp_path: Path, execution: str
) -> None:
    pair.create(100)
    pair.mirror(east={"land": {"execution": execution}}).land("east", once=True)
    pair.produce(100, seed=2)
    land = ("land", "--source", "east", "--once", "--conf", pair.conf)
    heir = shlex.join([sys.executable, "-m", "mirrorlake", *land, "--take-over", "--rebuild-checkpoint"])
    zombie = ended(tmp_path / "zombie.log", *land, MIRRORLAKE_ACT_AT=f"land.file_written={heir}")
    assert zombie.popen.returncode == 3, zombie.output
    assert how_often(pair) == {1: 200}, "law F: the heir has landed them, and nobody else"
    pair.mirror().run(once=True)
    pair.check(with_map=True)


PARTITIONS, EACH = 10, 20


@pytest.mark.law("C", "D", "E", "F")
def test_law_c_turns_of_forty_partitions_are_mirrored_exactly_through_one_file_each(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "hot_s=0,compaction_fanout=3,compaction_max_waiting=3")
    topics = [topic_name(f"wide{number}") for number in range(4)]
    for topic in topics:
        create_topic(pair.east, topic, PARTITIONS)
    mirror = pair.mirror(pair.flow(topics=topics))
    relay, compacted = pair.lake / "relay" / "east", 0

    def write(seed: int) -> None:
        for topic in topics:
            produce(pair.east, topic, EACH, partitions=PARTITIONS, seed=seed)

    def check() -> None:
        for topic in topics:
            source, target = consume(pair.east, topic), consume(pair.central, f"east.{topic}")
            assert_equal_topics(source, target)
            flow = "east->central"
            assert_map_is_exact(pair.lake, flow, topic, source, target, asked=mirror[flow])
            assert how_often(pair, topic).keys() == {1}, "each record stands in the relay once"

    with staying_on(mirror) as failures:
        for seed in range(1, 5):
            write(seed)
            wait_until(
                lambda seed=seed: failures or all(count(pair.central, f"east.{one}") == seed * EACH for one in topics),
                "a round has arrived",
            )
            compacted += mirror.maintain().tables[0].compacted.files
    assert compacted, "upkeep was at work meanwhile"
    check()

    # A death between a file and its commit; then what is landed is cut before anybody sent it.
    write(7)
    before = {*relay.glob("*.parquet")}
    with dying("land.file_written"):
        mirror.land("east", once=True)
    left = {*relay.glob("*.parquet")} - before
    assert left, "it left a file that no commit names"
    mirror.land("east", once=True)
    newest = {*relay.glob("*.parquet")} - before - left
    wide = [pq.read_table(file, columns=["topic", "partition"]).group_by(["topic", "partition"]) for file in newest]
    assert max(one.aggregate([]).num_rows for one in wide) > 1, "a file of several partitions"
    for file in newest:
        file.write_bytes(file.read_bytes()[:-100])
    assert pair.cli("repair", "--source", "east", "--check").returncode == 1
    mended = pair.told("repair", "--source", "east")["broken"]
    assert sum(one["landed"] for one in mended) == len(topics) * EACH
    assert len(mended) >= len(topics) * PARTITIONS, "of each partition; a busy machine lands it in two turns"
    mirror.run(once=True)
    check()
