"""Settings, partitions and ACLs from one cluster to the other: planned, applied, kept in step, remembered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.lake import micros
from mirrorlake.mirror import Mirror
from mirrorlake.mirror.streams import duties_of
from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change, Plan
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.topics.acl_ownership import INTENDED
from tests.kit.commands import run_cli, write_conf
from tests.kit.processes import wait_until
from tests.kit.records import (
    add_partitions,
    address_of,
    consume,
    create_topic,
    delete_topic,
    new_topic,
    produce,
    topic_name,
)
from tests.servers.guarded import GUARDED, acl, listed, login, set_acls
from tests.servers.lakes import MakeMirror

Clusters = Mapping[str, KafkaCluster]


def actions(plan: Plan) -> list[tuple[str, str, str]]:
    return [(change.action, change.kind, change.name) for change in plan.changes]


def set_configs(admin: ClusterAdmin, topic: str, values: Mapping[str, str | None]) -> None:
    """Set some settings of a topic, and wait until the broker that is asked next knows them."""
    admin.set_configs(topic, values)
    wait_until(
        lambda: values.items() <= (dict.fromkeys(values) | admin.configs([topic])[topic]).items(), "they are set"
    )


def do_duties(mirror: Mirror) -> None:
    for duty in duties_of(mirror._context, mirror.config.flows[0]):
        duty.run()


def recorded(mirror: Mirror, since: datetime) -> list[tuple[str, str, int, dict[str, str]]]:
    """Return the states of topics that changed in `metadata` after a time: cluster, topic, partitions, settings."""
    rows = mirror.lake.query_rows(
        "SELECT cluster, topic, partitions, configs, observed_at FROM {metadata} WHERE kind = 'topic' ORDER BY observed_at"
    )
    known: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    found = []
    for row in rows:
        place, state = (row.cluster, row.topic), (row.partitions, dict(row.configs or {}))
        # Rows tell of leader epochs, too.
        if row.observed_at > since and known.get(place) != state:
            found.append((*place, *state))
        known[place] = state
    return found


@pytest.mark.law("G")
def test_settings_follow_the_source_and_spare_what_others_made(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    remote = f"east.{topic}"
    address = guarded_clusters["east"]
    create_topic(address, topic, 1, retention_ms="3600000", segment_ms="60000", min_insync_replicas="1")
    flow: dict[str, Any] = {"source": "east", "target": "central", "topics": topic}
    flow["sync"] = {"configs_override": {topic: {"segment.ms": 90000}}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    east, central = mirror.admin("east"), mirror.admin("central")
    mirror.apply()
    assert central.configs([remote])[remote] == {"retention.ms": "3600000", "segment.ms": "90000"}
    assert not mirror.plan(), "law G"

    set_configs(central, remote, {"max.message.bytes": "2000000"})
    assert not mirror.plan(), "the source never had it: somebody else's"
    set_configs(east, topic, {"retention.ms": None, "cleanup.policy": "compact"})
    add_partitions(address, topic, 3)
    plan = mirror.plan()
    assert actions(plan) == [
        ("add_partitions", "topic", remote),
        ("set_configs", "topic", remote),
        ("reset_configs", "topic", remote),
    ]
    do_duties(mirror)
    expected = {"cleanup.policy": "compact", "segment.ms": "90000", "max.message.bytes": "2000000"}
    assert central.configs([remote])[remote] == expected
    assert central.describe([remote])[remote].partitions == 3
    assert not mirror.plan(), "law G"

    # Everything is copied back by a stranger's hand; a value that was changed since is not ours any more.
    set_configs(east, topic, {"cleanup.policy": None})
    set_configs(central, remote, {"cleanup.policy": "compact,delete"})
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
    admins = [mirror.admin(alias) for alias in ("east", "central")]
    mirror.apply()
    for admin, changed in (
        (admins[0], {"retention.ms": "7200000"}),
        (admins[1], {"segment.ms": "90000"}),
        (admins[0], {"retention.ms": None}),
    ):
        set_configs(admin, topic, changed)
        wanted = {key: value for key, value in (admin.configs([topic])[topic] | changed).items() if value is not None}
        mirror.apply()
        assert [each.configs([topic])[topic] for each in admins] == [wanted, wanted], f"law G: after {changed}"
        assert not mirror.plan(), "law G"


def test_empty_topics_are_made_beside_the_records_and_lost_ones_are_not(
    guarded_clusters: Clusters, make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remote topic that was there and is missing is not an empty topic: its records are gone, which a person must see."""
    topic = topic_name()
    remote = f"east.{topic}"
    east, target = (guarded_clusters[alias] for alias in ("east", "central"))
    create_topic(east, topic, 2, segment_ms="60000")
    flow: dict[str, Any] = {"source": "east", "target": "central", "topics": rf"{topic}.*", "replication_factor": 1}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    central = mirror.admin("central")
    do_duties(mirror)
    state = central.describe([remote])[remote]
    assert (state.partitions, state.replicas) == (2, 1)
    assert central.configs([remote])[remote] == {"segment.ms": "60000"}
    [entry] = mirror._context.audit().entries("central", "topic")
    assert (entry.object, entry.action, entry.after["replication_factor"]) == (remote, "create", 1)
    assert mirror.doctor(only=["target.replication", "ledger"]).bad == []
    add_partitions(east, topic, 3)
    produce(east, topic, 9, partitions=3)
    mirror.run(once=True)
    assert [len(part) for part in consume(target, remote).values()] == [3, 3, 3], "it was ours, so it grew"
    delete_topic(target, remote)
    do_duties(mirror)
    assert remote not in central.topic_names()
    assert ("held", "topic", remote) in actions(mirror.plan()), "shown to a person"

    create_topic(east, f"{topic}.late", 1)
    three = make_mirror(dict(guarded_clusters), [{**flow, "replication_factor": 3}])
    with pytest.raises(ClusterError, match="create topic") as refused:
        do_duties(three)
    assert refused.value.exit_code == 4
    [finding] = three.doctor(only=["target.replication"]).bad
    assert "1 broker" in finding.detail
    create_topic(target, remote, 3)
    mirror.apply()
    monkeypatch.setattr(ClusterAdmin, "broker_count", lambda _: 3)
    plain = make_mirror(dict(guarded_clusters), [{key: flow[key] for key in ("source", "target", "topics")}])
    found = {
        finding.check: finding.detail for finding in plain.doctor(only=["target.replication", "ledger.replication"]).bad
    }
    details = [finding.detail for finding in plain.doctor(only=["target.replication"]).bad]
    assert remote in details[0]
    assert "default.replication.factor=1" in details[1]
    assert "ledger" in found["ledger.replication"]


