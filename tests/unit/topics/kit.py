"""Settings of one flow, and the table `control` without a lake."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from mirrorlake.model.control import ControlState, Intention, Subject, state_of

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SETTINGS = """
lake: {root: ./lake}
clusters:
  east:
    bootstrap_servers: "e:9092"
    client: {sasl.password: hunter2, sasl.mechanism: PLAIN, sasl.username: "${env:NOBODY:-me}", security.protocol: SASL_SSL}
  west: {bootstrap_servers: "w:9092"}
flows:
  - {source: east, target: west, topics: orders}
"""


class Table:
    """The table `control` without a lake."""

    def __init__(self) -> None:
        self.rows: list[Intention] = []

    def state(self) -> ControlState:
        return state_of(self.rows)

    def append(self, action: str, subject: Subject, *, value: Any = None, reason: str = "") -> None:
        at = NOON + timedelta(seconds=len(self.rows))
        self.rows.append(Intention(at=at, who="me@here", action=action, subject=subject, value=value, reason=reason))
