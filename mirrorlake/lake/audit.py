"""The table `audit`: what was changed on which cluster, and what follows from it: whose a setting is."""

from __future__ import annotations

import getpass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One row of `audit`."""

    object: str
    action: str
    flow: str | None
    before: Any
    after: Any


def who() -> str:
    """Name user and host of this process."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


class Audit:
    """Write what was done to clusters, and read it again."""

    def __init__(self, lake: Lake, *, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self.now = now

    def record(self, changes: Sequence[Change], *, command: str, plan: Plan | None = None) -> None:
        """Append changes that were carried out; `plan` is the one they were shown in, themselves by default."""
        digest = hashlib.sha256(str(plan or Plan(tuple(changes))).encode()).hexdigest()
        by = who()
        self._lake.append_rows(
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
        """List the actions on objects of a kind on a cluster, oldest first; empty before the table exists."""
        rows = self._lake.query_rows(
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
        """Read, per remote topic on a cluster, the settings that mirrorlake made there and did not take back."""
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
