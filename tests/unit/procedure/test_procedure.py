"""A command of several steps: it refuses first, and shows without a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from mirrorlake.errors import FailoverRefused
from mirrorlake.lake import Lake
from mirrorlake.procedure import Journal, Operation, Procedure, Refusal, Step
from tests.builders import NOON


class Move(Procedure[str]):
    """Note what it does, step by step."""

    command = "failover"

    def __init__(self, journal: Journal, did: list[str], refusals: Sequence[Refusal] = ()) -> None:
        super().__init__(journal)
        self._did = did
        self._why = refusals

    def _repeat(self) -> str | None:
        return None

    def _unfinished(self) -> Operation | None:
        return self._journal.last("failover")

    def _request(self) -> Mapping[str, Any]:
        return {"before": {"asked": True}}

    def _refusals(self, _: Operation | None) -> Sequence[Refusal]:
        return self._why

    def _refused(self, refusals: Sequence[Refusal]) -> FailoverRefused:
        return FailoverRefused("; ".join(map(str, refusals)), remedy="mend it")

    def _steps(self) -> Sequence[Step]:
        return (Step("freeze", lambda _: self._did.append("freeze")),)

    def _plan(self, _: Operation | None, refusals: Sequence[Refusal]) -> str:
        return f"would do it, {len(refusals)} refusals"

    def _report(self, operation: Operation) -> str:
        return f"did {operation.id}"


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
