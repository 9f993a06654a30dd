"""The table `audit`: the changes on each cluster, and from them the settings that mirrorlake owns."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import AUDIT
from mirrorlake.model.plan import Change, Plan
from mirrorlake.runtime import user_name

MAINTAIN = "maintain"
"""The command and action of the row for a maintenance pass that rewrote or deleted files; its `after` counts them by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    object: str
    action: str
    flow: str | None
    before: Any
    after: Any


def who() -> str:
    return f"{user_name()}@{socket.gethostname()}"


class Audit:
    def __init__(self, lake: Lake, *, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self.now = now

    def record(self, changes: Sequence[Change], *, command: str, plan: Plan | None = None) -> None:
        """Append changes that were applied; `plan` is the plan that showed them, by default one of these changes."""
        digest = hashlib.sha256(str(plan or Plan(tuple(changes))).encode()).hexdigest()
        by = who()
        self._lake.append(
            AUDIT,
            [
                {
                    "at": self.now(),
                    "who": by,
                    "command": command,
                    "plan_hash": digest,
                    "where": change.where,
                    "flow": change.flow or None,
                    "object": f"{change.kind} {change.name}",
                    "action": change.action,
                    "before": json.dumps(change.before),
                    "after": json.dumps(change.after),
                }
                for change in changes
            ],
        )

    def entries(self, where: str, kind: str) -> list[AuditEntry]:
        """List the actions on objects of a kind on a cluster, oldest first; [] before the table exists."""
        rows = self._lake.query(
            "SELECT object, action, flow, before, after FROM {audit} "
            "WHERE `where` = :cluster AND startswith(object, :kind) ORDER BY at",
            cluster=where,
            kind=f"{kind} ",
            missing_ok=True,
        )
        return [
            AuditEntry(
                object=row.object.partition(" ")[2],
                action=row.action,
                flow=row.flow,
                before=json.loads(row.before),
                after=json.loads(row.after),
            )
            for row in rows
        ]

    def copied_configs(self, where: str) -> dict[str, dict[str, str]]:
        """Return, by remote topic on a cluster, the settings that mirrorlake set and did not reset."""
        copied: dict[str, dict[str, str]] = {}
        for entry in self.entries(where, "topic"):
            held = copied.setdefault(entry.object, {})
            if entry.action == "create":
                held.clear()
                held.update(entry.after["configs"])
            elif entry.action in ("set_configs", "adopt_configs"):
                held.update(entry.after)
            elif entry.action == "reset_configs":
                for name in entry.after:
                    held.pop(name, None)
        return copied
