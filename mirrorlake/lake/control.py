"""The table `control`: what a person wants of the mirror, heard by running processes within seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from mirrorlake.lake.audit import who
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import CONTROL
from mirrorlake.lake.times import TICK
from mirrorlake.model.control import ControlState, Intention, Subject, state_of


class Control:
    """Read and append intentions; what was read is kept until the table has a newer version."""

    def __init__(self, lake: Lake, *, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._now = now
        self._location = lake.meta_location(CONTROL)
        self._exists = False
        # A table is made empty: its first version holds no rows.
        self._version = 0
        self._rows: list[Intention] = []

    def state(self) -> ControlState:
        """Read the state that holds now.

        A look at an unchanged table asks for the next version: 2 ms in a folder, 20 ms through Spark, and no job.

        Raises:
            SafetyError: a later release upgraded the lake meanwhile.
        """
        self._lake.recheck_version()
        self._exists = self._exists or self._lake.exists(self._location)
        if not self._exists:
            return ControlState()
        if self._lake.has_version(self._location, self._version + 1):
            # The version first: a row that comes in between is then read twice, not never.
            self._version = self._lake.version(self._location)
            self._rows = [_intention(row) for row in self._lake.query_rows("SELECT * FROM {control}")]
        return state_of(self._rows)

    def append(self, action: str, subject: Subject, *, value: Any = None, reason: str = "") -> None:
        """Write an intention down; it is newer than every one before, also where clocks disagree."""
        self._lake.create_side_table(CONTROL)
        self.state()
        at = max([self._now(), *(row.at + TICK for row in self._rows)])
        row = {
            "at": at,
            "who": who(),
            "action": action,
            "kind": subject.kind,
            "name": subject.name,
            "flow": subject.flow or None,
            "value": json.dumps(value),
            "reason": reason or None,
        }
        self._lake.append_rows(CONTROL, [row])


def _intention(row: Any) -> Intention:
    return Intention(
        at=row.at,
        who=row.who,
        action=row.action,
        subject=Subject(kind=row.kind, name=row.name, flow=row.flow or ""),
        value=json.loads(row.value),
        reason=row.reason or "",
    )
