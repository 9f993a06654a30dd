"""Failover and failback on real brokers: a source that is gone, one that comes back, and a command that is killed again and again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from mirrorlake import Mirror
from mirrorlake.errors import FailoverRefused, UsageError
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told
from tests.kit.processes import environment, killed_between_steps, running, staying_on, wait_until
from tests.kit.records import (
    assert_equal_topics,
    commit,
    committed,
    consume,
    count,
    create_topic,
    member,
    open_transaction,
    produce,
    producing,
    topic_name,
    topics_of,
)
from tests.servers.lakes import MakeMirror

FLOW = "east->central"
PARTITIONS, EACH = 2, 100
# What each group has read of each partition.
GROUPS = {"none": 0, "some": 7, "half": 25, "most": 49, "all": 50}


@pytest.fixture(scope="module")
def sites(guarded_clusters: Mapping[str, KafkaCluster]) -> tuple[KafkaCluster, KafkaCluster]:
    """Run a pair of brokers that the tests of this file stop and start."""
    return guarded_clusters["east"], guarded_clusters["central"]


class World:
    """Three topics of east with their records, five groups that have read parts of them, and their mirror."""

    def __init__(self, sites: tuple[KafkaCluster, KafkaCluster], make_mirror: MakeMirror, folder: Path) -> None:
        self.east, self.central = sites
        self.tag = topic_name()
        self.topics = [f"{name}-{self.tag}" for name in ("orders", "clicks", "users")]
        self.groups = {f"{name}-{self.tag}": read for name, read in GROUPS.items()}
        self.conf, self.lake = str(folder / "mirror.yml"), folder / "lake"
        self.spare: dict[str, KafkaCluster] = {}
        self._make = make_mirror
        for topic in self.topics:
            create_topic(self.east, topic, PARTITIONS)
            produce(self.east, topic, EACH, prefix=topic)
        for group, read in self.groups.items():
            commit(self.east, group, self.topics, dict.fromkeys(range(PARTITIONS), read))

    def mirror(self, *more: dict[str, Any], east: Mapping[str, Any] | None = None, **settings: Any) -> Mirror:
        ours = {"topics": f".*-{self.tag}", "groups": f".*-{self.tag}"}
        flows = [{"source": "east", "target": "central", **ours, **settings}]
        return self._make(
            {"east": self.east, "central": self.central, **self.spare},
            [*flows, *({**ours, **flow} for flow in more)],
            east=east or {},
        )

    def assert_groups_stand(self, where: KafkaCluster, prefix: str = "east.") -> None:
        for group, read in self.groups.items():
            for topic in self.topics:
                at = committed(where, group, f"{prefix}{topic}", PARTITIONS)
                assert at == dict.fromkeys(range(PARTITIONS), read), f"law A: {group} on {topic}"


@pytest.fixture
def world(sites: tuple[KafkaCluster, KafkaCluster], make_mirror: MakeMirror, tmp_path: Path) -> World:
    return World(sites, make_mirror, tmp_path)


@pytest.mark.law("A")
def test_law_a_a_source_that_is_gone_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is refused need not wait for a broker that may restart.
    monkeypatch.setenv("MIRRORLAKE_TIMING", "restart_timeout_s=0")
    mirror = world.mirror()
    mirror.run(once=True)
    mirror.sample()
    # Seen by the sampler, and never landed.
    produce(world.east, world.topics[0], 14, prefix="late")
    mirror.sample()
    world.east.kill()
    try:
        first = f"most-{world.tag}"
        reading = member(world.central, first, f"east.{world.topics[0]}")
        with reading, pytest.raises(FailoverRefused, match=first):
            mirror[FLOW].failover()
        assert not len(mirror.query("SELECT * FROM control WHERE kind = 'flow'")), "a refusal leaves the flow as it is"
        with pytest.raises(UsageError, match="nobody"):
            mirror[FLOW].failover(groups=["nobody"])
        report = told("failover", "--flow", FLOW, "--conf", world.conf)
        assert not report["source_answers"]
        assert report["missing"] == 14
        assert {row["missing"] for row in report["partitions"] if row["topic"] == world.topics[0]} == {7}
        assert all(row["seen_at"] for row in report["partitions"])
        assert report["rpo_s"] >= 0
        assert report["last_look_s"] > 0, "how old the last look was bounds what nobody has seen"
        assert "; its ends were read " in report["source_note"]
        assert report["rto_s"] > 0
        assert report["records_again"] == 0
        assert {row["group"] for row in report["groups"]} == set(world.groups)
        assert report["proof"]["verified"] == 3 * EACH
        assert report["topics"][0]["write_to"] == sorted(world.topics)[0]
        world.assert_groups_stand(world.central)
        assert told("failover", "--flow", FLOW, "--conf", world.conf) == {**report, "is_repeat": True}
        assert run_cli("failover", "--flow", "no->flow", "--conf", world.conf).returncode == 2
    finally:
        world.east.start()


@pytest.mark.law("E")
def test_law_e_of_a_source_that_is_killed_under_load_a_few_seconds_may_be_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "restart_timeout_s=0")
    mirror, topic = world.mirror(), world.topics[0]
    try:
        load = producing(world.east, [topic], "steady", every_s=0.002, patience_s=0.0)
        with staying_on(mirror), load as acknowledged:
            wait_until(lambda: len(acknowledged) > 500, "a second of records")
            known = count(world.central, f"east.{topic}")
            wait_until(lambda: count(world.central, f"east.{topic}") > known + 500, "it lands and sends under load")
            world.east.kill()
            killed_at = time.time()
            wait_until(lambda: mirror.status()[FLOW].verdict == "CLUSTER_AWAY", "the mirror has found out")
        report = mirror[FLOW].failover(dry_run=True)
        landed = set(DeltaTable(world.lake / "relay" / "east").to_pyarrow_table(columns=["value"])["value"].to_pylist())
        lost = [at for value, at in acknowledged.items() if value not in landed]
        assert report.rpo_s is not None
        # What was landed is marked twice a second where the machine has time, and sampled each half a minute.
        assert report.rpo_s <= 10
        assert all(killed_at - at <= report.rpo_s for at in lost), "law E: more was lost than is said"
        assert "; its ends were read " in report.source_note
    finally:
        world.east.start()


@pytest.mark.law("F")
def test_law_f_a_failover_that_is_killed_between_all_steps(world: World) -> None:
    mirror = world.mirror()
    mirror.run(once=True)
    # Still to be drained.
    produce(world.east, world.topics[1], 20, prefix="more")
    planned = mirror[FLOW].failover(dry_run=True)
    assert (planned.state, planned.refusals, planned.source_answers) == ("planned", (), True)
    assert len(planned.groups) == len(world.groups) * len(world.topics) * PARTITIONS

    done, deaths = killed_between_steps(mirror[FLOW].failover, meanwhile={5: world.central.restart})
    assert done.is_repeat, "the last row was written before the last kill"
    assert (done.missing, done.rpo_s, done.held) == (0, 0.0, 0)
    steps = mirror.query("SELECT action FROM audit WHERE command = 'failover'")["action"].to_pylist()
    assert deaths == 2 * len(steps) == 2 * len(set(steps)) >= 10, "law F: each step is written once"
    for topic in world.topics:
        assert_equal_topics(consume(world.east, topic), consume(world.central, f"east.{topic}"))
    world.assert_groups_stand(world.central)
    assert mirror.run(once=True).republished[0].paused, "the flow stays paused"


@pytest.mark.law("E")
def test_law_e_what_cannot_be_sent_is_not_failed_over(world: World) -> None:
    mirror = world.mirror()
    mirror.run(once=True)
    mirror.pause(flow=FLOW, topic=world.topics[2], reason="a person")
    produce(world.east, world.topics[2], 10, prefix="held")
    with pytest.raises(FailoverRefused, match=r"could not all be sent \(paused: users"):
        mirror[FLOW].failover()
    mirror.resume(flow=FLOW, topic=world.topics[2])
    assert mirror[FLOW].failover().missing == 0
    assert mirror[FLOW].failover().is_repeat
    # Who resumes the flow takes the failover back, and another one is a new one.
    mirror.resume(flow=FLOW)
    again = mirror[FLOW].failover(unproven=True)
    assert not again.is_repeat
    assert f"--topic {world.topics[0]}" in again.deny_writes
    assert_equal_topics(consume(world.east, world.topics[2]), consume(world.central, f"east.{world.topics[2]}"))


@pytest.mark.law("F")
def test_law_f_failing_back_brings_everything_home_once(world: World) -> None:
    # No flow of the settings leads home: the failback prints one. Other topics of central, older records too, are not its concern.
    mirror = world.mirror()
    unrelated, of_west = f"unrelated-{world.tag}", f"west.hr-{world.tag}"
    for topic, number in ((unrelated, 30), (of_west, 20), (world.topics[1], 8)):
        create_topic(world.central, topic, PARTITIONS)
        produce(world.central, topic, number, prefix="older")
    mirror.run(once=True)
    # One group is moved at once, the others later.
    first, *others = sorted(world.groups)
    assert mirror[FLOW].failover(groups=[first]).missing == 0
    assert {row.group for row in mirror[FLOW].failover().groups} == {first}, "nothing was done again"
    told("groups", "--flow", FLOW, "--apply", *(f"--group={other}" for other in others), "--conf", world.conf)
    world.assert_groups_stand(world.central)
    # Producers that know of nothing go on on east: the divergent tail.
    produce(world.east, world.topics[0], 10, prefix="tail")
    # Producers that moved write to central's own topic, and consumers go on there.
    produce(world.central, world.topics[1], 12, prefix="since")
    produce(world.central, unrelated, 4, prefix="since")
    reader, local = f"none-{world.tag}", f"all-{world.tag}"
    remotes = [f"east.{topic}" for topic in world.topics]
    commit(world.central, reader, remotes, dict.fromkeys(range(PARTITIONS), 20))
    commit(world.central, local, world.topics[1], dict.fromkeys(range(PARTITIONS), 8))

    planned = mirror[FLOW].failback(dry_run=True)
    assert sorted(record.value or b"" for record in planned.records) == values_of(world.east, world.topics[0])[-10:]
    assert planned.tail_records == 10
    refused = told("failback", "--flow", FLOW, "--tail", "restore", "--conf", world.conf, code=3)["cause"]
    assert [refused] == [f"{FLOW} is not failed back: {refusal}" for refusal in planned.refusals]
    mirror = world.mirror(*yaml.safe_load(refused.partition("run `mirrorlake apply`: ")[2]))
    mirror.apply()
    assert mirror[FLOW].failback(dry_run=True).refusals == ()
    assert "10 records of orders" in told("failback", "--flow", FLOW, "--conf", world.conf, code=3)["cause"]
    assert run_cli("failback", "--flow", FLOW, "--tail", "burn", "--conf", world.conf).returncode == 2

    done, deaths = killed_between_steps(partial(mirror[FLOW].failback, tail="restore"))
    assert deaths >= 12
    assert (done.tail_records, done.choice, done.held) == (10, "restore", 0)
    assert done.back == {"central->east": 12}
    assert {part.topic for part in done.tail} == {world.topics[0]}
    for topic in world.topics:
        assert_equal_topics(consume(world.east, topic), consume(world.central, f"east.{topic}"))
    since = {partition: records[4:] for partition, records in consume(world.central, world.topics[1]).items()}
    assert_equal_topics(since, consume(world.east, f"central.{world.topics[1]}"))
    assert not {f"central.{topic}" for topic in (unrelated, of_west)} & topics_of(world.east), "nobody asked for them"
    # Exactly what was read on central: 20 of the first group, and of the others what they had read before.
    world.groups[reader] = 20
    world.assert_groups_stand(world.east, prefix="")
    assert committed(world.east, local, f"central.{world.topics[1]}", PARTITIONS) == {0: 4, 1: 4}
    produce(world.east, world.topics[2], 6, prefix="after")
    assert mirror.run(once=True).republished[0].records == 6, "the former direction runs again"
    assert run_cli("failback", "--flow", FLOW, "--conf", world.conf, "--json").returncode == 0


@pytest.mark.law("A", "E")
def test_law_e_a_dropped_tail_is_accounted_for_and_skipped(world: World) -> None:
    mirror = world.mirror({"source": "central", "target": "east", "topics": world.topics[1]})
    mirror.run(once=True)
    assert run_cli("failback", "--flow", FLOW, "--conf", world.conf).returncode == 2, "it was not failed over"
    mirror[FLOW].failover(unproven=True)
    produce(world.east, world.topics[0], 10, prefix="tail")
    # Somebody wrote to central: to its own topic, which a flow takes home, and to a remote topic, which none can.
    create_topic(world.central, world.topics[1], PARTITIONS)
    produce(world.central, world.topics[1], 4, prefix="since")
    produce(world.central, f"east.{world.topics[2]}", 2, prefix="strange")
    with pytest.raises(FailoverRefused, match=f"--leave east.{world.topics[2]}"):
        mirror[FLOW].failback(tail="drop")
    leave = [f"east.{world.topics[2]}"]
    planned = mirror[FLOW].failback(tail="drop", leave=leave, dry_run=True)
    assert planned.refusals == ()
    assert not {f"central.{topic}" for topic in world.topics} & topics_of(world.east), "law G: shown first"
    # Nothing but what somebody wrote there differs. A failback that restores the tail dies before its rows, too.
    drop = partial(mirror[FLOW].failback, tail="drop", leave=leave, unproven=True)
    done, _ = killed_between_steps(drop, points=("step.written",))
    assert done.choice == "drop"
    assert done.back == {"central->east": 4}
    assert_equal_topics(consume(world.central, world.topics[1]), consume(world.east, f"central.{world.topics[1]}"))
    kept = mirror.query("SELECT record_count FROM withheld WHERE rule = 'failback'")["record_count"].to_pylist()
    assert sum(kept) == 10, "law E: each of them is explained"
    assert mirror.run(once=True).republished[0].records == 0
    at = {group: committed(world.east, group, world.topics[0], PARTITIONS) for group in world.groups}
    assert at[f"all-{world.tag}"] == {0: 55, 1: 55}, "a group that had read all before it goes on after it"
    assert at[f"most-{world.tag}"] == {0: 49, 1: 49}, "law A: no unread record that arrived is skipped"
    [*strange] = [one for one in mirror[FLOW].verify().differences if one.problem == "extra"]
    assert {one.topic for one in strange} == set(leave)


def values_of(where: KafkaCluster, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for records in consume(where, topic).values() for record in records)


@pytest.mark.law("A")
def test_law_a_topics_that_are_merged_on_the_way_home(world: World) -> None:
    merged = f"merged-{world.tag}"
    policy, (orders, clicks, _) = {"template": merged}, world.topics
    other = {"name": "other", "source": "east", "target": "central", "topics": clicks, "policy": policy}
    mirror = world.mirror(other, topics=orders, policy=policy)
    mirror.run(once=True)
    assert mirror[FLOW].failover().missing == 0
    # The other flow goes on into the same topic.
    produce(world.east, clicks, 10, prefix="other")
    mirror.run(once=True)
    assert sum(map(len, consume(world.central, merged).values())) == 2 * EACH + 10
    planned = mirror[FLOW].failback(dry_run=True)
    assert planned.refusals == (), "what another flow sent is nothing that applications wrote"
    produce(world.central, merged, 2, prefix="strange")
    with pytest.raises(FailoverRefused, match=f"no flow takes that to east; leave them there: --leave {merged}"):
        mirror[FLOW].failback()
    done = mirror[FLOW].failback(leave=[merged], unproven=True)
    assert done.back == {}
    for group, read in world.groups.items():
        at = committed(world.east, group, orders, PARTITIONS)
        assert at == dict.fromkeys(range(PARTITIONS), read), f"law A: {group} is where it was: {done}"


@pytest.mark.law("E")
def test_law_e_a_cutover_is_a_checklist_that_is_left_and_resumed(world: World) -> None:
    mirror, orders, moving = world.mirror(), world.topics[0], f"half-{world.tag}"
    mirror.run(once=True)
    produce(world.east, orders, 10, prefix="new")
    with member(world.east, moving, *world.topics):
        first = told("cutover", "--flow", FLOW, "--conf", world.conf, code=1)
        found = {line["name"]: line for line in first["checks"]}
        states = [found[name]["state"] for name in ("topics", "consumers", "producers")]
        assert states == ["ok", "open", "waits"]
        assert moving in found["consumers"]["said"]
        assert run_cli("cutover", "--flow", FLOW, "--commit", "--conf", world.conf).returncode == 3

    # The consumers read on at the target, and come home again.
    remotes = [f"east.{topic}" for topic in world.topics]
    commit(world.central, moving, remotes, dict.fromkeys(range(PARTITIONS), 40))
    assert mirror[FLOW].cutover(back=True).state == "back"
    world.groups[moving] = 40
    world.assert_groups_stand(world.east, prefix="")

    with open_transaction(world.east, orders, b"under way", commits=True):
        waits = {line.name: line for line in mirror[FLOW].cutover().checks}["producers"]
        assert (waits.state, f"{orders}-0" in waits.said) == ("open", True), f"law E: its record would be lost: {waits}"
    # A group that was placed reads on at the target, and does not run for the moment.
    commit(world.central, moving, f"east.{orders}", dict.fromkeys(range(PARTITIONS), 45))
    ready = mirror[FLOW].cutover()
    assert (ready.state, ready.mirrored) == ("ready", True), str(ready)
    for topic in world.topics:
        assert_equal_topics(consume(world.east, topic), consume(world.central, f"east.{topic}"))
    produce(world.east, orders, 2, prefix="late")
    done = mirror[FLOW].cutover(commit=True)
    assert done.state == "committed"
    # By another client: what a late producer wrote is there, too.
    assert_equal_topics(consume(world.east, orders), consume(world.central, f"east.{orders}"))
    assert mirror[FLOW].cutover().is_repeat
    assert mirror.run(once=True).republished[0].paused


@pytest.mark.law("G")
def test_law_g_a_drill_into_a_scratch_cluster_leaves_the_mirror_alone(
    world: World, west: KafkaCluster, tmp_path: Path
) -> None:
    world.spare = {"spare": west}
    mirror = world.mirror()
    mirror.run(once=True)
    mirror.sample()
    before = mirror.status(FLOW)[FLOW]
    refused = run_cli("drill", "--flow", FLOW, "--into", "central", "--conf", world.conf)
    assert refused.returncode == 3, "a cluster of the file is no scratch cluster"
    # A process, whose temporary folder is its own: others of this machine may rehearse at the same time.
    command = [sys.executable, "-m", "mirrorlake", "drill", "--flow", FLOW, "--conf", world.conf, "--json"]
    ended = subprocess.run(command, env=environment(TMPDIR=str(tmp_path)), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["passed"]
    assert not list(tmp_path.glob("mirrorlake-drill-*")), "the scratch broker's copy is gone"
    assert found["records"] == found["failover"]["proof"]["verified"] == 3 * EACH
    assert found["rto_s"] > 0
    assert {row["group"] for row in found["failover"]["groups"]} == set(world.groups)
    assert found["failover"]["records_again"] == 0
    after = mirror.status(FLOW)[FLOW]
    assert list(after) == list(before), "the live flow stands where it stood"
    assert not len(mirror.query("SELECT * FROM audit WHERE command = 'failover' AND flow = :flow", flow=FLOW))
    [kept] = mirror[FLOW].drills()
    assert kept.records == 3 * EACH
    # Into a cluster of the file, again and again: each leaves it as it was.
    empty = topics_of(west)
    again = [mirror[FLOW].drill(into="spare") for _ in range(2)]
    assert [(one.passed, one.scratch, one.records) for one in again] == [(True, "spare", 3 * EACH)] * 2
    assert {name for name in topics_of(west) - empty if not name.startswith("__")} == set()
    assert [one.id for one in mirror[FLOW].drills()] == [*(one.id for one in reversed(again)), kept.id]
    assert mirror[FLOW].failover(dry_run=True).state == "planned", "a drill fails nothing over"


@pytest.mark.law("E", "F")
def test_law_f_a_slow_mirror_of_another_machine_is_waited_for_and_comes_back_where_a_command_takes_its_place(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, topic = world.mirror(east={"land": {"trigger": "6s"}}), world.topics[0]
    remote, expected = f"east.{topic}", EACH

    def produced(prefix: str) -> None:
        nonlocal expected
        produce(world.east, topic, 4, prefix=prefix)
        expected += 4

    def arrived() -> bool:
        return remote in topics_of(world.central) and count(world.central, remote) == expected

    with running(tmp_path / "elsewhere.log", "run", "--conf", world.conf, host="elsewhere") as elsewhere:
        wait_until(arrived, "the mirror elsewhere runs")
        refused = run_cli("run", "--once", "--conf", world.conf)
        said = f"is carried by process {elsewhere.popen.pid} on elsewhere"
        assert (refused.returncode, said in refused.stderr) == (3, True), refused.stderr
        # Time in which no turn of its own comes: the command takes its place. Then time enough: it is waited for.
        for patience_s in ("0.1", "60"):
            monkeypatch.setenv("MIRRORLAKE_TIMING", f"progress_timeout_s={patience_s}")
            produced(f"within {patience_s}")
            assert mirror[FLOW].failover(unproven=True).missing == 0
            assert arrived()
            mirror.resume(flow=FLOW)
            produced(f"after {patience_s}")
            wait_until(arrived, "it lands and sends again")
            assert not mirror.parked(), elsewhere.output
        elsewhere.kill()
    produced("after its death")
    drained = run_cli("run", "--once", "--conf", world.conf)
    assert drained.returncode == 0, "the sign of a machine that died does not keep others out for ever"
    assert_equal_topics(consume(world.east, topic), consume(world.central, remote))


@pytest.mark.law("A", "F")
def test_law_f_there_and_back_beside_a_running_mirror_while_producers_go_on(world: World) -> None:
    """Two clusters with the same topics: they hold the same records in the end, and a group that moved skips none of them."""
    back = {"source": "central", "target": "east", "policy": "identity"}
    stays, mirror = world.mirror(back, policy="identity"), world.mirror(back, policy="identity")
    stays.run(once=True)
    world.assert_groups_stand(world.central, prefix="")
    written: list[bytes] = []
    with staying_on(stays):
        with producing(world.east, world.topics, "before") as sent:
            wait_until(lambda: len(sent) > 60, "producers write")
            wait_until(lambda: b"before-" in b"".join(values_of(world.central, world.topics[0])), "the mirror runs")
            over = mirror[FLOW].failover()
            assert over.records_again == 0
            assert not mirror.parked(), "the running mirror has let the flow go by itself"
        written += sent
        with producing(world.central, world.topics, "since") as sent:
            wait_until(lambda: len(sent) > 60, "producers have moved")
        written += sent
        # It has read all of central, and nothing of what was produced on east after the freeze.
        reader, orders = f"all-{world.tag}", world.topics[0]
        read = consume(world.central, orders)
        commit(world.central, reader, orders, {p: rows[-1].offset + 1 for p, rows in read.items()})
        home = mirror[FLOW].failback(tail="restore")
        assert home.tail_records > 0, "what was produced on east after the freeze"
        known = {record.value for rows in read.values() for record in rows}
        unread = {
            p: [r.offset for r in rows if r.value not in known] for p, rows in consume(world.east, orders).items()
        }
        at = committed(world.east, reader, orders, PARTITIONS)
        assert at == {p: offsets[0] for p, offsets in unread.items()}, (
            "law A: the tail is the first that it has not read"
        )
        with producing(world.east, world.topics, "after") as sent:
            wait_until(lambda: len(sent) > 30, "producers are back")
        written += sent
        assert not mirror.parked()

        def is_whole() -> bool:
            return all(
                len(values_of(place, topic)) == EACH + len(written) // 3
                for place in (world.east, world.central)
                for topic in world.topics
            )

        wait_until(is_whole, "every record on both sides")
    for topic in world.topics:
        expected = sorted(value for value in written if topic.encode() in value)
        for place in (world.east, world.central):
            found = [
                value
                for value in values_of(place, topic)
                if value and value.split(b"-")[0] in (b"before", b"since", b"after")
            ]
            assert found == expected, f"law F: every record on {place.alias} once"
    assert mirror.verify().equal