def test_a_flow_that_is_not_continuous_records_and_corrects_nothing(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic = new_topic(guarded_clusters["east"], 10, partitions=1)
    remote = f"east.{topic}"
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"continuous": False}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    mirror.run(once=True)
    start = datetime.now(timezone.utc)
    set_configs(mirror.admin("east"), topic, {"retention.ms": "7000000"})
    mirror.run(once=True)
    assert mirror.admin("central").configs([remote])[remote] == {}
    new = {"retention.ms": "7000000"}
    assert recorded(mirror, start) == [("east", topic, 1, new)]
    [planned] = mirror.plan().changes
    assert (planned.action, planned.after) == ("set_configs", new)
    continuous = make_mirror(dict(guarded_clusters), [{**flow, "sync": {}}])
    continuous.run(once=True)
    assert continuous.admin("central").configs([remote])[remote] == {"retention.ms": "7000000"}


@pytest.mark.law("G")
def test_acls_are_carried_mapped_revoked_and_strangers_are_spared(
    guarded_clusters: Clusters, make_mirror: MakeMirror
) -> None:
    topic, other = (new_topic(guarded_clusters["east"], partitions=1, prefix=prefix) for prefix in ("t", "other"))
    remote = f"east.{topic}"
    flow = {"source": "east", "target": "central", "topics": f"{topic}.*"}
    flow["sync"] = {"acls": True, "acls_principals": {"User:app-east": "User:app"}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    east, central = mirror.admin("east"), mirror.admin("central")
    read, everything = acl(topic, principal="User:app-east"), acl(topic, "ALL", principal="User:etl")
    prefixed, denied = acl(topic, pattern="PREFIXED"), acl(topic, "WRITE", permission="DENY", host="10.0.0.1")
    source = [read, everything, prefixed, denied, acl(other), acl("app", resource="GROUP")]
    strangers = [acl(remote, principal="User:local"), acl("local", "ALL"), acl(remote, principal="User:etl")]
    set_acls(east, add=source)
    set_acls(central, add=strangers)
    mirror.apply()
    made = [
        acl(remote, principal="User:app"),
        acl(remote, "DESCRIBE", principal="User:etl"),
        acl(remote, pattern="PREFIXED"),
        acl(remote, "WRITE", permission="DENY", host="10.0.0.1"),
    ]
    wait_until(lambda: listed(central) == sorted([*made, *strangers]), "what was planned is there")
    plan = mirror.plan()
    assert not plan, "law G"
    assert any("GROUP" in note.name for note in plan.notes), "what is left out is said"

    # The source revokes: ours go, the strangers' stay, also where both asked for the same.
    set_acls(east, remove=[read, everything, denied])
    assert {change.action for change in mirror.plan().changes} == {"delete"}
    do_duties(mirror)
    wait_until(lambda: listed(central) == sorted([made[2], *strangers]), "ours are gone")
    assert not mirror.plan(), "law G"

    # Nothing revokes everything because the source hides its ACLs.
    addresses = {
        "east": guarded_clusters["east"].address(GUARDED.name),
        "central": address_of(guarded_clusters["central"]),
    }
    folder = Path(mirror.config.path or "").parent / "lake"
    hidden = write_conf(folder, addresses, [flow], east={"client": login("nobody")})
    set_acls(east, add=(grants := [acl(topic, op, principal="User:nobody") for op in ("DESCRIBE", "DESCRIBE_CONFIGS")]))
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
    east, central = mirror.admin("east"), mirror.admin("central")
    grant, made = acl(topic), acl(f"east.{topic}")
    set_acls(east, add=[grant])
    mirror.apply(plan=Plan(tuple(change for change in mirror.plan().changes if change.kind != "acl")))
    # The crash: it was written down and created, and then there was no power.
    intended = Change(
        where="central", kind="acl", name=str(made), action=INTENDED, after=made.as_dict(), flow="east->central"
    )
    mirror._context.audit().record([intended], command="apply")
    set_acls(central, add=[made])
    assert [change.action for change in mirror.plan().changes] == ["adopt"]
    set_acls(east, remove=[grant])
    plan = mirror.plan()
    assert not plan
    assert any(note.name == str(made) for note in plan.notes), "perhaps somebody else's: said, not deleted"
    set_acls(east, add=[grant])
    mirror.apply()
    set_acls(east, remove=[grant])
    mirror.apply()
    wait_until(lambda: made not in listed(central), "after the adoption its revocation is followed")
    assert not mirror.plan()


def test_every_change_is_recorded(guarded_clusters: Clusters, make_mirror: MakeMirror) -> None:
    topic = new_topic(guarded_clusters["east"], 10, partitions=1, retention_ms="1000000")
    remote = f"east.{topic}"
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"acls": True}}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    east, central = mirror.admin("east"), mirror.admin("central")
    grant = acl(topic)
    set_acls(east, add=[grant])
    mirror.run(once=True)
    then = datetime.now(timezone.utc)
    set_configs(east, topic, {"retention.ms": "2000000", "segment.ms": "70000"})
    do_duties(mirror)
    set_acls(east, remove=[grant])
    stranger, made = acl(remote, principal="User:local"), acl(remote)
    set_acls(central, add=[stranger])
    do_duties(mirror)
    add_partitions(guarded_clusters["east"], topic, 2)
    do_duties(mirror)
    new = {"retention.ms": "2000000", "segment.ms": "70000"}
    assert recorded(mirror, then) == [
        ("east", topic, 1, new),
        ("central", remote, 1, new),
        ("east", topic, 2, new),
        ("central", remote, 2, new),
    ]
    rows = mirror.lake.query_rows(
        "SELECT cluster, acl, present FROM {metadata} WHERE kind = 'acl' AND unix_micros(observed_at) > :since",
        since=micros(then),
    )
    assert {(row.cluster, Acl(**row.acl), row.present) for row in rows} == {
        ("central", stranger, True),
        ("central", made, False),
        ("east", grant, False),
    }
    set_acls(central, remove=[stranger])
