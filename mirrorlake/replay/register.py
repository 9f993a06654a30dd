"""Record begun and done replays in `audit`, since each changes a cluster (law G)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mirrorlake.context import Context
from mirrorlake.model.replay import Definition
from mirrorlake.procedure import BEGIN, Journal, Operation

COMMAND, END = "replay", "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A begun replay; `done_at` is None until it is done."""

    operation: Operation
    definition: Definition
    begun_at: datetime
    done_at: datetime | None = None

    @classmethod
    def of(cls, operation: Operation) -> Begun:
        """Read it from its rows; of two processes that began it at once, the first decides what both send."""
        begun = next(step for step in operation.steps if step.name == BEGIN)
        done, definition = operation.step(END), Definition.from_dict(begun.after)
        done_at = None if done is None else done.at
        return cls(operation=operation, definition=definition, begun_at=begun.at, done_at=done_at)


class Register:
    def __init__(self, context: Context) -> None:
        self._context = context

    def find(self, name: str) -> Begun | None:
        return self._read(self.journal(name)).get(name)

    def begun(self, name: str) -> Begun:
        return self._read(self.journal(name))[name]

    def all(self) -> dict[str, Begun]:
        """Return every replay by the name of its flow, oldest first."""
        return self._read(self.journal())

    def journal(self, name: str = "", *, target: str = "") -> Journal:
        return Journal(self._context.lake, (COMMAND,), flow=name, where=target, now=self._context.now)

    @staticmethod
    def _read(journal: Journal) -> dict[str, Begun]:
        return {one.id: Begun.of(one) for one in journal.operations() if one.step(BEGIN) is not None}
