"""ACLs: a permission on the source, translated to the remote topics of a flow (KIP-11, KIP-290).

Nothing is ever widened: on the target, a principal gets no permission on a mirrored topic that it lacks on the
source. A permission that also covers topics outside of the flow has no counterpart, and is left out with a note.

    source                            flow carries       central, default policy
    READ  literal  orders             orders, clicks.*   READ  literal  east.orders
    READ  prefixed clicks-eu          orders, clicks.*   READ  prefixed east.clicks-eu
    READ  prefixed c                  orders, clicks.*   nothing                               (told in the plan)
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
    """Translate what has an exact counterpart; what a denial bars that has none is left out with it."""
    wanted: dict[Acl, Acl] = {}
    left_out: list[LeftOut] = []
    bars: list[Acl] = []
    for acl in sorted(acls, key=lambda one: (one.permission != "DENY", one)):
        pattern, name, why = _remote_name(acl, flow)
        if why:
            left_out.append(LeftOut(acl, why))
            bars += [acl] if acl.permission != "ALLOW" and acl.resource in ("TOPIC", "UNKNOWN") else []
        principal = flow.principals.get(acl.principal, acl.principal)
        for operation in _operations(acl) if name else ():
            if acl.permission == "ALLOW" and (barred := next((d for d in bars if _bars(d, acl, operation)), None)):
                left_out.append(LeftOut(acl, f"a denial beside it has no counterpart: {barred}"))
                break
            there = replace(acl, name=name, pattern=pattern, principal=principal, operation=operation)
            wanted.setdefault(there, acl)
    return Translated(wanted, tuple(left_out))


def _remote_name(acl: Acl, flow: AclFlow) -> tuple[str, str, str]:
    """Return pattern and name on the target; no name for what is not of the flow's topics, or for the reason that follows."""
    if why := _why_not(acl):
        return "", "", why
    if acl.pattern == "LITERAL" and not acl.covers_all:
        return ("LITERAL", *_remote_topic(acl.name, flow))
    prefix = "" if acl.covers_all else acl.name
    covered = Shape(tuple(prefix), open=True)
    if not any(shape_of(item).meet(covered) for item in flow.topics.expressions):
        return "", "", ""
    # A denial may cover names that the flow does not carry, which are no topics of the target.
    if acl.permission == "ALLOW" and not _carries_all(covered, prefix, flow):
        return "", "", "it covers more than the flow carries: grant the remote topics by hand"
    remote = flow.remote_prefix(prefix)
    others = [] if remote is None else sorted(name for name in flow.foreign if name.startswith(remote))
    if others:
        return "", "", f"{others[0]} and others on the target have the same prefix: grant the remote topics by hand"
    if not remote or any(flow.shared(name) for name in flow.existing if name.startswith(prefix)):
        return "", "", "no prefix on the target means the same: grant the remote topics by hand"
    return "PREFIXED", remote, ""


def _why_not(acl: Acl) -> str:
    if not acl.is_known:
        return "this version does not know its resource, pattern, operation or permission type; a newer broker does"
    if acl.resource != "TOPIC":
        return _ELSEWHERE.get(acl.resource, "it is not an ACL of a topic")
    if (acl.permission, acl.operation, acl.principal) == ("DENY", "WRITE", EVERYBODY):
        # It bars producers from the old source of a failover; copied to another target, it would bar the copying flow.
        return "it keeps everybody from writing, mirrorlake among them; nobody is allowed to write to a remote topic by this flow"
    return ""


def _remote_topic(name: str, flow: AclFlow) -> tuple[str, str]:
    """Return the remote topic of a source topic, or "" and why it has none that an ACL could name."""
    remote = flow.remote(name) if flow.carries(name) else ""
    if remote is None:
        return "", f"{name} has no legal name on the target"
    if remote and flow.shared(name):
        return "", f"{remote} on the target holds records of other topics, too"
    if remote in flow.foreign:
        return "", f"{remote} on the target is not of this flow"
    return remote, ""


def _operations(acl: Acl) -> tuple[str, ...]:
    return _DOWNGRADED.get(acl.operation, (acl.operation,)) if acl.permission == "ALLOW" else (acl.operation,)


def _bars(denial: Acl, one: Acl, operation: str) -> bool:
    """Return whether a denial may forbid what an ACL allows; hosts are not told apart."""
    principals = {denial.principal, one.principal}
    if len(principals) > 1 and EVERYBODY not in principals:
        return False
    if not denial.is_known:
        return True
    names = [("" if acl.covers_all else acl.name, acl.covers_all or acl.pattern == "PREFIXED") for acl in (denial, one)]
    (denied, denies_more), (allowed, allows_more) = names
    meets = (
        denied == allowed
        or (denies_more and allowed.startswith(denied))
        or (allows_more and denied.startswith(allowed))
    )
    return meets and denial.operation in (operation, "ALL")


# Default exclusions name internal topics of every cluster, which applications do not use.
_USUAL = frozenset(DEFAULT_EXCLUDE_TOPICS.expressions)


def _carries_all(covered: Shape, prefix: str, flow: AclFlow) -> bool:
    if any(shape_of(item).meet(covered) for item in flow.exclude_topics.expressions if item not in _USUAL):
        return False
    beginnings = [shape_of(item[:-2]).literal for item in flow.topics.expressions if item.endswith(".*")]
    return any(beginning is not None and prefix.startswith(beginning) for beginning in beginnings)
