"""Whose an ACL on the target is: mirrorlake deletes the ACLs that it created, and no others.

Kafka does not say who made an ACL. So it is written down, and in an order that survives a crash at any instruction:

    absent ──intend──> about to be created ──create──> held by the flow ──delete──> absent
                              │  crash                   ^      │
                              └──────── adopt ───────────┘      └──release──> somebody else's, or another flow's

An ACL that was there before is nobody's business. One that a crash left between `intend` and `create` was absent when it
was intended; while the source still has it, it is adopted (shown first). When the source has revoked it meanwhile, only a
person can know whether somebody else made the same ACL at that moment: it is shown with every plan, and not deleted.

Several flows may need the same ACL on one target: it is deleted when the last of them has released it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change, Note, Plan

INTENDED = "intend"


@dataclass(slots=True)
class AclOwnership:
    """Which flows hold which ACLs of one cluster, and which they were about to create."""

    holders: dict[Acl, set[str]] = field(default_factory=dict)
    intended: dict[Acl, set[str]] = field(default_factory=dict)

    def note(self, action: str, acl: Acl, flow: str) -> None:
        """Take one recorded action into account; they must come in the order in which they happened."""
        if action == INTENDED:
            self.intended.setdefault(acl, set()).add(flow)
        elif action in ("create", "adopt", "share"):
            self.holders.setdefault(acl, set()).add(flow)
            self.intended.get(acl, set()).discard(flow)
        elif action == "release":
            self.holders.get(acl, set()).discard(flow)
            self.intended.get(acl, set()).discard(flow)
        elif action == "delete":
            self.holders.pop(acl, None)
            self.intended.pop(acl, None)

    def concerning(self, flow: str) -> list[Acl]:
        """List the ACLs that a flow holds or was about to create, sorted."""
        return sorted(acl for held in (self.holders, self.intended) for acl, flows in held.items() if flow in flows)


def ownership_of(entries: Iterable[tuple[str, Acl, str]]) -> AclOwnership:
    """Replay recorded (action, ACL, flow) entries, oldest first."""
    owned = AclOwnership()
    for action, acl, flow in entries:
        owned.note(action, acl, flow)
    return owned


def acl_changes(
    flow: str, *, where: str, wanted: Mapping[Acl, Acl], actual: Collection[Acl], owned: AclOwnership
) -> Plan:
    """Plan the changes that give the target (`where`) the ACLs the flow wants, without touching those of others.

    `wanted` holds each with the source's ACL it stands for.
    """
    changes: list[Change] = []
    notes: list[Note] = []

    def change(action: str, acl: Acl, reason: str) -> None:
        content = {"before" if action in ("delete", "release") else "after": acl.as_dict()}
        changes.append(
            Change(where=where, kind="acl", name=str(acl), action=action, reason=reason, flow=flow, **content)
        )

    # Denials come first and go last: whoever dies in between leaves nobody with more than the source gives.
    for acl, origin in sorted(wanted.items(), key=lambda pair: (pair[0].permission != "DENY", pair[0])):
        holders = owned.holders.get(acl, set())
        if acl not in actual:
            change("create", acl, f"on the source: {origin}")
        elif flow not in holders and holders:
            change("share", acl, f"made by {', '.join(sorted(holders))}; kept until all have given it up")
        elif flow not in holders and flow in owned.intended.get(acl, set()):
            change("adopt", acl, "made by a run that was interrupted before it could say so")
    for acl in sorted({*owned.concerning(flow)}, key=lambda one: (one.permission == "DENY", one)):
        if acl in wanted:
            continue
        holders = owned.holders.get(acl, set())
        if acl not in actual:
            change("release", acl, "it is gone from the target")
        elif flow in holders and len(holders) == 1:
            change("delete", acl, "made by mirrorlake, and the source no longer has it")
        elif holders:
            change("release", acl, f"still needed by {', '.join(sorted(holders - {flow}))}")
        else:
            notes.append(
                Note(
                    where=where,
                    kind="acl",
                    name=str(acl),
                    reason="a run that was interrupted made it, or somebody else did at that moment, and the source no longer "
                    "has it; delete it with kafka-acls.sh --remove if nobody needs it",
                )
            )
    return Plan(tuple(changes), tuple(notes))


def simulate(plan: Plan, *, actual: set[Acl], owned: AclOwnership) -> None:
    """Carry a plan of ACLs out on paper, so that the next flow of the same target is planned on top of it."""
    for change in plan.changes:
        acl = Acl(**(change.after or change.before))
        owned.note(change.action, acl, change.flow)
        if change.action == "create":
            actual.add(acl)
        elif change.action == "delete":
            actual.discard(acl)
