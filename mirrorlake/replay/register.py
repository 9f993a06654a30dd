"""Record begun and done replays in `audit`, since each changes a cluster (law G)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.context import Context
from mirrorlake.model.replay import Definition
from mirrorlake.procedure import BEGIN, Journal, Operation

COMMAND, END = "replay", "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A begun replay; `done_at` and `outcome` are None until it is done."""

    operation: Operation
    definition: Definition
    begun_at: datetime
    done_at: datetime | None = None
    outcome: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, operation: Operation) -> Begun:
        """Read it from its rows; of two processes that began it at once, the first decides what both send."""
        begun = next(step for step in operation.steps if step.name == BEGIN)
        definition, done = Definition.from_dict(begun.after), operation.step(END)
        if done is None:
            return cls(operation=operation, definition=definition, begun_at=begun.at)
        return cls(operation=operation, definition=definition, begun_at=begun.at, done_at=done.at, outcome=done.after)


class Register:
    def __init__(self, context: Context) -> None:
        self._context = context

    def find(self, name: str) -> Begun | None:
        return self._read(self.journal(name)).get(name)

    def all(self) -> dict[str, Begun]:
        """Return every replay by the name of its flow, oldest first."""
        return self._read(self.journal())

    def journal(self, name: str = "", *, target: str = "") -> Journal:
        return Journal(self._context.lake, (COMMAND,), flow=name, where=target, now=self._context.now)

    @staticmethod
    def _read(journal: Journal) -> dict[str, Begun]:
        return {one.id: Begun.of(one) for one in journal.operations() if one.step(BEGIN) is not None}
