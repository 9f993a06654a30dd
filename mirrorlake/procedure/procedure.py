"""A command of several steps, which refuses before its first step, shows what it would do, and resumes after a kill.

Law F (repeatable): a step's row is written when the step is done, so a command that was killed resumes with the first step
that has no row. Each step may be done twice: what it does to clusters and lake is the same the second time.
Law G (shown first): a dry run ends before the first step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from mirrorlake.errors import SafetyError
from mirrorlake.procedure.journal import DONE, Journal, Operation
from mirrorlake.render import document

Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a procedure is refused: the reason, the remedy, and the option that overrides the refusal."""

    why: str
    remedy: str = ""
    flag: str = ""

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `run` does its work, and returns what its row holds as the state after it.

    `before` returns the state before it. A step that `is_needed` denies has no row.
    """

    name: str
    run: Callable[[Operation], Any]
    before: Callable[[Operation], Any] = lambda _: None
    is_needed: Callable[[Operation], bool] = lambda _: True


class Procedure(ABC, Generic[Report]):
    """The order in which a command refuses, shows, acts and reports; a subclass has its steps and its refusals."""

    command: ClassVar[str]

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def run(self, *, dry_run: bool = False) -> Report:
        """Carry it out, or with `dry_run` only report the plan; a call after the last step repeats the report.

        Raises:
            SafetyError: it is refused, with all reasons; steps that are done stand, and the next call resumes after them.
            UsageError: there is nothing to do.
            ClusterError: a cluster does not answer.
        """
        repeated = self._repeat()
        if repeated is not None:
            return repeated
        operation = self._unfinished()
        refusals = self._refusals(operation)
        if dry_run:
            return self._plan(operation, refusals)
        if refusals:
            raise self._refused(refusals)
        if operation is None:
            operation = self._journal.begin(self.command, **self._request())
        for step in self._steps():
            if operation.step(step.name) is None and step.is_needed(operation):
                before = step.before(operation)
                operation = self._journal.write(operation, step.name, before=before, after=step.run(operation))
        report = self._report(operation)
        self._journal.write(operation, DONE, after=document(report))
        return report

    @abstractmethod
    def _repeat(self) -> Report | None:
        """Return the report of a procedure that is over and still holds, or None if there is one to carry out."""

    @abstractmethod
    def _unfinished(self) -> Operation | None:
        """Return the operation to resume, or None to begin one."""

    @abstractmethod
    def _request(self) -> Mapping[str, Any]:
        """Return what the row of the beginning holds: the arguments of `Journal.begin`."""

    @abstractmethod
    def _refusals(self, operation: Operation | None) -> Sequence[Refusal]: ...

    @abstractmethod
    def _refused(self, refusals: Sequence[Refusal]) -> SafetyError: ...

    @abstractmethod
    def _steps(self) -> Iterable[Step]: ...

    @abstractmethod
    def _plan(self, operation: Operation | None, refusals: Sequence[Refusal]) -> Report: ...

    @abstractmethod
    def _report(self, operation: Operation) -> Report: ...
