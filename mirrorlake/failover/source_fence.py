"""Fence a source that was failed over against producers; only on request, and as a plan (laws G and H)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from mirrorlake.config.schema import FlowConfig
from mirrorlake.failover.journal import FAILBACK
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.acls import EVERYBODY, Acl
from mirrorlake.model.plan import Change, Plan
from mirrorlake.procedure import Operation

Fence = Literal["acl", "topic"]
FENCES: tuple[Fence, ...] = ("acl", "topic")
# The step of a failover that holds the changes of its fence.
FENCE_PLAN = "fence_plan"

# Never copied to a target by default, and no cluster has so many replicas.
_SETTING, _UNREACHABLE_COUNT = "min.insync.replicas", "32767"
_WHY = "producers are kept off the old source"


def plan_source_fence(flow: FlowConfig, topics: Iterable[str], how: Fence, *, source: ClusterAdmin) -> Plan:
    """Plan to keep producers from writing to the flow's topics on the source; empty if that is so already.

    `acl` denies writes to everybody, which needs an authorizer and does not bind super users. `topic` requires more in-sync
    replicas than can exist: producers with `acks=all`, the default, fail, those with fewer acknowledgements do not.

    Raises:
        NotAuthorized: the ACLs of the source may not be seen.
    """
    topics = sorted(topics)
    if how == "topic":
        configs = source.configs(topics)
        return Plan(
            tuple(
                Change(
                    where=flow.source,
                    kind="topic",
                    name=topic,
                    action="set_configs",
                    before={_SETTING: configs[topic].get(_SETTING)},
                    after={_SETTING: _UNREACHABLE_COUNT},
                    reason=_WHY,
                    flow=flow.name,
                )
                for topic in topics
                if configs[topic].get(_SETTING) != _UNREACHABLE_COUNT
            )
        )
    known = set(source.acls.list() or ())
    denials = [acl for acl in map(deny_writes, topics) if acl not in known]
    return Plan(tuple(acl.change("create", where=flow.source, reason=_WHY, flow=flow.name) for acl in denials))


def deny_writes(topic: str) -> Acl:
    """Return the ACL that keeps everybody from writing to a topic.

    >>> str(deny_writes("orders"))
    'User:* must not WRITE topic orders'
    """
    return Acl(
        resource="TOPIC",
        name=topic,
        pattern="LITERAL",
        principal=EVERYBODY,
        host="*",
        operation="WRITE",
        permission="DENY",
    )


def fence_changes(operation: Operation) -> tuple[Change, ...]:
    """Return the changes that fence the source of a failover, or none if no fence was requested."""
    return msgspec.convert(operation.after(FENCE_PLAN, ()), tuple[Change, ...])


def active_source_fence(operations: Iterable[Operation]) -> tuple[Change, ...]:
    """Return the changes that fence the source since the last failback.

    A failover that was ended by `resume` leaves its fence, and the next failover has none to add.
    """
    standing: dict[tuple[str, str], Change] = {}
    for one in operations:
        if one.command == FAILBACK and one.is_done:
            standing.clear()
        standing |= {(change.kind, change.name): change for change in fence_changes(one)}
    return tuple(standing.values())
