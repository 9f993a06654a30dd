"""Brokers that ask who you are and what you may do: the StandardAuthorizer behind SASL/PLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from mirrorlake.sandbox import KafkaCluster, Listener, start_all
from tests.kit.processes import wait_until
from tests.servers.brokers import admin_of

USERS = {"root": "root-secret", "mirror": "mirror-secret", "nobody": "nobody-secret"}
# Where clients log in; the plain listener, which the sandbox itself uses, stays all-powerful.
GUARDED = Listener(name="GUARDED", protocol="SASL_PLAINTEXT")
_LOGINS = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.guarded.plain.sasl.jaas.config": f"{_MODULE} required {_LOGINS};",
}


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


class Acl(NamedTuple):
    """One ACL, as Kafka's tools print it."""

    name: str
    operation: str = "READ"
    resource: str = "TOPIC"
    pattern: str = "LITERAL"
    principal: str = "User:a"
    host: str = "*"
    permission: str = "ALLOW"

    @property
    def parts(self) -> tuple[Any, ...]:
        return (
            # The code 4 is CLUSTER in ACLs and BROKER in settings, and confluent-kafka knows the latter name only.
            ResourceType["BROKER" if self.resource == "CLUSTER" else self.resource],
            self.name,
            ResourcePatternType[self.pattern],
            *(self.principal, self.host),
            AclOperation[self.operation],
            AclPermissionType[self.permission],
        )


_ANY = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)


def listed(cluster: KafkaCluster) -> list[Acl]:
    """Return the ACLs of a cluster, sorted; it is asked where everything is allowed."""
    found = admin_of(cluster.bootstrap_servers).describe_acls(AclBindingFilter(*_ANY)).result()
    return sorted(
        Acl(
            one.name,
            one.operation.name,
            "CLUSTER" if one.restype is ResourceType.BROKER else one.restype.name,
            one.resource_pattern_type.name,
            *(one.principal, one.host),
            one.permission_type.name,
        )
        for one in found
    )


def set_acls(cluster: KafkaCluster, *, add: Sequence[Acl] = (), remove: Sequence[Acl] = ()) -> None:
    """Create and delete ACLs, and wait until the broker that lists them has heard of it."""
    admin = admin_of(cluster.bootstrap_servers)
    futures = admin.create_acls([AclBinding(*one.parts) for one in add]) if add else {}
    futures |= admin.delete_acls([AclBindingFilter(*one.parts) for one in remove]) if remove else {}
    for future in futures.values():
        future.result()
    wait_until(lambda: {*add} <= (held := {*listed(cluster)}) and not {*remove} & held, "the ACLs are as they were set")


@pytest.fixture(scope="module")
def guarded_clusters() -> Iterator[Mapping[str, KafkaCluster]]:
    """Start two guarded clusters for the tests of one file."""
    clusters = {alias: KafkaCluster(alias, listeners=[GUARDED], config=_CONFIG) for alias in ("east", "central")}
    start_all(clusters.values())
    yield clusters
    for cluster in clusters.values():
        cluster.kill()
