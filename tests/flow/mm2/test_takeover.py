"""Laws D and F across two mirrors: what MirrorMaker 2 began, mirrorlake ends; each record once and in order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.loading import load
from mirrorlake.errors import LedgerLost
from mirrorlake.mirror import Mirror
from mirrorlake.mm2.survey import OtherMirror
from mirrorlake.model.offset_map import BeforeFirst
from mirrorlake.sandbox.mirror_maker import MirrorMaker, arrived, base_properties
from tests.kit.commands import run_cli, write_conf
from tests.kit.processes import wait_until
from tests.kit.records import assert_equal_topics, consume, create_topic, delete_topic, odd_record, send

STILL, RUNS = OtherMirror(watch_s=0.0), OtherMirror(watch_s=3.0)


def quick_end(target: str) -> dict[str, str]:
    """Return properties with which a killed worker leaves its group after 6 s, and the next one begins at once.

    6 s is the least that a broker allows; the defaults are 10 s, and up to five minutes until lost tasks are assigned again.
    """
    return {
        f"{target}.session.timeout.ms": "6000",
        f"{target}.heartbeat.interval.ms": "1000",
        f"{target}.rebalance.timeout.ms": "6000",
        f"{target}.scheduled.rebalance.max.delay.ms": "0",
    }


def write(where: str, topic: str, count: int, *, seed: int) -> None:
    rng = random.Random(seed)
    send(where, topic, ({"partition": number % 3, **odd_record(rng, number)} for number in range(count)))


@pytest.mark.law("C", "D", "F")
def test_each_record_arrives_once_after_a_clean_end_and_after_a_kill(
    make_cluster: Any, spark: SparkSession, tmp_path: Path
) -> None:
    east, central = make_cluster("east").start(), make_cluster("central").start()
    servers = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    flows = [{"name": name, "source": "east", "target": "central", "topics": name} for name in ("clean", "killed")]
    conf = write_conf(tmp_path, servers, flows)
    for topic in ("clean", "killed"):
        create_topic(servers["east"], topic, 3, max_message_bytes="2000000")
        write(servers["east"], topic, 2000, seed=1)
    house = Mirror(load(conf), spark=spark)
    properties = base_properties("east", "central", servers, topics="clean,killed") | quick_end("central")
    mirror = MirrorMaker(tmp_path / "first", {**properties, "central.offset.flush.interval.ms": "500"})
    try:
        wait_until(
            lambda: arrived(servers["central"], "east.clean") == arrived(servers["central"], "east.killed") == 2000,
            "MM2 mirrors",
        )
        wait_until(lambda: arrived(servers["central"], "heartbeats"), "its heart beats")
        # Its heart beats every second; where the machine is busy, not in each three seconds.
        for sign in ("group east-mm2 on central has 1 member", "heartbeats-0 on central grew"):
            wait_until(lambda sign=sign: any(sign in one for one in house["clean"].takeover(other=RUNS).refused), sign)
        write(servers["east"], "clean", 6000, seed=2)
        wait_until(lambda: arrived(servers["central"], "east.clean") == 8000, "it mirrors more")
    finally:
        mirror.stop()
    # A worker that a busy machine did not let end in time stays a member until its session is over.
    wait_until(lambda: not house.admin("central").members("east-mm2"), "the workers' group is empty")
    write(servers["east"], "clean", 300, seed=3)
    plan = house["clean"].takeover(other=STILL)
    assert {row.already_there for row in plan.partitions} == {0}, "a clean end stores everything"
    assert [note for note in plan.notes if "killed" in note], "it mirrored a topic that is not the flow's"

    takeover = ("takeover", "--conf", str(conf), "--flow", "clean", "--json")
    refused = run_cli(*takeover, "--connector", "nobody")
    assert refused.returncode == 3, refused.stderr
    assert "holds no offsets of nobody" in json.loads(refused.stdout)["refused"][0]
    taken = run_cli(*takeover, "--apply")
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert json.loads(taken.stdout)["applied"]
    again = run_cli(*takeover, "--apply")
    assert again.returncode == 3
    assert "the flow has begun already" in json.loads(again.stdout)["refused"][0]
    # Its positions stand in the lake, too: a flow of which they are all that is known does not begin at offset 0 either.
    delete_topic(servers["central"], house.config.flow("clean").ledger_topic)
    with pytest.raises(LedgerLost, match="has taken over from MirrorMaker 2"):
        house.run("clean", once=True)
    house.republish("clean", once=True, restore_ledger=True)
    check(house, servers, "clean")
    # MM2 copied the setting; from now on it is ours to take back when the source gives it up.
    assert house.admin("central").configs(["east.clean"])["east.clean"]["max.message.bytes"] == "2000000"
    house.admin("east").set_configs("clean", {"max.message.bytes": None})
    [reset] = [
        change for change in house.plan("clean").changes if change.kind == "topic" and change.name == "east.clean"
    ]
    assert (reset.action, reset.after) == ("reset_configs", {"max.message.bytes": None})

    # This time it stores nothing for an hour, and is killed; the relay knows the source already.
    mirror = MirrorMaker(
        tmp_path / "second",
        base_properties("east", "central", servers, topics="killed")
        | quick_end("central")
        | {"central.offset.flush.interval.ms": "3600000"},
    )
    try:
        write(servers["east"], "killed", 300, seed=4)
        wait_until(lambda: arrived(servers["central"], "east.killed") == 2300, "MM2 goes on")
        write(servers["east"], "killed", 6000, seed=5)
        wait_until(lambda: arrived(servers["central"], "east.killed") > 2300, "it is in the midst of more")
    finally:
        mirror.kill()
    wait_until(lambda: not house.admin("central").members("east-mm2"), "the workers' group is empty")
    # Where it was quick, nothing of the others is left for the flow.
    write(servers["east"], "killed", 300, seed=6)
    plan = house["killed"].takeover(other=OtherMirror(watch_s=1.0))
    for row in plan.partitions:
        assert row.stored is not None
        assert row.already_there == row.position - row.stored, "plain records have no holes between them"
    assert any(row.already_there for row in plan.partitions), plan
    house.apply_takeover(plan)
    house.run("killed", once=True)
    check(house, servers, "killed")


def check(house: Mirror, servers: dict[str, str], topic: str) -> None:
    upstream, downstream = consume(servers["east"], topic), consume(servers["central"], f"east.{topic}")
    assert_equal_topics(upstream, downstream)
    [proof] = house.verify(topic)
    assert proof.equal, proof.differences
    assert sum(p.republished for p in proof.partitions) < sum(p.landed for p in proof.partitions), "MM2 sent the rest"
    before = house[topic].offsets.translate(topic, 0, 0)
    assert isinstance(before, BeforeFirst), before
    [*_, last] = upstream[0]
    assert downstream[0][-1].offset == house[topic].offsets.translate(topic, 0, last.offset).offset  # type: ignore[union-attr]
