"""The ACLs that a mirror's principal needs, as a value, and as the commands that grant them (KIP-11, KIP-290).

Kafka's own authorizer derives DESCRIBE from READ, WRITE, ALTER and DELETE, and DESCRIBE_CONFIGS from ALTER_CONFIGS.
Other authorizers do not, so every needed operation is named, which grants nothing more.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar

from mirrorlake.model.acls import Acl
from mirrorlake.model.patterns import TopicPattern, shape_of
from mirrorlake.render import JsonDisplayable, Sheet, badge, plural, table

CLUSTER_NAME = "kafka-cluster"
EVERY = ("LITERAL", "*")
_FLAGS = {"TOPIC": "--topic", "GROUP": "--group", "TRANSACTIONAL_ID": "--transactional-id"}
_ORDER = (
    *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededAcl:
    """The operations needed on one resource of one cluster, and their purpose; `pattern` is LITERAL or PREFIXED."""

    cluster: str
    resource: str
    name: str
    pattern: str = "LITERAL"
    operations: tuple[str, ...]
    purpose: str

    def covers(self, other: NeededAcl) -> bool:
        """Return whether the ACL allows all that the other one does.

        >>> wide = NeededAcl(cluster="east", resource="TOPIC", name="ord", pattern="PREFIXED", operations=("READ",), purpose="")
        >>> wide.covers(NeededAcl(cluster="east", resource="TOPIC", name="orders", operations=("READ",), purpose=""))
        True
        """
        if (self.cluster, self.resource) != (other.cluster, other.resource):
            return False
        return _covers((self.pattern, self.name), (other.pattern, other.name)) and (
            set(other.operations) <= set(self.operations)
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NeededAcls(JsonDisplayable):
    """The ACLs that one principal needs for some flows, cluster by cluster, and the commands that grant them.

    `servers` are the addresses of each cluster. `config` is a file for the commands' own login (`--command-config`).
    `notes` name the ACLs that are wider than the flows' use.

    Example:
        >>> read = NeededAcl(cluster="east", resource="TOPIC", name="orders", operations=("READ",), purpose="land")
        >>> found = NeededAcls(flows=("east->central",), principal="User:ml", acls=(read,), servers={"east": "east:9092"})
        >>> found.commands
        ('kafka-acls.sh --bootstrap-server east:9092 --add --allow-principal User:ml --operation Read --topic orders',)
    """

    flows: tuple[str, ...]
    principal: str
    acls: tuple[NeededAcl, ...]
    servers: Mapping[str, str] = field(default_factory=dict)
    host: str = "*"
    config: str = ""
    notes: tuple[str, ...] = ()
    json_include: ClassVar[tuple[str, ...]] = ("commands",)

    @property
    def commands(self) -> tuple[str, ...]:
        """The `kafka-acls.sh` commands, in the order of `acls`; run twice, they change nothing."""
        return tuple(self._command(acl) for acl in self.acls)

    def on(self, cluster: str) -> list[Acl]:
        """Return the ACLs of one cluster, one for each operation."""
        return [
            Acl(
                resource=one.resource,
                name=one.name,
                pattern=one.pattern,
                principal=self.principal,
                host=self.host,
                operation=operation,
                permission="ALLOW",
            )
            for one in self.acls
            if one.cluster == cluster
            for operation in one.operations
        ]

    def script(self) -> str:
        """Return the commands as a shell script, each after its purpose."""
        lines = [f"# {self.principal} for {', '.join(self.flows)}"]
        lines += [f"# note: {note}" for note in self.notes]
        for acl, command in zip(self.acls, self.commands, strict=True):
            lines += ["", f"# {acl.cluster}: {acl.purpose}", command]
        return "\n".join(lines)

    def sheet(self) -> Sheet:
        """Show the ACLs of each cluster, the commands folded below them, and the notes."""
        rows = [
            (one.cluster, _words(one.resource), one.name, one.pattern.lower(), _names(one.operations), one.purpose)
            for one in self.acls
        ]
        columns = ["cluster", "resource", "name", "pattern", "operations", "purpose"]
        parts = [table("", columns, rows, least=("pattern", "purpose"))]
        parts.append(table(plural(len(rows), "command"), ["command"], [[one] for one in self.commands], folded=True))
        if self.notes:
            parts.append(table(plural(len(self.notes), "note"), ["note"], [[note] for note in self.notes]))
        return Sheet(
            title=f"acls {', '.join(self.flows)}",
            badge=badge(plural(len(rows), "command"), "note"),
            facts=(self.principal,),
            parts=tuple(parts),
        )

    def _command(self, acl: NeededAcl) -> str:
        return acl_command(
            acl.resource,
            acl.name,
            acl.pattern,
            acl.operations,
            servers=self.servers.get(acl.cluster, f"<{acl.cluster}>"),
            principal=self.principal,
            host=self.host,
            config=self.config,
        )


def acl_command(
    resource: str,
    name: str,
    pattern: str,
    operations: Iterable[str],
    *,
    servers: str,
    principal: str,
    host: str = "*",
    config: str = "",
) -> str:
    """Return the command of Kafka's tools that grants operations on a resource, quoted for a shell.

    >>> acl_command("CLUSTER", "", "LITERAL", ["DESCRIBE"], servers="east:9092", principal="User:ml")
    'kafka-acls.sh --bootstrap-server east:9092 --add --allow-principal User:ml --operation Describe --cluster'
    """
    words = ["kafka-acls.sh", "--bootstrap-server", servers, *(["--command-config", config] if config else [])]
    words += ["--add", "--allow-principal", principal, *([] if host == "*" else ["--allow-host", host])]
    for operation in operations:
        words += ["--operation", "".join(part.title() for part in operation.split("_"))]
    words += [_FLAGS[resource], name] if resource in _FLAGS else ["--cluster"]
    if pattern == "PREFIXED":
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)


@dataclass(frozen=True, slots=True)
class AclNames:
    """The names that one ACL covers: `pattern` and `name`; `wider_than` is the expression that means fewer names, or ""."""

    pattern: str
    name: str
    wider_than: str = ""


def acl_names_of(selection: TopicPattern) -> list[AclNames]:
    """Return the fewest literals and prefixes that cover every name of a selection.

    A dot in an otherwise plain name means the character itself.

    >>> [(one.pattern, one.name, one.wider_than) for one in acl_names_of(TopicPattern(("orders", "clicks.*", "[ab]x")))]
    [('LITERAL', '*', '[ab]x')]
    >>> [(one.pattern, one.name) for one in acl_names_of(TopicPattern(("payments.card", "clicks.*", "clicks-eu")))]
    [('LITERAL', 'payments.card'), ('PREFIXED', 'clicks')]
    """
    found: list[AclNames] = []
    for expression in selection.expressions:
        shape = shape_of(expression)
        if shape.meant is not None:
            found.append(AclNames("LITERAL", shape.meant))
            continue
        beginning = "".join(cell or "" for cell in takewhile(lambda cell: cell is not None, shape.cells))
        is_prefix = expression.endswith(".*") and shape_of(expression[:-2]).literal == beginning
        kind, name = ("PREFIXED", beginning) if beginning else EVERY
        found.append(AclNames(kind, name, "" if is_prefix else expression))
    return [one for one in dict.fromkeys(found) if not any(_wider(other, one, found) for other in found)]


def merged(acls: Iterable[NeededAcl]) -> tuple[NeededAcl, ...]:
    """Return the ACLs joined by resource, without those that another ACL covers."""
    joined: dict[tuple[str, str, str, str], list[NeededAcl]] = {}
    for acl in acls:
        joined.setdefault((acl.cluster, acl.resource, acl.pattern, acl.name), []).append(acl)
    whole = [_join(several) for several in joined.values()]
    return tuple(one for one in whole if not any(other is not one and other.covers(one) for other in whole))


def _join(several: Sequence[NeededAcl]) -> NeededAcl:
    first = several[0]
    asked = {operation for one in several for operation in one.operations}
    purposes = dict.fromkeys(one.purpose for one in several)
    return NeededAcl(
        cluster=first.cluster,
        resource=first.resource,
        name=first.name,
        pattern=first.pattern,
        operations=tuple(one for one in _ORDER if one in asked),
        purpose="; ".join(purposes),
    )


def _wider(one: AclNames, other: AclNames, all_names: Collection[AclNames]) -> bool:
    if (one.pattern, one.name) == (other.pattern, other.name):
        # Of two equal ones, the exact one wins.
        return one != other and not other.wider_than and one in all_names
    return _covers((one.pattern, one.name), (other.pattern, other.name))


def _covers(one: tuple[str, str], other: tuple[str, str]) -> bool:
    if one in (EVERY, other):
        return True
    return one[0] == "PREFIXED" and other != EVERY and other[1].startswith(one[1])


def _words(resource: str) -> str:
    return resource.lower().replace("_", " ")


def _names(operations: Iterable[str]) -> str:
    return ", ".join(operations)
