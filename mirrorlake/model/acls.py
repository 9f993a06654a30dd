"""ACLs: a permission on the source, translated to the remote topics of a flow (KIP-11, KIP-290).

Nothing is ever widened: on the target, a principal gets no permission on a mirrored topic that it lacks on the
source. A pattern that also covers topics outside of the flow becomes one ACL for each present topic of the flow.

    source                            flow carries       central, default policy
    READ  literal  orders             orders, clicks.*   READ  literal  east.orders
    READ  prefixed clicks-eu          orders, clicks.*   READ  prefixed east.clicks-eu
    READ  prefixed c                  orders, clicks.*   READ  literal, one for each carried topic
    READ  literal  *                  .*                 READ  prefixed east.
    ALL   literal  orders             orders             READ + DESCRIBE literal east.orders   (downgraded)
    DENY  WRITE literal orders        orders             DENY WRITE literal east.orders        (of User:* nothing)

MirrorMaker 2 (`MirrorSourceConnector.shouldReplicateAcl`, `targetAclBinding`) takes literal patterns of topics only,
drops ALLOW WRITE, turns ALLOW ALL into ALLOW READ, and copies CREATE, ALTER and DELETE unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from mirrorlake.model.patterns import DEFAULT_EXCLUDE_TOPICS, Shape, TopicPattern, shape_of
from mirrorlake.model.plan import Change

EVERYBODY = "User:*"
WILDCARD = "*"

# A permission to write, reduced to reading. Kafka derives DESCRIBE from WRITE, ALTER and DELETE, and DESCRIBE_CONFIGS from
# ALTER_CONFIGS (`AclAuthorizer`, KIP-11), so none of these is wider.
_DOWNGRADED: Mapping[str, tuple[str, ...]] = {
    "ALL": ("READ", "DESCRIBE"),
    "WRITE": ("DESCRIBE",),
    "DELETE": ("DESCRIBE",),
    "ALTER": ("DESCRIBE",),
    "ALTER_CONFIGS": ("DESCRIBE_CONFIGS",),
    "CREATE": (),
}
_ELSEWHERE: Mapping[str, str] = {
    "CLUSTER": "permissions on a cluster are given by those who run it",
    "TRANSACTIONAL_ID": "producers of the source do not write to remote topics",
    "DELEGATION_TOKEN": "delegation tokens belong to one cluster",
    "USER": "delegation tokens belong to one cluster",
    "GROUP": "ACLs of consumer groups are not copied",
}


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Acl:
    """One ACL, as Kafka's tools print it: the name * alone with LITERAL means all, the principal User:* everybody.

    `resource` is UNKNOWN for a type of a newer broker.
    """

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        verb = {"ALLOW": "may", "DENY": "must not"}.get(self.permission, self.permission)
        kind = "" if self.pattern == "LITERAL" else f"{self.pattern.lower()} "
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal} {verb} {self.operation} {self.resource.lower()} {kind}{self.name}{where}"

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def change(self, action: str, *, where: str, reason: str, flow: str = "") -> Change:
        gone = action in ("delete", "release")
        before, after = (self.as_dict(), None) if gone else (None, self.as_dict())
        return Change(
            where=where, kind="acl", name=str(self), action=action, before=before, after=after, reason=reason, flow=flow
        )

    @property
    def is_known(self) -> bool:
        return "UNKNOWN" not in (self.resource, self.pattern, self.operation, self.permission)

    @property
    def covers_all(self) -> bool:
        return self.pattern == "LITERAL" and self.name == WILDCARD


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An ACL of the source without an exact counterpart on the target, and why."""

    acl: Acl
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFlow:
    """The properties of a flow that the translation reads.

    `remote` and `remote_prefix` return None if there is no legal name, or no prefix of exactly these remote topics.
    `shared` is whether the remote topic of a source topic also has records of other topics. `foreign` are topics of the
    target that this flow does not write to.
    """

    topics: TopicPattern
    exclude_topics: TopicPattern = field(default_factory=TopicPattern)
    carries: Callable[[str], bool]
    remote: Callable[[str], str | None]
    remote_prefix: Callable[[str], str | None]
    shared: Callable[[str], bool] = field(default=lambda _: False)
    existing: Collection[str] = ()
    foreign: Collection[str] = ()
    principals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Translated:
    wanted: Mapping[Acl, Acl]
    left_out: tuple[LeftOut, ...]


