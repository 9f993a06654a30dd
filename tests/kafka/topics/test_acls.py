"""ACLs on a broker with the StandardAuthorizer, and settings of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change
from mirrorlake.model.topic_configs import RULES
from mirrorlake.sandbox import KafkaCluster
from tests.kit.java import ACLS, java
from tests.kit.processes import wait_until
from tests.kit.records import new_topic, topic_name
from tests.servers.guarded import Acl as KitAcl

# Whoever does not log in may do everything.
_CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def admin_of(cluster: KafkaCluster) -> ClusterAdmin:
    return ClusterAdmin(cluster.alias, {"bootstrap.servers": cluster.bootstrap_servers})


def test_acls_that_were_waited_for_are_found_and_types_of_newer_brokers_are_listed_as_unknown(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """confluent-kafka knows neither TWO_PHASE_COMMIT (KIP-939) nor resources of type USER (KIP-373)."""
    own = make_cluster(config=_CONFIG).start()
    admin = admin_of(own)

    def carry_out(action: str, made: Any, **ends: Any) -> None:
        change = Change(where="own", kind="acl", name=str(made), action=action, **ends)
        admin.apply(change)
        admin.wait_for([change])

    for _ in range(4):
        grant = Acl(**KitAcl(topic_name("shown"))._asdict())
        carry_out("create", grant, after=grant.as_dict())
        assert grant in (admin.acls.list() or ())
        carry_out("delete", grant, before=grant.as_dict())
        assert grant not in (admin.acls.list() or ())

    at = ("--bootstrap-server", own.bootstrap_servers, "--force", "--allow-principal", "User:a")
    java(ACLS, *at, "--add", "--operation", "TwoPhaseCommit", "--transactional-id", "tx")
    java(ACLS, *at, "--add", "--operation", "DescribeTokens", "--user-principal", "User:b")
    found = wait_until(lambda: len(listed := admin.acls.list() or []) == 2 and listed, "both are listed")
    assert not any(one.is_known for one in found), found


def test_a_cluster_without_an_authorizer_says_so(east: KafkaCluster) -> None:
    assert admin_of(east).acls.list() is None


def test_every_topic_setting_of_this_broker_has_a_class(east: KafkaCluster) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    client = AdminClient({"bootstrap.servers": east.bootstrap_servers})
    [future] = client.describe_configs([ConfigResource(ResourceType.TOPIC, new_topic(east))]).values()
    gone = {"message.timestamp.difference.max.ms"}
    assert set(future.result()) == set(RULES) - gone
