"""Store the steps of operations as rows of `audit`: `<command> <id>` is the object, the step's name the action."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mirrorlake.crash_points import crash_point
from mirrorlake.lake import AUDIT, TICK, Audit, Lake
from mirrorlake.model.plan import Change

BEGIN, DONE = "begin", "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A completed step: its time, and the state after it."""

    name: str
    at: datetime
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One run of a command for a flow, over all calls that resumed it, with its completed steps, oldest first."""

    id: str
    command: str
    flow: str
    steps: tuple[StepDone, ...] = ()

    def step(self, name: str) -> StepDone | None:
        """Return the newest row of a step, or None if it is not done."""
        return next((one for one in reversed(self.steps) if one.name == name), None)

    def after(self, name: str, missing: Any = None) -> Any:
        """Return the state after a step, or `missing` if the step is not done."""
        done = self.step(name)
        return missing if done is None else done.after

    @property
    def is_done(self) -> bool:
        """Whether its last step is done."""
        return self.step(DONE) is not None

    @property
    def began_at(self) -> datetime:
        return self.steps[0].at


class Journal:
    """Write and read the operations of one flow, or read those of all (no `flow`).

    `where` is the alias of the cluster that the operations change.
    """

    def __init__(
        self,
        lake: Lake,
        commands: Collection[str],
        *,
        flow: str = "",
        where: str = "",
        now: Callable[[], datetime],
    ) -> None:
        self._lake = lake
        self._commands = list(commands)
        self._flow = flow
        self._where = where
        self._now = now

    def operations(self) -> list[Operation]:
        """List the operations by start time; none before the lake exists."""
        found: dict[str, Operation] = {}
        rows = self._lake.query(_STEPS, flow=self._flow, commands=self._commands, missing_ok=True)
        for row in rows:
            kind, _, name = row.object.partition(" ")
            if kind == row.command:
                step = StepDone(name=row.action, at=row.at, after=json.loads(row.after))
                known = found.get(name, Operation(id=name, command=row.command, flow=row.flow))
                found[name] = replace(known, steps=(*known.steps, step))
        return list(found.values())

    def last(self, *commands: str) -> Operation | None:
        return next((one for one in reversed(self.operations()) if one.command in commands), None)

    def begin(self, command: str, *, operation_id: str = "", before: Any = None, after: Any = None) -> Operation:
        """Begin an operation, timed after every earlier operation of the flow; its id is a new one by default.

        Rows are ordered by their times, so a host whose clock is ahead of another's would otherwise keep its failover in force.
        """
        self._lake.create_side_table(AUDIT)
        operation = Operation(id=operation_id or uuid.uuid4().hex[:12], command=command, flow=self._flow)
        earlier = [step.at for one in self.operations() for step in one.steps]
        return self._write(operation, BEGIN, before, after, earlier)

    def write(self, operation: Operation, step: str, *, before: Any = None, after: Any = None) -> Operation:
        """Write a completed step, timed after every earlier step, also if clocks disagree."""
        return self._write(operation, step, before, after, [one.at for one in operation.steps])

    def _write(
        self, operation: Operation, step: str, before: Any, after: Any, earlier: Iterable[datetime]
    ) -> Operation:
        crash_point("step.done")
        at = max([self._now(), *(one + TICK for one in earlier)])
        place: dict[str, Any] = {"where": self._where, "kind": operation.command, "name": operation.id}
        change = Change(**place, action=step, before=before, after=after, flow=operation.flow)
        Audit(self._lake, now=lambda: at).record([change], command=operation.command)
        crash_point("step.written")
        return replace(operation, steps=(*operation.steps, StepDone(name=step, at=at, after=after)))


# Rows of one time are of two processes that began at once: every reader takes the same for the first.
_STEPS = """
    SELECT at, command, flow, object, action, after FROM {audit}
    WHERE array_contains(:commands, command) AND (:flow = '' OR flow = :flow) ORDER BY at, action, after
"""
