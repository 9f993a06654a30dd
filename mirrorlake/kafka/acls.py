"""List, create and delete the ACLs of one cluster.

confluent-kafka (2.16.1, librdkafka 2.14) answers `describe_acls` with an empty list if the broker refused the request or has
no authorizer. Believed, that would read as "every permission was revoked". So an empty list counts only after the broker has
confirmed that this principal may describe ACLs, and that there is an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from mirrorlake.kafka.errors import ClientErrors, Need
from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change
from mirrorlake.timing import timing

_CHUNK = 500  # ACLs a request
_DESCRIBE = Need("DESCRIBE", "CLUSTER", "kafka-cluster")
_ALTER = Need("ALTER", "CLUSTER", "kafka-cluster")
_ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
# The code 4 is CLUSTER in ACLs and BROKER in configurations; confluent-kafka knows the latter name only.
_RESOURCES = {ResourceType.BROKER: "CLUSTER"}
_RESOURCES_BACK = {"CLUSTER": ResourceType.BROKER}


class ClusterAcls:
    """Read and change the ACLs of one cluster; its admin client must outlive this object."""

    def __init__(self, client: AdminClient, errors: ClientErrors, metadata: Callable[[str], ClusterMetadata]) -> None:
        self._client = client
        self._errors = errors
        self._metadata = metadata

    def list(self) -> list[Acl] | None:
        """Return all ACLs, sorted, or None if the cluster has no authorizer."""
        allowed = self._allowed()
        found = self._describe()
        if not found:
            # Without an authorizer everything is allowed, so a missing permission proves one.
            if AclOperation.DESCRIBE_CONFIGS in allowed and not self._has_authorizer():
                return None
            self._allowed()
            found = self._describe()
        return sorted(_acl(binding) for binding in found)

    def _describe(self) -> Sequence[AclBinding]:
        with self._errors.translating("list ACLs", _DESCRIBE):
            found: Sequence[AclBinding] = self._client.describe_acls(
                _ANY_ACL, request_timeout=timing().admin_timeout_s
            ).result()
        return found

    def are_shown(self, changes: Iterable[Change]) -> bool:
        wanted = {
            Acl(**(one.after or one.before)): one.action == "create"
            for one in changes
            if one.kind == "acl" and one.action in ("create", "delete")
        }
        held = set(self.list() or ()) if wanted else set()
        return all((acl in held) == is_there for acl, is_there in wanted.items())

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; existing ones stay as they are."""
        for chunk in _chunks(acls):
            bindings = [AclBinding(*_parts(acl)) for acl in chunk]
            with self._errors.translating("create ACLs", _ALTER):
                for future in self._client.create_acls(bindings, request_timeout=timing().admin_timeout_s).values():
                    future.result()

    def delete(self, acls: Iterable[Acl]) -> None:
        """Delete exactly these ACLs; those that are gone already are not an error."""
        for chunk in _chunks(acls):
            filters = [AclBindingFilter(*_parts(acl)) for acl in chunk]
            with self._errors.translating("delete ACLs", _ALTER):
                for future in self._client.delete_acls(filters, request_timeout=timing().admin_timeout_s).values():
                    future.result()

    def _allowed(self) -> set[AclOperation]:
        doing = "ask what it may do on the cluster"
        # Raises where no broker is in service, which `describe_cluster` must not be told.
        self._metadata(doing)
        with self._errors.translating(doing, _DESCRIBE):
            cluster = self._client.describe_cluster(
                include_authorized_operations=True, request_timeout=timing().admin_timeout_s
            ).result()
        allowed = set(cluster.authorized_operations or ())
        if AclOperation.DESCRIBE not in allowed:
            raise self._errors.forbidden_error("list ACLs", _DESCRIBE)
        return allowed

    def _has_authorizer(self) -> bool:
        doing = "read which authorizer it has"
        resource = ConfigResource(ResourceType.BROKER, str(min(self._metadata(doing).brokers)))
        with self._errors.translating(doing, _DESCRIBE):
            [future] = self._client.describe_configs([resource], request_timeout=timing().admin_timeout_s).values()
            entry = future.result().get("authorizer.class.name")
        # Managed services may hide the setting; they have an authorizer.
        return entry is None or bool(entry.value)


def _chunks(acls: Iterable[Acl]) -> Iterable[list[Acl]]:
    rest = list(acls)
    return (rest[start : start + _CHUNK] for start in range(0, len(rest), _CHUNK))


def _acl(binding: AclBinding) -> Acl:
    return Acl(
        resource=_RESOURCES.get(binding.restype, binding.restype.name),
        name=binding.name,
        pattern=binding.resource_pattern_type.name,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name,
        permission=binding.permission_type.name,
    )


def _parts(acl: Acl) -> tuple[Enum | str, ...]:
    return (
        _RESOURCES_BACK.get(acl.resource) or ResourceType[acl.resource],
        acl.name,
        ResourcePatternType[acl.pattern],
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )
