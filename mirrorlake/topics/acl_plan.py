"""Plan the ACLs of remote topics: translate the source's, compare with the target's (law G)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import Audit
from mirrorlake.model.acls import Acl, AclFlow, LeftOut, translate
from mirrorlake.model.plan import Note, Plan
from mirrorlake.model.policy import name_fault
from mirrorlake.topics.acl_ownership import AclOwnership, acl_changes, ownership_of, simulate
from mirrorlake.topics.topic_plan import BothEnds


@dataclass(slots=True)
class TargetAcls:
    """The ACLs of one target (None without an authorizer) and their owners; each flow's plan updates them."""

    acls: set[Acl] | None
    owned: AclOwnership


def read_target(admin: ClusterAdmin, audit: Audit) -> TargetAcls:
    found = admin.acls.list()
    return TargetAcls(None if found is None else set(found), read_ownership(admin.alias, audit))


def read_ownership(alias: str, audit: Audit) -> AclOwnership:
    """Read the owners of a target's ACLs; one that was made for no flow has none."""
    entries = audit.entries(alias, "acl")
    return ownership_of((e.action, Acl(**(e.after or e.before)), e.flow) for e in entries if e.flow)


def clusters_own(
    acls: list[Acl] | None, flow: FlowConfig, flows: Iterable[FlowConfig], audit: Audit
) -> list[Acl] | None:
    """Return a source's ACLs without the copies that flows from the target made; None without an authorizer.

    A copied ACL would come back after it is revoked (law G). `audit` holds the owners of ACLs.
    """
    back = {each.name for each in flows if (each.source, each.target) == (flow.target, flow.source) and each.sync.acls}
    if not acls or not back:
        return acls
    owned = read_ownership(flow.source, audit)

    def is_copy(acl: Acl) -> bool:
        makers = owned.holders.get(acl, set()) | owned.intended.get(acl, set())
        return bool(makers) and makers <= back

    return [acl for acl in acls if not is_copy(acl)]


def acl_plan(
    flow: FlowConfig,
    ends: BothEnds,
    *,
    source: list[Acl] | None,
    target: TargetAcls,
    known: Collection[str],
    all_flows: Iterable[FlowConfig],
) -> Plan:
    """Plan the changes that copy the source's ACLs to the target; note the ACLs that cannot be copied.

    `source` is None without an authorizer. The plan is simulated on `target`. `known` are the source topics that the flow
    carries or carried, deleted ones too.
    """
    missing = [alias for alias, acls in ((flow.source, source), (flow.target, target.acls)) if acls is None]
    if source is None or target.acls is None:
        # A cluster whose authorizer was switched off lists no ACLs: nothing is revoked because of it.
        return Plan(
            notes=tuple(Note(where=a, kind="acls", name="of the cluster", reason=_NO_AUTHORIZER) for a in missing)
        )
    translated = translate(source, _acl_flow(flow, ends, known=known, all_flows=all_flows))
    plan = acl_changes(flow.name, where=flow.target, wanted=translated.wanted, actual=target.acls, owned=target.owned)
    simulate(plan, actual=target.acls, owned=target.owned)
    return Plan(plan.changes, (*_notes(flow.source, translated.left_out), *plan.notes))


_NO_AUTHORIZER = "the cluster has no authorizer, so there are no ACLs to copy"


def _acl_flow(flow: FlowConfig, ends: BothEnds, *, known: Collection[str], all_flows: Iterable[FlowConfig]) -> AclFlow:
    policy = flow.replication_policy
    others = [other for other in all_flows if other.target == flow.target and other.source != flow.source]

    def remote(topic: str) -> str | None:
        name = flow.remote_topic(topic)
        return None if name_fault(name) else name

    def shared(topic: str) -> bool:
        if getattr(policy, "merges_topics", False):
            return True
        return any(other.carries(topic) and other.remote_topic(topic) == remote(topic) for other in others)

    ours = {remote(name) for name in (*ends.source, *known)}
    return AclFlow(
        topics=flow.topics,
        exclude_topics=flow.exclude_topics,
        carries=flow.carries,
        remote=remote,
        remote_prefix=lambda prefix: policy.remote_prefix(flow.source, flow.target, prefix),
        shared=shared,
        existing=tuple(ends.source),
        foreign=tuple(name for name in ends.target_names if name not in ours),
        principals=flow.sync.acls_principals,
    )


def _notes(source: str, left_out: Iterable[LeftOut]) -> list[Note]:
    notes: dict[tuple[str, str], int] = {}
    for one in left_out:
        kind = one.acl.resource
        name = str(one.acl) if kind in ("TOPIC", "UNKNOWN") or not one.acl.is_known else f"on resources of type {kind}"
        notes[name, one.reason] = notes.get((name, one.reason), 0) + 1
    return [
        Note(where=source, kind="acl" if count == 1 else f"{count} acls", name=name, reason=reason)
        for (name, reason), count in notes.items()
    ]
