"""Brokers that ask who you are and what you may do: the StandardAuthorizer behind SASL/PLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.acls import Acl
from mirrorlake.sandbox import KafkaCluster, start_all
from mirrorlake.sandbox.properties import Listener
from tests.kit.processes import wait_until

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


def admin_as(cluster: KafkaCluster, user: str) -> ClusterAdmin:
    options = {"bootstrap.servers": cluster.address(GUARDED.name), "log_level": 0, **login(user)}
    return ClusterAdmin(cluster.alias, options)


def acl(name: str, operation: str = "READ", **parts: str) -> Acl:
    defaults = {"resource": "TOPIC", "pattern": "LITERAL", "principal": "User:a", "host": "*", "permission": "ALLOW"}
    return Acl(name=name, operation=operation, **{**defaults, **parts})


def listed(admin: ClusterAdmin) -> list[Acl]:
    found = admin.acls.list()
    assert found is not None
    return found


def set_acls(admin: ClusterAdmin, *, add: Sequence[Acl] = (), remove: Sequence[Acl] = ()) -> None:
    """Create and delete ACLs, and wait until the broker that lists them has heard of it."""
    admin.acls.create([*add])
    admin.acls.delete([*remove])
    wait_until(lambda: {*add} <= (held := {*listed(admin)}) and not {*remove} & held, "the ACLs are as they were set")


@pytest.fixture(scope="module")
def guarded_clusters() -> Iterator[Mapping[str, KafkaCluster]]:
    """Start two guarded clusters for the tests of one file."""
    clusters = {alias: KafkaCluster(alias, listeners=[GUARDED], config=_CONFIG) for alias in ("east", "central")}
    start_all(clusters.values())
    yield clusters
    for cluster in clusters.values():
        cluster.kill()
