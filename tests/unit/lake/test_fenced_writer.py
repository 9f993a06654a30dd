"""Whatever the steps of two claims do to each other, one lander writes, and nobody believes that a dropped batch is in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import LanderReplaced
from mirrorlake.lake import FencedRelayWriter, Lake
from mirrorlake.lake.reader import Commit
from tests.builders import NOON


class Table:
    """A relay as Delta keeps it: an older or equal version of an application id is dropped without a word."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.log: list[Commit] = []
        self._properties: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self.before: dict[str, Callable[[], Any]] = {}
        self.spark = SimpleNamespace(createDataFrame=lambda *_, **__: None)

    def relay_location(self, alias: str) -> str:
        return alias

    def properties(self, _: str) -> dict[str, str]:
        return dict(self._properties)

    def set_properties(self, _: str, values: dict[str, str]) -> None:
        self.before.pop("set", lambda: None)()
        self._properties |= values

    def commits(self, _: str) -> Iterator[Commit]:
        return iter(self.log)

    def land(
        self, frame: Any, _: str, *, app_id: str, version: int, signature: str, landed_at: datetime | None
    ) -> None:
        self.before.pop("append", lambda: None)()
        if version <= self._versions.get(app_id, -1):
            return
        self._versions[app_id] = version
        self.log.insert(0, Commit(len(self.log), json.loads(signature)))
        if frame is not None:
            assert landed_at is not None, "every record has the time of its batch"
            self.rows.append(frame)


@pytest.fixture
def table() -> Table:
    return Table()


def claimed(table: Table) -> FencedRelayWriter:
    writer = FencedRelayWriter(cast("Lake", table), "east")
    writer.refresh()
    writer.claim()
    return writer


@pytest.mark.law("F")
@pytest.mark.parametrize("sleeps_before", ["set", "append"])
def test_law_f_a_claim_that_slept_while_two_others_came(table: Table, sleeps_before: str) -> None:
    claimed(table).append("a", 0, NOON)
    sleeper, others = FencedRelayWriter(cast("Lake", table), "east"), list[FencedRelayWriter]()
    sleeper.refresh()
    table.before[sleeps_before] = lambda: others.extend([claimed(table), claimed(table)])
    with pytest.raises(LanderReplaced):
        sleeper.claim()
    heir = FencedRelayWriter(cast("Lake", table), "east")
    heir.refresh()
    if sleeps_before == "set":
        # The sleeper has set the property back: whoever believed it would write versions that are dropped.
        assert not heir.is_claimed
        heir.claim()
    assert heir.number >= others[-1].number
    heir.keeps_number = True
    heir.append("b", 0, NOON)
    assert table.rows == ["a", "b"]
    with pytest.raises(LanderReplaced):
        others[0].append("c", 1, NOON)


def test_a_batch_that_came_between_look_and_claim_is_told(table: Table) -> None:
    older = claimed(table)
    newer = FencedRelayWriter(cast("Lake", table), "east")
    newer.refresh()
    table.before["append"] = lambda: older.append("late", 0, NOON)
    assert newer.claim() is True, "the batch was written before the claim: positions are read again"
    assert table.rows == ["late"]
    with pytest.raises(LanderReplaced):
        older.append("later", 1, NOON)
    assert table.rows == ["late"]
