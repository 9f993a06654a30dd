"""Store the steps of failovers, failbacks, cutovers and drills as rows of `audit`.

Law F (repeatable): a step's row is written when the step is done, so a command that was killed goes on with the first step
that has no row. Each step may be done twice: what it does to clusters and lake is the same the second time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.lake import TICK, Audit, Lake
from mirrorlake.model.plan import Change

FAILOVER, FAILBACK, CUTOVER, DRILL = "failover", "failback", "cutover", "drill"
BEGIN, FREEZE, DONE = "begin", "freeze", "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A completed step: its time, its author, and the state before and after it."""

    name: str
    at: datetime
    who: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One failover, failback, cutover or drill of a flow, with its completed steps, oldest first."""

    id: str
    command: str
    flow: str
    steps: tuple[StepDone, ...] = field(default_factory=tuple)

    def step(self, name: str) -> StepDone | None:
        """Return the newest row of a step, or None if it is not done."""
        return next((one for one in reversed(self.steps) if one.name == name), None)

    @property
    def is_done(self) -> bool:
        """Whether its last step is done."""
        return self.step(DONE) is not None

    @property
    def began_at(self) -> datetime:
        """The time of its first step."""
        return self.steps[0].at


class Journal:
    """Write and read the steps of one flow's operations."""

    def __init__(self, lake: Lake, *, flow: str, where: str, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._flow = flow
        self._where = where
        self._now = now

    def operations(self) -> list[Operation]:
        """List the operations of the flow by start time; none before the lake exists."""
        rows = self._lake.query_rows(
            _STEPS, flow=self._flow, commands=[FAILOVER, FAILBACK, CUTOVER, DRILL], missing_ok=True
        )
        found: dict[str, Operation] = {}
        for row in rows:
            kind, _, name = row.object.partition(" ")
            if kind != row.command:
                continue
            step = StepDone(
                name=row.action, at=row.at, who=row.who, before=json.loads(row.before), after=json.loads(row.after)
            )
            known = found.get(name, Operation(id=name, command=row.command, flow=self._flow))
            found[name] = Operation(id=known.id, command=known.command, flow=known.flow, steps=(*known.steps, step))
        return list(found.values())

    def last(self, *commands: str) -> Operation | None:
        """Return the last operation of some kinds, or None."""
        return next((one for one in reversed(self.operations()) if one.command in commands), None)

    def begin(self, command: str, *, before: Any = None, after: Any = None) -> Operation:
        """Begin an operation with a new id, timed after every earlier operation of the flow.

        Rows are ordered by their times, so a host whose clock is ahead of another's would otherwise keep its failover in force.
        """
        operation = Operation(id=uuid.uuid4().hex[:12], command=command, flow=self._flow)
        earlier = [step.at for one in self.operations() for step in one.steps]
        return self._write(operation, BEGIN, before=before, after=after, earlier=earlier)

    def write(self, operation: Operation, step: str, *, before: Any = None, after: Any = None) -> Operation:
        """Write a completed step, timed after every earlier step, also if clocks disagree."""
        return self._write(operation, step, before=before, after=after, earlier=[one.at for one in operation.steps])

    def _write(
        self, operation: Operation, step: str, *, before: Any, after: Any, earlier: Iterable[datetime]
    ) -> Operation:
        at = max([self._now(), *(one + TICK for one in earlier)])
        change = Change(
            where=self._where,
            kind=operation.command,
            name=operation.id,
            action=step,
            before=before,
            after=after,
            flow=self._flow,
        )
        Audit(self._lake, now=lambda: at).record([change], command=operation.command)
        done = StepDone(name=step, at=at, who="", before=before, after=after)
        return Operation(
            id=operation.id, command=operation.command, flow=operation.flow, steps=(*operation.steps, done)
        )


def failed_over(operations: Iterable[Operation]) -> Operation | None:
    """Return the completed failover that no failback has ended, or None."""
    held: Operation | None = None
    for one in operations:
        if one.command == FAILOVER and one.is_done:
            held = one
        elif one.command == FAILBACK and one.is_done:
            held = None
    return held


_STEPS = """
    SELECT at, who, command, object, action, before, after FROM {audit}
    WHERE flow = :flow AND array_contains(:commands, command) ORDER BY at
"""
