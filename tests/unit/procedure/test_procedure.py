"""A command of several steps: it refuses first, shows without a trace, and resumes wherever it was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import FailoverRefused
from mirrorlake.lake import Lake
from mirrorlake.lake.schema import AUDIT
from mirrorlake.procedure import DONE, Journal, Operation, Procedure, Refusal, Step
from tests.builders import NOON
from tests.lakes import lake_in


class Move(Procedure[str]):
    """Note what it does, step by step; `odd` is a step that it may not need."""

    command = "failover"

    def __init__(self, journal: Journal, did: list[str], refusals: Sequence[Refusal] = ()) -> None:
        super().__init__(journal)
        self._did = did
        self._why = refusals

    def _repeat(self) -> str | None:
        last = self._journal.last("failover")
        return f"again: {last.after(DONE)}" if last is not None and last.is_done else None

    def _unfinished(self) -> Operation | None:
        return self._journal.last("failover")

    def _request(self) -> Mapping[str, Any]:
        return {"before": {"asked": True}}

    def _refusals(self, _: Operation | None) -> Sequence[Refusal]:
        return self._why

    def _refused(self, refusals: Sequence[Refusal]) -> FailoverRefused:
        return FailoverRefused("; ".join(map(str, refusals)), remedy="mend it")

    def _steps(self) -> Sequence[Step]:
        def does(name: str) -> Callable[[Operation], Any]:
            return lambda operation: self._did.append(name) or f"{name} of {operation.id}"

        return (
            Step("freeze", does("freeze"), before=lambda _: list(self._did)),
            Step("odd", does("odd"), is_needed=lambda operation: operation.after("freeze") is None),
            Step("place", does("place")),
        )

    def _plan(self, _: Operation | None, refusals: Sequence[Refusal]) -> str:
        return f"would do it, {len(refusals)} refusals"

    def _report(self, operation: Operation) -> str:
        return ", ".join(step.name for step in operation.steps)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_in(tmp_path, AUDIT)


def journal_of(lake: Lake) -> Journal:
    now = (NOON + number * timedelta(minutes=1) for number in count())
    return Journal(lake, ("failover",), flow="f", where="central", now=lambda: next(now))


@pytest.mark.law("G")
def test_law_g_a_refusal_and_a_dry_run_leave_no_trace(lake: Lake) -> None:
    did: list[str] = []
    refused = Move(journal_of(lake), did, [Refusal("a group runs"), Refusal("a topic is lost")])
    assert refused.run(dry_run=True) == "would do it, 2 refusals"
    with pytest.raises(FailoverRefused, match="a group runs; a topic is lost"):
        refused.run()
    assert Move(journal_of(lake), did).run(dry_run=True) == "would do it, 0 refusals"
    assert (did, journal_of(lake).operations()) == ([], [])
