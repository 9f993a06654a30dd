"""ACLs and permissions on brokers with the StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mirrorlake.errors import NotAuthorized
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.acls import Acl
from mirrorlake.model.patterns import parse_patterns
from mirrorlake.model.plan import Change, TopicSpec
from mirrorlake.model.topic_configs import RULES
from mirrorlake.sandbox import KafkaCluster
from tests.kit.java import ACLS, java
from tests.kit.processes import wait_until
from tests.kit.records import new_topic, topic_name
from tests.servers.guarded import GUARDED, login
from tests.servers.guarded import Acl as KitAcl

Clusters = Mapping[str, KafkaCluster]


def acl(*parts: str, **named: str) -> Acl:
    return Acl(**KitAcl(*parts, **named)._asdict())


def admin_as(cluster: KafkaCluster, user: str) -> ClusterAdmin:
    options = {"bootstrap.servers": cluster.address(GUARDED.name), "log_level": 0, **login(user)}
    return ClusterAdmin(cluster.alias, options)


def listed(admin: ClusterAdmin) -> list[Acl]:
    return admin.acls.list() or []


def settled(admin: ClusterAdmin, expected: list[Acl]) -> bool:
    """The controller has answered; the broker that lists them hears of it a moment later."""
    return bool(wait_until(lambda: listed(admin) == sorted(expected), f"{expected} are listed"))


def test_a_refused_list_is_no_empty_list(guarded_clusters: Clusters) -> None:
    admin = admin_as(guarded_clusters["east"], "nobody")
    with pytest.raises(NotAuthorized, match=r"User:nobody .*DESCRIBE on cluster kafka-cluster is missing") as refused:
        admin.acls.list()
    assert "--operation Describe --cluster" in refused.value.remedy
    with pytest.raises(NotAuthorized, match="ALTER on cluster") as refused:
        admin.acls.create([acl("x")])
    assert refused.value.exit_code == 4
    with pytest.raises(NotAuthorized, match="ALTER on cluster"):
        admin.acls.delete([acl("x")])


def test_a_cluster_without_an_authorizer_says_so(east: KafkaCluster) -> None:
    assert ClusterAdmin("east", {"bootstrap.servers": east.bootstrap_servers}).acls.list() is None


def test_types_of_newer_brokers_are_listed_as_unknown(guarded_clusters: Clusters) -> None:
    """confluent-kafka knows neither TWO_PHASE_COMMIT (KIP-939) nor resources of type USER (KIP-373)."""
    east = guarded_clusters["east"]
    at = ("--bootstrap-server", east.bootstrap_servers, "--force", "--allow-principal", "User:a")
    grants = [
        ["--operation", "TwoPhaseCommit", "--transactional-id", "tx"],
        ["--operation", "DescribeTokens", "--user-principal", "User:b"],
    ]
    for grant in grants:
        java(ACLS, *at, "--add", *grant)
    root = admin_as(east, "root")
    found = wait_until(lambda: len(one := listed(root)) == 2 and one, "both are listed")
    assert not any(one.is_known for one in found), found
    for grant in grants:
        java(ACLS, *at, "--remove", *grant)
    assert settled(root, [])


def test_hidden_topics_are_no_missing_topics(guarded_clusters: Clusters) -> None:
    east = guarded_clusters["east"]
    name = topic_name("orders")
    root, nobody = admin_as(east, "root"), admin_as(east, "nobody")
    root.create(TopicSpec(name=name, partitions=1))
    assert name not in nobody.topic_names()
    shows = {name: f"--topic {name}", ".*": "--topic '*'", "ord.*": "--topic ord --resource-pattern"}
    for selection, shown in shows.items():
        with pytest.raises(NotAuthorized, match="DESCRIBE on topic") as refused:
            nobody.require_topics(parse_patterns(selection))
        assert shown in refused.value.remedy
        root.require_topics(parse_patterns(selection))
    root.require_topics(parse_patterns("not-there, not-there-.*"))


def test_each_refusal_names_the_acl_that_is_missing(guarded_clusters: Clusters) -> None:
    east = guarded_clusters["east"]
    name = topic_name("pay")
    root, nobody = admin_as(east, "root"), admin_as(east, "nobody")
    root.create(TopicSpec(name=name, partitions=1))
    root.acls.create([see := acl(name, "DESCRIBE", principal="User:nobody")])
    assert settled(root, [see])
    calls: dict[str, Any] = {
        "DESCRIBE_CONFIGS": lambda: nobody.configs([name]),
        "ALTER_CONFIGS": lambda: nobody.set_configs(name, {"retention.ms": "1"}),
        "ALTER": lambda: nobody.grow(name, 2),
        "CREATE": lambda: nobody.create(TopicSpec(name=name + "-new", partitions=1)),
        "READ": lambda: nobody.require([name], "READ"),
        "WRITE": lambda: nobody.require([name], "WRITE"),
    }
    for operation, call in calls.items():
        with pytest.raises(NotAuthorized, match=f"{operation} on topic {name}") as refused:
            call()
        assert f"--add --allow-principal User:nobody --operation {operation.title().replace('_C', 'C')}" in str(
            refused.value
        )
        assert (refused.value.operation, refused.value.principal) == (operation, "User:nobody")  # type: ignore[attr-defined]
    root.acls.create([read := replace(see, operation="READ")])
    assert settled(root, [see, read])
    nobody.require([name], "READ")
    root.acls.delete([see, read])
    assert settled(root, [])


def test_every_topic_setting_of_this_broker_has_a_class(east: KafkaCluster) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    client = AdminClient({"bootstrap.servers": east.bootstrap_servers})
    [future] = client.describe_configs([ConfigResource(ResourceType.TOPIC, new_topic(east))]).values()
    gone = {"message.timestamp.difference.max.ms"}
    assert set(future.result()) == set(RULES) - gone


def test_acls_that_were_waited_for_are_what_the_next_question_finds(
    guarded_clusters: Clusters,
) -> None:
    admin = admin_as(guarded_clusters["east"], "root")

    def carry_out(action: str, made: Any, **ends: Any) -> None:
        change = Change(where="east", kind="acl", name=str(made), action=action, **ends)
        admin.apply(change)
        admin.wait_for([change])

    for grant in (acl(topic_name("shown")) for _ in range(4)):
        carry_out("create", grant, after=grant.as_dict())
        assert grant in (admin.acls.list() or ())
        carry_out("delete", grant, before=grant.as_dict())
        assert grant not in (admin.acls.list() or ())
