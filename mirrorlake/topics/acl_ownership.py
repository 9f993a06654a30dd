"""Record the owners of a target's ACLs: mirrorlake deletes only the ACLs that it created.

Kafka does not record who made an ACL. mirrorlake records it in an order that survives a crash at any instruction:

    absent ──intend──> about to be created ──create──> owned by the flow ──delete──> absent
                              │  crash                   ^      │
                              └──────── adopt ───────────┘      └──release──> somebody else's, or another flow's

mirrorlake leaves alone an ACL that existed before. A crash between `intend` and `create` leaves an ACL that was absent when
it was intended. The flow adopts it (shown first) while the source still has it. If the source has revoked it, somebody else
may have made the same ACL at that moment: every plan shows it, and none deletes it.

Several flows may need the same ACL on one target: the last flow that releases it deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change, Note, Plan

INTENDED = "intend"


@dataclass(slots=True)
class AclOwnership:
    holders: dict[Acl, set[str]] = field(default_factory=dict)
    intended: dict[Acl, set[str]] = field(default_factory=dict)

    def note(self, action: str, acl: Acl, flow: str) -> None:
        """Apply one recorded action; call it in the order of the actions."""
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


def ownership_of(entries: Iterable[tuple[str, Acl, str]]) -> AclOwnership:
    """Replay recorded (action, ACL, flow) entries, oldest first."""
    owned = AclOwnership()
    for action, acl, flow in entries:
        owned.note(action, acl, flow)
    return owned


def acl_changes(
    flow: str, *, where: str, wanted: Mapping[Acl, Acl], actual: Collection[Acl], owned: AclOwnership
) -> Plan:
    """Plan the changes that give the target (`where`) the flow's ACLs; leave the ACLs of others alone.

    `wanted` maps each target ACL to its source ACL.
    """
    changes: list[Change] = []
    notes: list[Note] = []

    def change(action: str, acl: Acl, reason: str) -> None:
        changes.append(acl.change(action, where=where, reason=reason, flow=flow))

    # Denials come first and go last: a crash in between grants nobody more than the source does.
    for acl, origin in sorted(wanted.items(), key=lambda pair: (pair[0].permission != "DENY", pair[0])):
        holders = owned.holders.get(acl, set())
        if acl not in actual:
            change("create", acl, f"on the source: {origin}")
        elif flow not in holders and holders:
            change("share", acl, f"created by {', '.join(sorted(holders))}; stays until all release it")
        elif flow not in holders and flow in owned.intended.get(acl, set()):
            change("adopt", acl, "created by a run that was interrupted before it recorded this")
    mine = {acl for held in (owned.holders, owned.intended) for acl, flows in held.items() if flow in flows}
    for acl in sorted(mine, key=lambda one: (one.permission == "DENY", one)):
        if acl in wanted:
            continue
        holders = owned.holders.get(acl, set())
        if acl not in actual:
            change("release", acl, "it is gone from the target")
        elif flow in holders and len(holders) == 1:
            change("delete", acl, "created by mirrorlake, and the source no longer has it")
        elif holders:
            change("release", acl, f"still needed by {', '.join(sorted(holders - {flow}))}")
        else:
            notes.append(
                Note(
                    where=where,
                    kind="acl",
                    name=str(acl),
                    reason="an interrupted run created it, or somebody else did at that moment; the source no longer "
                    "has it; delete it with kafka-acls.sh --remove if nobody needs it",
                )
            )
    return Plan(tuple(changes), tuple(notes))


def simulate(plan: Plan, *, actual: set[Acl], owned: AclOwnership) -> None:
    """Apply a plan to `actual` and `owned` only, so that the next flow of the target plans on top of it."""
    for change in plan.changes:
        acl = Acl(**(change.after or change.before))
        owned.note(change.action, acl, change.flow)
        if change.action == "create":
            actual.add(acl)
        elif change.action == "delete":
            actual.discard(acl)
