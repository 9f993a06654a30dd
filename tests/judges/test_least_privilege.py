"""Exactly the ACLs that docs/security.md names, on brokers that deny everything else: the whole flow runs."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import Mirror, load
from mirrorlake.errors import NotAuthorized
from mirrorlake.sandbox import KafkaCluster
from tests.docs import DOCS
from tests.kit.commands import run_cli, write_conf
from tests.kit.java import ACLS, java
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import assert_equal_topics, commit, committed, consume, count, create_topic, produce, topic_name
from tests.servers.guarded import GUARDED, USERS, Acl, listed, login, set_acls

Clusters = Mapping[str, KafkaCluster]
Grants = Mapping[str, list[Acl]]
_ROW = re.compile(r"\| (source|target) \| (.+) \| ([A-Z_, ]+) \| (.+) \|")
_OPTIONS = {"TOPIC": "--topic", "GROUP": "--group", "TRANSACTIONAL_ID": "--transactional-id"}
_SYNC = ("sync.groups", "sync.configs", "sync.partitions", "sync.acls")
_MM2 = ("mm2", "mm2.heartbeats", "mm2.checkpoints")


def granted(command: str) -> list[Acl]:
    """Read a command of Kafka's tools back, as somebody else understands it."""
    tool, *words = shlex.split(command)
    given = defaultdict[str, list[str]](list)
    for option, value in pairwise([*words, ""]):
        if option.startswith("--"):
            given[option].append(value)
    assert (tool, "--add" in given, "--bootstrap-server" in given) == ("kafka-acls.sh", True, True)
    [(resource, [name])] = [(kind, given[option]) for kind, option in _OPTIONS.items() if option in given] or [
        ("CLUSTER", ["kafka-cluster"])
    ]
    spelled = {"DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}
    [pattern, [principal]] = given.get("--resource-pattern-type", ["literal"])[0].upper(), given["--allow-principal"]
    return [
        Acl(name, spelled.get(one, one.upper()), resource=resource, pattern=pattern, principal=principal)
        for one in given["--operation"]
    ]


@dataclass
class Guarded:
    """Two brokers that deny what is not granted, and a flow between them that runs as `User:mirror`."""

    clusters: Clusters
    topic: str
    group: str
    folder: Path

    def conf(self, **flow: Any) -> Path:
        addresses = {alias: cluster.address(GUARDED.name) for alias, cluster in self.clusters.items()}
        entry = {"source": "east", "target": "central", "topics": f"{self.topic}.*", "groups": f"{self.group}.*"}
        return write_conf(
            self.folder, addresses, [{**entry, **flow}], **{alias: {"client": login("mirror")} for alias in addresses}
        )

    def needed(self, *uses: str) -> Grants:
        """Return the ACLs by cluster that docs/security.md names for what a flow uses."""
        resources = {
            "topics of the flow": ("TOPIC", "PREFIXED", [self.topic]),
            "topic `__consumer_offsets`": ("TOPIC", "LITERAL", ["__consumer_offsets"]),
            "topic `heartbeats`": ("TOPIC", "LITERAL", ["heartbeats"]),
            "remote topics": ("TOPIC", "PREFIXED", [f"east.{self.topic}"]),
            "topics `mirrorlake.<flow>.*`": ("TOPIC", "PREFIXED", ["mirrorlake.east.central."]),
            "MirrorMaker 2's topics": ("TOPIC", "LITERAL", _MM2_TOPICS),
            "groups of the flow": ("GROUP", "PREFIXED", [self.group]),
            "groups `mirrorlake*`": ("GROUP", "PREFIXED", ["mirrorlake"]),
            "transactional ids `mirrorlake.<flow>.*`": ("TRANSACTIONAL_ID", "PREFIXED", ["mirrorlake.east.central."]),
            "cluster": ("CLUSTER", "LITERAL", ["kafka-cluster"]),
        }
        found: dict[str, dict[Acl, None]] = {"east": {}, "central": {}}
        for end, words, operations, when in _ROW.findall((DOCS / "security.md").read_text()):
            resource, pattern, names = resources[words]
            if {"always", *uses} & {use.strip("`") for use in when.split(", ")}:
                found["east" if end == "source" else "central"].update(
                    (Acl(name, operation, resource=resource, pattern=pattern, principal="User:mirror"), None)
                    for name in names
                    for operation in operations.split(", ")
                )
        return {alias: [*acls] for alias, acls in found.items()}

    def grant(self, needed: Grants) -> None:
        for alias, acls in needed.items():
            set_acls(self.clusters[alias], add=acls)

    def revoke(self) -> None:
        for cluster in self.clusters.values():
            set_acls(cluster, remove=[one for one in listed(cluster) if one.principal == "User:mirror"])


@pytest.fixture(scope="module")
def world(guarded_clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    topic, group = topic_name("least"), topic_name("readers")
    east = guarded_clusters["east"]
    create_topic(east, topic, 2, retention_ms="900000000")
    produce(east, topic, 200)
    commit(east, group, topic, {0: 40, 1: 50})
    made = Guarded(guarded_clusters, topic, group, tmp_path_factory.mktemp("least"))
    yield made
    for cluster in guarded_clusters.values():
        set_acls(cluster, remove=listed(cluster))


_MM2_TOPICS = ["heartbeats", "east.heartbeats", "east.checkpoints.internal", "mm2-offset-syncs.east.internal"]

# What a user that may do nothing is told.
_LACKS = {
    "plan": "DESCRIBE on topic",
    "apply": "DESCRIBE on topic",
    "land --source east --once": "DESCRIBE on topic",
    "republish --flow east->central --once": "mirrorlake.east.central.ledger",
}


@pytest.mark.law("F")
def test_the_whole_flow_runs_with_the_acls_of_the_docs_and_no_others(world: Guarded, spark: Any) -> None:
    conf = world.conf(sync={"acls": True}, mm2={"heartbeats": True, "checkpoints": True, "offset_syncs": True})
    mirror = load(conf, spark=spark)
    needed = world.needed(*_SYNC, *_MM2)
    assert not any(
        one.operation in ("WRITE", "CREATE", "ALTER", "ALTER_CONFIGS", "DELETE", "ALL") for one in needed["east"]
    ), "law H: nothing is written to a source"

    for command, lacks in _LACKS.items():
        refused = run_cli(*command.split(" "), "--conf", str(conf), "--json")
        document = json.loads(refused.stdout)
        assert (refused.returncode, document["error"]) == (4, "NotAuthorized")
        assert "User:mirror" in document["cause"]
        assert lacks in document["cause"]
        assert document["remedy"].startswith("kafka-acls.sh --bootstrap-server 127.0.0.1:")
        assert USERS["mirror"] not in refused.stdout + refused.stderr

    world.grant(needed)
    east, central, topic = world.clusters["east"], world.clusters["central"], world.topic
    remote = f"east.{topic}"
    reader = Acl(topic, principal="User:app")
    set_acls(world.clusters["east"], add=[reader])
    assert mirror.apply()
    assert not mirror.plan(), "law G"
    mirror.run(once=True)
    assert_equal_topics(consume(east, topic), consume(central, remote))
    assert mirror.verify().equal
    assert mirror["east->central"].offsets.translate(topic, 0, 7).status == "exact"
    mirror["east->central"].apply_groups()
    assert committed(central, world.group, remote, 2) == {0: 40, 1: 50}
    assert mirror.status()["east->central"].partitions
    assert not [one for one in mirror.doctor() if "does not allow" in one.detail]
    mirror.maintain()

    with staying_on(mirror):
        produce(east, topic, 100, seed=2)
        create_topic(east, f"{topic}-new", 1)
        produce(east, f"{topic}-new", 10, partitions=1)
        commit(east, world.group, topic, {0: 120, 1: 130})
        wait_until(lambda: count(central, remote) == 300, "new records arrive")
        source, target = consume(east, topic), consume(central, remote)
        wait_until(lambda: count(central, f"{remote}-new") == 10, "and a new topic")
        # Markers of transactions stand between the records, and how many there are depends on what came at a time.
        unread = {0: source[0][120], 1: source[1][130]}
        due = {p: next(r.offset for r in target[p] if r.content == first.content) for p, first in unread.items()}
        wait_until(lambda: committed(central, world.group, remote, 2) == due, "groups follow")
        wait_until(lambda: count(central, "east.checkpoints.internal"), "checkpoints are written")
        wait_until(lambda: count(central, "heartbeats"), "heartbeats are written")
    assert mirror.verify(full=True).equal
    assert run_cli("groups", "--flow", "east->central", "--conf", str(conf)).returncode == 0
    set_acls(world.clusters["east"], remove=[reader])


def _verify(mirror: Mirror) -> None:
    mirror.verify(full=True)


@pytest.mark.law("F")
def test_a_permission_that_is_lost_in_a_running_mirror_is_told_and_waited_for(
    world: Guarded, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "ready_interval_s=2,waiting_topics_interval_s=2")
    mirror = load(world.conf(groups=[], sync={"groups": False, "configs": False}), spark=spark)
    needed = world.needed("sync.partitions")
    world.grant(needed)
    mirror.apply()
    east, central, topic = world.clusters["east"], world.clusters["central"], world.topic
    flow = "east->central"
    losses = [
        ("east", "TOPIC", topic, "READ", "land east"),
        ("central", "TOPIC", "east.", "WRITE", f"{flow}: topic {topic}"),
        ("central", "TRANSACTIONAL_ID", "mirrorlake.", "WRITE", flow),
    ]
    with staying_on(mirror):
        wait_until(lambda: count(central, f"east.{topic}") == count(east, topic), "the mirror is in step")
        for number, (alias, resource, begins, operation, stream) in enumerate(losses):
            lost = [
                one
                for one in needed[alias]
                if (one.resource, one.operation) == (resource, operation) and one.name.startswith(begins)
            ]
            assert lost
            set_acls(world.clusters[alias], remove=lost)
            produce(east, topic, 10, seed=20 + number)

            option = f"--{resource.lower().replace('_', '-')} "
            parked = wait_until(
                lambda stream=stream, option=option: (
                    (one := mirror.parked().get(stream)) and option in one.remedy and one
                ),
                f"{stream} is parked",
            )
            assert (parked.error, parked.is_retried) == ("NotAuthorized", True), parked
            assert [(one.resource, one.operation) for one in granted(parked.remedy)[:1]] == [(resource, operation)]
            if alias == "east":
                assert flow not in mirror.parked(), "what has landed is sent"
            else:
                wait_until(
                    lambda: all(row.landed == row.source_end for row in mirror.status()[flow]), "landing goes on"
                )
            set_acls(world.clusters[alias], add=lost)
            wait_until(lambda: count(central, f"east.{topic}") == count(east, topic), "it goes on without a new start")
    assert_equal_topics(consume(east, topic), consume(central, f"east.{topic}"))


_RUNS: dict[str, tuple[str, str, str, Callable[[Mirror], object]]] = {
    "read the source": ("east", "TOPIC", "READ", lambda m: m.land("east", once=True)),
    "see the source's topics": ("east", "TOPIC", "ALL", lambda m: m.plan()),
    "read settings": ("east", "TOPIC", "DESCRIBE_CONFIGS", lambda m: m.plan()),
    "see groups": ("east", "GROUP", "DESCRIBE", lambda m: m["east->central"].groups()),
    "read ACLs": ("east", "CLUSTER", "DESCRIBE", lambda m: m.plan()),
    "write ACLs": ("central", "CLUSTER", "ALL", lambda m: m.plan()),
    "hold lanes": ("central", "TRANSACTIONAL_ID", "ALL", lambda m: m.run(once=True)),
    "keep the ledger": ("central", "TOPIC mirrorlake.", "ALL", lambda m: m.run(once=True)),
    "write records": ("central", "TOPIC east.", "WRITE", lambda m: m.run(once=True)),
    "read back": ("central", "TOPIC east.", "READ", _verify),
    "move groups": ("central", "GROUP", "READ", lambda m: m["east->central"].apply_groups()),
}


# What the doctor names, too, before a stream fails.
_CHECKED = {
    "read the source": "source.permissions",
    "read settings": "source.permissions",
    "keep the ledger": "target.permissions",
    "write records": "target.permissions",
}


@pytest.mark.parametrize("what", _RUNS)
def test_without_one_of_them_the_message_names_it(what: str, world: Guarded, spark: Any) -> None:
    alias, resource, operation, call = _RUNS[what]
    kind, _, beginning = resource.partition(" ")
    begins = beginning or {"TOPIC": world.topic, "GROUP": world.group}.get(kind, "")
    mirror = load(world.conf(sync={"acls": True}), spark=spark)
    needed = world.needed(*_SYNC)
    mine = [one for one in needed[alias] if one.resource == kind and one.name.startswith(begins)]
    taken = [one for one in mine if operation in ("ALL", one.operation)]
    assert taken
    produce(world.clusters["east"], world.topic, 2, seed=9)
    commit(world.clusters["east"], world.group, world.topic, {0: 121})
    world.grant(needed)
    set_acls(world.clusters[alias], remove=taken)
    try:
        with pytest.raises(NotAuthorized) as said:
            call(mirror)
        if what in _CHECKED:
            [finding] = mirror.doctor(only=["source.permissions", "target.permissions"]).bad
            assert (finding.check, finding.fix.partition(" ")[0]) == (_CHECKED[what], "kafka-acls.sh")
    finally:
        set_acls(world.clusters[alias], add=taken)
    assert f"cluster {alias} does not allow User:mirror" in said.value.cause
    assert operation in ("ALL", getattr(said.value, "operation", operation))
    [missing] = granted(said.value.remedy)[:1]
    assert missing.resource == kind


def test_a_failover_places_groups_that_are_not_kept_in_step(world: Guarded, spark: Any) -> None:
    mirror = load(world.conf(sync={"groups": False}), spark=spark)
    world.revoke()
    east, central = world.clusters["east"], world.clusters["central"]
    group = f"{world.group}-late"
    commit(east, group, world.topic, {0: 40})
    uses = ("sync.configs", "sync.partitions")
    world.grant(world.needed(*uses))
    mirror.apply()
    mirror.run(once=True)
    with pytest.raises(NotAuthorized, match="group"):
        mirror.failover("east->central")
    world.grant(world.needed(*uses, "failover"))
    assert mirror.failover("east->central").state == "done"
    assert committed(central, group, f"east.{world.topic}", 2) == {0: 40}


def test_who_does_what_the_refusals_say_by_kafkas_own_tool_can_plan_and_send(world: Guarded) -> None:
    world.revoke()
    for command in ("plan", "republish --flow east->central --once"):
        for _ in range(12):
            done = run_cli(*command.split(" "), "--conf", str(world.conf()), "--json")
            if done.returncode == 0:
                break
            refused = json.loads(done.stdout)
            assert refused["error"] == "NotAuthorized", refused
            for cluster in world.clusters.values():
                # The tool logs in where everything is allowed.
                remedy = refused["remedy"].replace(cluster.address(GUARDED.name), cluster.bootstrap_servers)
                if remedy != refused["remedy"]:
                    java(ACLS, *shlex.split(remedy)[1:])
                    acls = {*granted(remedy)}
                    wait_until(lambda one=cluster, acls=acls: acls <= {*listed(one)}, f"{remedy} was read")
        assert done.returncode == 0, done.stdout
