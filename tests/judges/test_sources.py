"""Sources in trouble: a log that went back, another cluster at the address, a broker that is gone, a slow link (laws E and F)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable

from mirrorlake import Exact, Mirror, NotYetRepublished
from mirrorlake.errors import ClusterIdMismatch, ClusterUnreachable, SourceGap
from mirrorlake.sandbox import KafkaCluster
from tests.chaos.cluster import Side
from tests.chaos.proxy import Weather
from tests.kit.commands import run_cli, write_conf
from tests.kit.processes import running, staying_on, wait_until
from tests.kit.records import commit, consume, count, create_topic, end_of, held, produce, rows_of, send, topic_name
from tests.servers.lakes import MakeMirror

# Not older than a segment may be, or the log would be cut into several.
_STAMP = int(time.time() * 1000)


def write(cluster: KafkaCluster, topic: str, values: Iterable[str]) -> None:
    """Write records to partition 0, each with one timestamp: only its bytes tell a record from another."""
    send(cluster, topic, ({"value": value.encode(), "partition": 0, "timestamp": _STAMP} for value in values))


def segment(cluster: KafkaCluster, topic: str) -> Path:
    [path] = (cluster.directory / "data" / f"{topic}-0").glob("*.log")
    return path


def landed(mirror: Mirror, topic: str) -> dict[int, list[str]]:
    """Return the values of partition 0 in the relay by generation, in offset order."""
    rows = [row for row in rows_of(mirror, "relay_own", topic) if row["partition"] == 0]
    found: dict[int, list[str]] = {}
    for row in sorted(rows, key=itemgetter("offset")):
        found.setdefault(row["generation"], []).append(row["value"].decode())
    return found


def gaps(mirror: Mirror, topic: str) -> list[tuple[Any, ...]]:
    rows = sorted(rows_of(mirror, "gaps", topic), key=itemgetter("generation"))
    return [(g["kind"], g["generation"], g["partition"], g["first_offset"], g["last_offset"]) for g in rows]


@pytest.mark.law("A", "E")
def test_law_e_a_source_whose_log_went_back(
    make_cluster: Callable[..., KafkaCluster],
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    tmp_path: Path,
) -> None:
    own = make_cluster("own").start()
    topic, conf = topic_name(), str(tmp_path / "mirror.yml")
    create_topic(own, topic, 2)
    old = [f"old-{number}" for number in range(200)]
    write(own, topic, old[:150])
    size = segment(own, topic).stat().st_size
    write(own, topic, old[150:])
    produce(own, topic, 100)
    # Partitions that the same restart makes suspects: with records, and two without.
    wide = f"{topic}-wide"
    create_topic(own, wide, 62)
    produce(own, wide, 600, partitions=60)
    flow = {"source": "own", "target": "central", "topics": f"{topic}, {wide}"}

    def mirror_with(policy: str, clusters: dict[str, KafkaCluster]) -> Mirror:
        return make_mirror(clusters, [flow], own={"land": {"on_gap": policy}})

    both = {"own": own, "central": central}
    mirror = mirror_with("halt", both)
    mirror.run(once=True)
    first = landed(mirror, topic)
    assert first[1][:150] == old[:150]
    begun = len(first[1])

    # The end is before what was landed.
    own.kill()
    with segment(own, topic).open("r+b") as log:
        log.truncate(size)
    own.start()
    assert end_of(own, topic, 0) == 150
    for _ in range(2):
        with pytest.raises(
            SourceGap, match=rf"was truncated.*{topic}-0 landed up to {begun}, truncated at 150"
        ) as refused:
            mirror.land("own", once=True)
        assert refused.value.exit_code == 3
    assert landed(mirror, topic) == first
    mirror = mirror_with("record", both)
    mirror.run(once=True)
    assert gaps(mirror, topic) == [("truncated", 1, 0, 150, begun - 1)]
    [standing] = [p for p in mirror.status()["own->central"] if (p.topic, p.partition) == (topic, 0)]
    assert (standing.source_end, standing.landed, standing.republished, standing.verdict) == (150, 150, 150, "OK")
    offsets = mirror["own->central"].offsets
    assert isinstance(offsets.translate(topic, 0, 149), Exact)
    assert isinstance(offsets.translate(topic, 0, 150), NotYetRepublished)
    new = [f"new-{number}" for number in range(150)]
    write(own, topic, new)
    mirror.run(once=True)
    assert landed(mirror, topic) == {1: first[1], 2: new}
    target = consume(central, f"own.{topic}")[0]
    assert [(record.value or b"").decode() for record in target] == [*first[1], *new]
    stands = {149: target[149].offset, 150: target[begun].offset, 299: target[begun + 149].offset}
    for upstream, downstream in stands.items():
        found = offsets.translate(topic, 0, upstream)
        assert isinstance(found, Exact)
        assert found.offset == downstream
    old_life = offsets.translate(topic, 0, 160, generation=1)
    assert isinstance(old_life, Exact)
    assert old_life.offset == target[160].offset
    table = mirror.spark.createDataFrame(
        [(topic, 0, offset) for offset in stands], "topic string, partition int, offset bigint"
    )
    answers = {row.offset: row.downstream_offset for row in offsets.translate_table(table).collect()}
    assert answers == stands
    commit(own, "before", topic, {0: 149})
    commit(own, "past", topic, {0: 151})
    moves = {one.group: one.resume.downstream_offset for one in mirror.plan_groups("own->central")}
    assert moves == {"before": target[149].offset, "past": target[begun + 1].offset}

    # The end is past what was landed, and the records before it are others; seen while running.
    other = [f"other-{number}" for number in range(450)]
    with staying_on(mirror):
        write(own, topic, ["last"])
        wait_until(lambda: landed(mirror, topic).get(2) == [*new, "last"], "the mirror lands")
        own.kill()
        for path in segment(own, topic).parent.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        own.start()
        write(own, topic, other)
        wait_until(lambda: landed(mirror, topic).get(3) == other, "the new history is landed")
    mirror.run(once=True)
    assert landed(mirror, topic) == {1: first[1], 2: [*new, "last"], 3: other}
    assert gaps(mirror, topic)[1:] == [("truncated", 2, 0, 0, 300)]
    target = consume(central, f"own.{topic}")[0]
    assert [(record.value or b"").decode() for record in target][begun + 151 :] == other
    assert mirror.land("own", once=True, rebuild_checkpoint=True).records == 0

    # Another cluster answers at the address.
    create_topic(east, topic, 2)
    mirror = mirror_with("record", {"own": east, "central": central})
    with pytest.raises(ClusterIdMismatch, match="but its relay holds records of"):
        mirror.land("own", once=True)
    assert run_cli("land", "--source", "own", "--once", "--conf", conf).returncode == 3
    assert any("but its relay holds records of" in one.detail for one in mirror.doctor() if not one.ok)


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


RATE, RECORDS, SIZE = 200_000, 300, 10_000


@pytest.mark.law("F")
def test_law_f_a_source_behind_a_slow_link_is_landed_and_a_kill_costs_seconds(tmp_path: Path) -> None:
    side = Side("far", tmp_path / "brokers")
    side.start()
    try:
        topic, noise = topic_name("far"), np.random.default_rng(2611)
        create_topic(side.direct, topic, 1)
        # Batches of the size that producers make; all of them in one answer take 15 s, and a request may take 8.
        send(side.direct, topic, ((noise.bytes(SIZE), b"k", 0) for _ in range(RECORDS)), **{"batch.size": 30_000})
        commit(side.direct, "readers", topic, {0: 1})
        conf = write_conf(
            tmp_path,
            {"far": side.proxied, "never": "127.0.0.1:1"},
            [{"source": "far", "target": "never", "topics": topic}],
            far={"client": {"socket.timeout.ms": 8_000}},
        )
        side.set_weather(Weather(bytes_per_s=RATE))
        relay, land = str(tmp_path / "lake/relay/far"), ("land", "--source", "far", "--once", "--conf", str(conf))

        def landed() -> list[bytes]:
            return [row["value"] for row in held(relay, topic)] if DeltaTable.is_deltatable(relay) else []

        with running(tmp_path / "land.log", *land) as process:
            wait_until(lambda: landed() or not process.is_running, "something is landed")
            assert process.is_running, process.output
            before = len(landed())
            wait_until(lambda: len(landed()) > before or not process.is_running, "more is landed")
            process.kill()
        reached = len(landed())
        assert before < reached < RECORDS, "law F: landed in turns of seconds"
        side.set_weather()
        done = run_cli(*land, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) is not None
        values = [record.value for record in consume(side.direct, topic)[0]]
        assert sorted(landed()) == sorted(values), "law F: each record once"
    finally:
        side.kill()
