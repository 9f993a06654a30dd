"""Failover and failback on real brokers: a source that is gone, one that comes back, and a command that is killed again and again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from mirrorlake.errors import FailoverRefused
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster, start_all
from mirrorlake.sandbox.properties import QUICK_START_OPTIONS
from tests.commands import run_cli
from tests.flow.kit import (
    assert_equal_topics,
    commit,
    committed,
    consume,
    create_topic,
    produce,
    topic_name,
    wait_until,
)
from tests.servers.lakes import MakeMirror

FLOW = "east->central"
PARTITIONS, EACH = 2, 100
# What each group has read of each partition.
GROUPS = {"none": 0, "some": 7, "half": 25, "most": 49, "all": 50}


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Run a pair of brokers that the tests of this file stop and start."""
    east, central = start_all(KafkaCluster(alias, java_options=QUICK_START_OPTIONS) for alias in ("east", "central"))
    yield east, central
    for cluster in (east, central):
        cluster.kill()


class World:
    """Three topics of east with their records, five groups that have read parts of them, and their mirror."""

    def __init__(self, sites: tuple[KafkaCluster, KafkaCluster], make_mirror: MakeMirror, folder: Path) -> None:
        self.east, self.central = sites
        self.tag = topic_name()
        self.topics = [f"{name}-{self.tag}" for name in ("orders", "clicks", "users")]
        self.groups = {f"{name}-{self.tag}": read for name, read in GROUPS.items()}
        self.conf = str(folder / "mirror.yml")
        self._make = make_mirror
        for topic in self.topics:
            create_topic(self.east, topic, PARTITIONS)
            produce(self.east, topic, EACH, prefix=topic)
            for group, read in self.groups.items():
                commit(self.east, group, topic, dict.fromkeys(range(PARTITIONS), read))

    def mirror(self, *more: dict[str, Any], **settings: Any) -> Mirror:
        ours = {"topics": f".*-{self.tag}", "groups": f".*-{self.tag}"}
        flows = [{"source": "east", "target": "central", **ours, **settings}]
        return self._make({"east": self.east, "central": self.central}, [*flows, *({**ours, **flow} for flow in more)])

    def assert_groups_stand(self, where: KafkaCluster, prefix: str = "east.") -> None:
        for group, read in self.groups.items():
            for topic in self.topics:
                at = committed(where, group, f"{prefix}{topic}", PARTITIONS)
                assert at == dict.fromkeys(range(PARTITIONS), read), f"law A: {group} on {topic}"


@pytest.fixture
def world(sites: tuple[KafkaCluster, KafkaCluster], make_mirror: MakeMirror, tmp_path: Path) -> World:
    return World(sites, make_mirror, tmp_path)


class Killed(Exception):
    """The command was killed here."""


class Killing:
    """Kill a command once at each point between two steps, before and after the step's row is written."""

    def __init__(self, **then: Any) -> None:
        self.points: list[tuple[str, str]] = []
        self._then = then

    def __call__(self, step: str, when: str) -> None:
        if (step, when) not in self.points:
            self.points.append((step, when))
            if when == "done" and step in self._then:
                self._then[step]()
            raise Killed(step, when)

    def until_done(self, call: Any) -> Any:
        while True:
            try:
                return call(self)
            except Killed:
                continue


@pytest.mark.law("A")
def test_a_source_that_is_gone_for_good(world: World) -> None:
    mirror = world.mirror()
    mirror.run(once=True)
    mirror.sample(once=True)
    # Seen by the sampler, and never landed.
    produce(world.east, world.topics[0], 14, prefix="late")
    mirror.sample(once=True)
    world.east.kill()
    try:
        first = f"most-{world.tag}"
        options = {"bootstrap.servers": world.central.bootstrap_servers, "group.id": first}
        member = Consumer({**options, "enable.auto.commit": False})
        member.subscribe([f"east.{world.topics[0]}"])
        wait_until(lambda: member.poll(0.2) is None and member.assignment(), "the group has a member")
        live = run_cli("failover", "--flow", FLOW, "--conf", world.conf, "--json")
        assert live.returncode == 3, live.stdout + live.stderr
        assert first in json.loads(live.stdout)["cause"]
        member.close()
        assert not mirror.lake.ask("SELECT * FROM {control} WHERE kind = 'flow'"), "a refusal leaves the flow as it is"

        unknown = run_cli("failover", "--flow", FLOW, "--group", "nobody", "--conf", world.conf, "--json")
        assert unknown.returncode == 2, unknown.stderr
        done = run_cli("failover", "--flow", FLOW, "--conf", world.conf, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert not report["source_answers"]
        assert report["missing"] == 14
        assert {row["missing"] for row in report["partitions"] if row["topic"] == world.topics[0]} == {7}
        assert all(row["seen_at"] for row in report["partitions"])
        assert report["rpo_s"] >= 0
        assert report["rto_s"] > 0
        assert report["records_again"] == 0
        assert {row["group"] for row in report["groups"]} == set(world.groups)
        assert report["proof"]["verified"] == 3 * EACH
        assert report["topics"][0]["write_to"] == sorted(world.topics)[0]
        world.assert_groups_stand(world.central)
        again = run_cli("failover", "--flow", FLOW, "--conf", world.conf, "--json")
        assert again.returncode == 0
        assert json.loads(again.stdout) == {**report, "is_repeat": True}
        assert run_cli("failover", "--flow", "no->flow", "--conf", world.conf).returncode == 2
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

    recovery = mirror._services.recovery
    killing = Killing(drain=world.central.restart)
    done = killing.until_done(lambda seam: recovery.failover(FLOW, fence_source="topic", seam=seam))
    assert [step for step, when in killing.points if when == "written"] == [
        "begin", "freeze", "drain", "prove", "groups", "fence_plan", "fence", "done",
    ]  # fmt: skip
    assert done.is_repeat, "the last row was written before the last kill"
    assert (done.missing, done.rpo_s, done.held) == (0, 0.0, 0)
    rows = mirror.lake.ask("SELECT action, count(*) AS number FROM {audit} WHERE command = 'failover' GROUP BY action")
    assert {row.number for row in rows} == {1}
    for topic in world.topics:
        assert_equal_topics(consume(world.east, topic), consume(world.central, f"east.{topic}"))
    world.assert_groups_stand(world.central)
    assert mirror.admin("east").configs([world.topics[0]])[world.topics[0]] == {"min.insync.replicas": "32767"}
    assert mirror.run(once=True).republished[0].paused, "the flow stays paused"


def test_what_cannot_be_sent_is_not_failed_over(world: World) -> None:
    mirror = world.mirror()
    mirror.run(once=True)
    mirror.pause(flow=FLOW, topic=world.topics[2], reason="a person")
    produce(world.east, world.topics[2], 10, prefix="held")
    with pytest.raises(FailoverRefused, match=r"could not all be sent \(paused: users"):
        mirror[FLOW].failover()
    mirror.resume(flow=FLOW, topic=world.topics[2])
    assert mirror[FLOW].failover().missing == 0
    assert_equal_topics(consume(world.east, world.topics[2]), consume(world.central, f"east.{world.topics[2]}"))