def translate(acls: Iterable[Acl], flow: AclFlow) -> Translated:
    wanted: dict[Acl, Acl] = {}
    left_out: list[LeftOut] = []
    narrowed: set[str] = set()
    cut: list[Acl] = []
    # Denials first: if one could only be narrowed to names, a permission beside it must not reach further.
    for acl in sorted(acls, key=lambda one: (one.permission != "DENY", one)):
        reason = _why_not(acl)
        if reason is not None:
            left_out.append(LeftOut(acl, reason))
            if acl.permission != "ALLOW" and acl.resource in ("TOPIC", "UNKNOWN"):
                narrowed.add(acl.principal)
            continue
        operations = _operations(acl)
        if not operations:
            # CREATE grants no reading: it is dropped as MirrorMaker 2 drops WRITE.
            continue
        by_name = acl.permission == "ALLOW" and (
            EVERYBODY in narrowed or acl.principal in narrowed or (acl.principal == EVERYBODY and bool(narrowed))
        )
        if _is_to_come(acl, flow) and any(_covers(denial, acl) for denial in cut):
            left_out.append(
                LeftOut(acl, f"a denial for it covers only present topics, and {acl.name} does not exist yet")
            )
            continue
        places, why, exact = _places(acl, flow, by_name=by_name)
        if acl.permission == "DENY" and not exact:
            narrowed.add(acl.principal)
            cut.append(acl)
        if why:
            left_out.append(LeftOut(acl, why))
        principal = flow.principals.get(acl.principal, acl.principal)
        for pattern, name in places:
            for operation in operations:
                there = replace(acl, name=name, pattern=pattern, principal=principal, operation=operation)
                wanted.setdefault(there, acl)
    return Translated(wanted, tuple(left_out))


def _is_to_come(acl: Acl, flow: AclFlow) -> bool:
    """Return whether an ACL allows an operation on one topic that the flow will carry later."""
    is_one_topic = (acl.resource, acl.pattern, acl.permission) == ("TOPIC", "LITERAL", "ALLOW") and not acl.covers_all
    return is_one_topic and acl.name not in flow.existing and flow.carries(acl.name)


def _covers(denial: Acl, one: Acl) -> bool:
    principals = {denial.principal, one.principal}
    named = denial.covers_all or (denial.pattern == "PREFIXED" and one.name.startswith(denial.name))
    return denial.resource == one.resource and named and (len(principals) == 1 or EVERYBODY in principals)


def _why_not(acl: Acl) -> str | None:
    if not acl.is_known:
        return "this version does not know its resource, pattern, operation or permission type; a newer broker does"
    if acl.resource != "TOPIC":
        return _ELSEWHERE.get(acl.resource, "it is not an ACL of a topic")
    if (acl.permission, acl.operation, acl.principal) == ("DENY", "WRITE", EVERYBODY):
        # It bars producers from the old source of a failover; copied to another target, it would bar the copying flow.
        return "it keeps everybody from writing, mirrorlake among them; nobody is allowed to write to a remote topic by this flow"
    return None


def _operations(acl: Acl) -> tuple[str, ...]:
    return _DOWNGRADED.get(acl.operation, (acl.operation,)) if acl.permission == "ALLOW" else (acl.operation,)


def _places(acl: Acl, flow: AclFlow, *, by_name: bool) -> tuple[list[tuple[str, str]], str, bool]:
    """Return (pattern, name) on the target, the reason for anything left out, and whether nothing was."""
    if acl.pattern == "LITERAL" and not acl.covers_all:
        return _literal_place(acl.name, flow)
    prefix = "" if acl.covers_all else acl.name
    covered = Shape(tuple(prefix), open=True)
    if not any(shape_of(item).meet(covered) for item in flow.topics.expressions):
        return [], "", True
    names = sorted(name for name in flow.existing if name.startswith(prefix))
    if by_name or not _carries_all(covered, prefix, flow):
        return _by_name(names, flow, "it covers more than the flow carries; only present topics are covered")
    remote = flow.remote_prefix(prefix)
    others = [] if remote is None else sorted(name for name in flow.foreign if name.startswith(remote))
    if not remote or others or any(flow.shared(name) for name in names):
        why = (
            f"{others[0]} and others on the target have the same prefix"
            if others
            else "no prefix on the target means the same"
        )
        return _by_name(names, flow, f"{why}; only present topics are covered")
    return [("PREFIXED", remote)], "", True


def _literal_place(name: str, flow: AclFlow) -> tuple[list[tuple[str, str]], str, bool]:
    if not flow.carries(name):
        return [], "", True
    remote = flow.remote(name)
    if remote is None:
        return [], f"{name} has no legal name on the target", False
    if flow.shared(name):
        return [], f"{remote} on the target holds records of other topics, too", False
    if remote in flow.foreign:
        return [], f"{remote} on the target is not of this flow", False
    return [("LITERAL", remote)], "", True


def _by_name(names: Iterable[str], flow: AclFlow, why: str) -> tuple[list[tuple[str, str]], str, bool]:
    places: list[tuple[str, str]] = []
    reasons = [why]
    for name in names:
        found, reason, _ = _literal_place(name, flow)
        places += found
        reasons += [reason] if reason else []
    return places, "; ".join(dict.fromkeys(reasons)), False


# Default exclusions name internal topics of every cluster, which applications do not use.
_USUAL = frozenset(DEFAULT_EXCLUDE_TOPICS.expressions)


def _carries_all(covered: Shape, prefix: str, flow: AclFlow) -> bool:
    if any(shape_of(item).meet(covered) for item in flow.exclude_topics.expressions if item not in _USUAL):
        return False
    beginnings = [shape_of(item[:-2]).literal for item in flow.topics.expressions if item.endswith(".*")]
    return any(beginning is not None and prefix.startswith(beginning) for beginning in beginnings)
