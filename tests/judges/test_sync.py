"""Settings, partitions and ACLs from one cluster to the other: planned, applied, kept in step, remembered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import Mirror, Plan
from mirrorlake.errors import ClusterError, RemoteTopicLost
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, write_conf
from tests.kit.deaths import dying
from tests.kit.processes import wait_until
from tests.kit.records import (
    add_partitions,
    configs_of,
    consume,
    create_topic,
    delete_topic,
    new_topic,
    partitions_of,
    produce,
    set_configs,
    topic_name,
    topics_of,
)
from tests.servers.guarded import GUARDED, Acl, listed, login, set_acls
from tests.servers.lakes import MakeMirror

Clusters = Mapping[str, KafkaCluster]


def actions(plan: Plan) -> list[tuple[str, str, str]]:
    return [(change.action, change.kind, change.name) for change in plan.changes]


def recorded(mirror: Mirror, since: datetime) -> list[tuple[str, str, int, dict[str, str]]]:
    """Return the states of topics that changed in `metadata` after a time: cluster, topic, partitions, settings."""
    text = "SELECT cluster, topic, partitions, configs, observed_at FROM metadata WHERE kind = 'topic' ORDER BY observed_at"
    known: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    found = []
    for row in mirror.query(text).to_pylist():
        place, state = (row["cluster"], row["topic"]), (row["partitions"], dict(row["configs"] or {}))
        # Rows tell of leader epochs, too.
        if row["observed_at"] > since and known.get(place) != state:
            found.append((*place, *state))
        known[place] = state
    return found


@pytest.mark.law("G")
def test_settings_follow_the_source_and_spare_what_others_made(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    remote = f"east.{topic}"
    east, central = guarded_clusters["east"], guarded_clusters["central"]
    create_topic(east, topic, 1, retention_ms="3600000", segment_ms="60000", min_insync_replicas="1")
    flow: dict[str, Any] = {"source": "east", "target": "central", "topics": topic}
    flow["sync"] = {"configs_override": {topic: {"segment.ms": 90000}}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    mirror.apply()
    assert configs_of(central, remote) == {"retention.ms": "3600000", "segment.ms": "90000"}
    assert not mirror.plan(), "law G"

    set_configs(central, remote, **{"max.message.bytes": "2000000"})
    assert not mirror.plan(), "the source never had it: somebody else's"
    set_configs(east, topic, **{"retention.ms": None, "cleanup.policy": "compact"})
    add_partitions(east, topic, 3)
    plan = mirror.plan()
    assert actions(plan) == [
        ("add_partitions", "topic", remote),
        ("set_configs", "topic", remote),
        ("reset_configs", "topic", remote),
    ]
    mirror.run(once=True)
    expected = {"cleanup.policy": "compact", "segment.ms": "90000", "max.message.bytes": "2000000"}
    assert configs_of(central, remote) == expected
    assert partitions_of(central, remote) == 3
    assert not mirror.plan(), "law G"

    # Everything is copied back by a stranger's hand; a value that was changed since is not ours any more.
    set_configs(east, topic, **{"cleanup.policy": None})
    set_configs(central, remote, **{"cleanup.policy": "compact,delete"})
    assert not mirror.plan()


@pytest.mark.law("G")
def test_law_g_settings_of_clusters_that_mirror_each_other_come_to_rest(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    create_topic(guarded_clusters["east"], topic, 1, retention_ms="3600000")
    flows = [
        {"source": one, "target": other, "topics": topic, "policy": "identity"}
        for one, other in (("east", "central"), ("central", "east"))
    ]
    mirror = make_mirror(dict(guarded_clusters), flows)
    both = [guarded_clusters[alias] for alias in ("east", "central")]
    mirror.apply()
    for cluster, changed in (
        (both[0], {"retention.ms": "7200000"}),
        (both[1], {"segment.ms": "90000"}),
        (both[0], {"retention.ms": None}),
    ):
        set_configs(cluster, topic, **changed)
        wanted = configs_of(cluster, topic)
        mirror.apply()
        assert [configs_of(each, topic) for each in both] == [wanted, wanted], f"law G: after {changed}"
        assert not mirror.plan(), "law G"


def test_empty_topics_are_made_beside_the_records_and_lost_ones_are_not(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    """A remote topic that was there and is missing is not an empty topic: its records are gone, which a person must see."""
    topic = topic_name()
    remote = f"east.{topic}"
    east, target = (guarded_clusters[alias] for alias in ("east", "central"))
    create_topic(east, topic, 2, segment_ms="60000")
    flow: dict[str, Any] = {"source": "east", "target": "central", "topics": rf"{topic}.*", "replication_factor": 1}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    mirror.run(once=True)
    assert (partitions_of(target, remote), configs_of(target, remote)) == (2, {"segment.ms": "60000"})
    [entry] = mirror.query("SELECT * FROM audit WHERE object = :object", object=f"topic {remote}").to_pylist()
    assert (entry["where"], entry["action"]) == ("central", "create")
    assert json.loads(entry["after"])["replication_factor"] == 1
    assert mirror.doctor(only=["target.replication", "ledger"]).bad == []
    add_partitions(east, topic, 3)
    produce(east, topic, 9, partitions=3)
    mirror.run(once=True)
    assert [len(part) for part in consume(target, remote).values()] == [3, 3, 3], "it was ours, so it grew"
    delete_topic(target, remote)
    with pytest.raises(RemoteTopicLost):
        mirror.run(once=True)
    assert remote not in topics_of(target)
    assert ("held", "topic", remote) in actions(mirror.plan()), "shown to a person"

    create_topic(east, late := f"{topic}.late", 1)
    three = make_mirror(dict(guarded_clusters), [{**flow, "topics": late, "replication_factor": 3}])
    with pytest.raises(ClusterError, match="create topic") as refused:
        three.run(once=True)
    assert refused.value.exit_code == 4
    [finding] = three.doctor(only=["target.replication"]).bad
    assert "1 broker" in finding.detail


def test_a_flow_that_is_not_continuous_records_and_corrects_nothing(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic = new_topic(guarded_clusters["east"], 10, partitions=1)
    remote = f"east.{topic}"
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"continuous": False}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    mirror.run(once=True)
    start = datetime.now(timezone.utc)
    set_configs(guarded_clusters["east"], topic, **{"retention.ms": "7000000"})
    mirror.run(once=True)
    assert configs_of(guarded_clusters["central"], remote) == {}
    new = {"retention.ms": "7000000"}
    assert recorded(mirror, start) == [("east", topic, 1, new)]
    [planned] = mirror.plan().changes
    assert (planned.action, planned.after) == ("set_configs", new)
    continuous = make_mirror(dict(guarded_clusters), [{**flow, "sync": {}}])
    continuous.run(once=True)
    assert configs_of(guarded_clusters["central"], remote) == {"retention.ms": "7000000"}


@pytest.mark.law("G")
def test_acls_are_carried_mapped_revoked_and_strangers_are_spared(
    guarded_clusters: Clusters, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    topic, other = (new_topic(guarded_clusters["east"], partitions=1, prefix=prefix) for prefix in ("t", "other"))
    remote = f"east.{topic}"
    flow = {"source": "east", "target": "central", "topics": f"{topic}.*"}
    flow["sync"] = {"acls": True, "acls_principals": {"User:app-east": "User:app"}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    east, central = guarded_clusters["east"], guarded_clusters["central"]
    read, everything = Acl(topic, principal="User:app-east"), Acl(topic, "ALL", principal="User:etl")
    prefixed, denied = Acl(topic, pattern="PREFIXED"), Acl(topic, "WRITE", permission="DENY", host="10.0.0.1")
    source = [read, everything, prefixed, denied, Acl(other), Acl("app", resource="GROUP")]
    strangers = [Acl(remote, principal="User:local"), Acl("local", "ALL"), Acl(remote, principal="User:etl")]
    set_acls(east, add=source)
    set_acls(central, add=strangers)
    mirror.apply()
    made = [
        Acl(remote, principal="User:app"),
        Acl(remote, "DESCRIBE", principal="User:etl"),
        Acl(remote, pattern="PREFIXED"),
        Acl(remote, "WRITE", permission="DENY", host="10.0.0.1"),
    ]
    wait_until(lambda: listed(central) == sorted([*made, *strangers]), "what was planned is there")
    plan = mirror.plan()
    assert not plan, "law G"
    assert any("GROUP" in note.name for note in plan.notes), "what is left out is said"

    # The source revokes: ours go, the strangers' stay, also where both asked for the same.
    set_acls(east, remove=[read, everything, denied])
    assert {change.action for change in mirror.plan().changes} == {"delete"}
    mirror.run(once=True)
    wait_until(lambda: listed(central) == sorted([made[2], *strangers]), "ours are gone")
    assert not mirror.plan(), "law G"

    # Nothing revokes everything because the source hides its ACLs.
    addresses = {"east": east.address(GUARDED.name), "central": central.bootstrap_servers}
    hidden = write_conf(tmp_path / "lake", addresses, [flow], east={"client": login("nobody")})
    set_acls(east, add=(grants := [Acl(topic, op, principal="User:nobody") for op in ("DESCRIBE", "DESCRIBE_CONFIGS")]))
    assert run_cli("plan", "--conf", str(hidden)).returncode == 4
    set_acls(east, remove=[*source, *grants])
    set_acls(central, remove=[*made, *strangers])


@pytest.mark.law("F")
def test_law_f_an_interrupted_apply_neither_loses_an_acl_nor_takes_anothers(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic = new_topic(guarded_clusters["east"], partitions=1)
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"acls": True}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    east, central = guarded_clusters["east"], guarded_clusters["central"]
    mirror.apply()
    for number in range(1, 9):
        grant, made = Acl(topic), Acl(f"east.{topic}")
        set_acls(east, add=[grant])
        with dying("commit.prepared", nth=number):
            mirror.apply()
        is_half_done = [change.action for change in mirror.plan().changes if change.kind == "acl"] == ["adopt"]
        if is_half_done:
            # It was written down and created, and then there was no power.
            set_acls(east, remove=[grant])
            plan = mirror.plan()
            assert not plan
            assert any(made.name in note.name for note in plan.notes), "perhaps somebody else's: said, not deleted"
            set_acls(east, add=[grant])
        mirror.apply()
        assert made in listed(central)
        set_acls(east, remove=[grant])
        mirror.apply()
        wait_until(lambda: made not in listed(central), "after the adoption its revocation is followed")  # noqa: B023
        assert not mirror.plan()
        if is_half_done:
            return
    raise AssertionError("no death came between an ACL and the row that says whose it is")


def test_every_change_is_recorded(guarded_clusters: Clusters, make_mirror: MakeMirror) -> None:
    topic = new_topic(guarded_clusters["east"], 10, partitions=1, retention_ms="1000000")
    remote = f"east.{topic}"
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"acls": True}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    east, central = guarded_clusters["east"], guarded_clusters["central"]
    grant = Acl(topic)
    set_acls(east, add=[grant])
    mirror.run(once=True)
    then = datetime.now(timezone.utc)
    set_configs(east, topic, **{"retention.ms": "2000000", "segment.ms": "70000"})
    mirror.run(once=True)
    set_acls(east, remove=[grant])
    stranger, made = Acl(remote, principal="User:local"), Acl(remote)
    set_acls(central, add=[stranger])
    mirror.run(once=True)
    add_partitions(east, topic, 2)
    mirror.run(once=True)
    new = {"retention.ms": "2000000", "segment.ms": "70000"}
    assert recorded(mirror, then) == [
        ("east", topic, 1, new),
        ("central", remote, 1, new),
        ("east", topic, 2, new),
        ("central", remote, 2, new),
    ]
    rows = mirror.query("SELECT cluster, acl, present, observed_at FROM metadata WHERE kind = 'acl'").to_pylist()
    assert {(row["cluster"], Acl(**row["acl"]), row["present"]) for row in rows if row["observed_at"] > then} == {
        ("central", stranger, True),
        ("central", made, False),
        ("east", grant, False),
    }
    set_acls(central, remove=[stranger])
