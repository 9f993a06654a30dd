"""How far a source was read, by the landing commits of its relay alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from mirrorlake.lake import Lake, LandingCommit, ReadProgress, landing_progress
from mirrorlake.lake.landing_commits import CLAIM
from mirrorlake.lake.landing_progress import landing_history
from mirrorlake.lake.reader import Commit
from mirrorlake.model.flow import SourcePartition
from tests.builders import NOON

A, B, C = (SourcePartition("orders", 1, partition) for partition in range(3))
NEW_A = SourcePartition("orders", 2, 0)


class Table:
    """The history of a relay."""

    def __init__(self) -> None:
        self.log: list[Commit] = []

    def commits(self, _: str) -> Iterator[Commit]:
        return iter(self.log)

    def put(self, *signed: LandingCommit | None) -> None:
        for one in signed:
            self.log.insert(0, Commit(len(self.log), {} if one is None else json.loads(one.to_text())))

    def land(self, batch: int, read_to: dict[SourcePartition, int] | None = None, *, whole: bool = False) -> None:
        self.put(LandingCommit(1, batch, "me", NOON, read_to, len(self.log) if whole else None))

    def restore(self, version: int) -> None:
        self.log.insert(0, Commit(len(self.log), {}, "RESTORE", version))

    @property
    def read_to(self) -> dict[SourcePartition, int] | None:
        found = landing_history(cast("Lake", self), "").read_to
        return None if found is None else dict(found)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.mark.law("E", "F")
def test_law_f_a_start_reads_what_commits_said_since_the_last_whole_record(table: Table) -> None:
    assert table.read_to is None
    table.land(1, {A: 5, B: 7, C: 0}, whole=True)
    table.put(*[None] * 30)
    table.land(2, {B: 9})
    table.land(3, {})
    table.land(4, {A: 6})
    assert table.read_to == {A: 6, B: 9, C: 0}
    table.land(5, {NEW_A: 2, B: 9, C: 3}, whole=True)
    assert table.read_to == {NEW_A: 2, B: 9, C: 3}, "each life has offsets of its own"


@pytest.mark.law("E", "F")
def test_law_f_a_claim_hides_nothing_that_an_older_lander_committed_beside_it(table: Table) -> None:
    table.land(1, {A: 5, B: 7}, whole=True)
    seen = len(table.log) - 1
    table.land(2, {B: 9})
    table.put(None, LandingCommit(2, CLAIM, "heir", read_to={A: 5, B: 7}, as_of=seen))
    assert table.read_to == {A: 5, B: 9}
    table.put(LandingCommit(3, CLAIM, "repair"))
    assert table.read_to == {A: 5, B: 9}


@pytest.mark.law("C", "F")
def test_law_c_what_a_restore_took_back_was_not_read(table: Table) -> None:
    table.land(1, {A: 5}, whole=True)
    table.land(2, {A: 9}, whole=True)
    table.restore(0)
    assert table.read_to == {A: 5}
    table.restore(1)
    assert table.read_to == {A: 9}, "a RESTORE to before another one takes that back, too"
    table.land(3, {B: 1})
    assert table.read_to == {A: 9, B: 1}
    table.restore(-1)
    assert table.read_to is None, "put back to a time, nothing says how far that is"


def test_a_query_says_it_in_its_checkpoint_location(table: Table) -> None:
    table.put(LandingCommit(1, CLAIM, "query", read_to={A: 5}, as_of=-1))
    assert table.read_to == {A: 5}
    table.land(0)
    assert table.read_to is None
    table.put(LandingCommit(2, CLAIM, "task", read_to={A: 8}, as_of=1))
    assert table.read_to == {A: 8}


@pytest.mark.law("E", "F")
def test_law_f_a_commit_says_what_its_records_do_not_and_all_of_it_every_so_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(landing_progress.time, "monotonic", lambda: clock[0])
    many = {SourcePartition("orders-of-all-regions", 1, number): 10**9 for number in range(1000)}
    progress, moved = ReadProgress(many), sorted(many)[500:503]
    assert progress.take() == (many, True)
    progress.read({moved[0]: 10**9 + 5, moved[1]: 10**9 + 7}, {moved[0]: 10**9 + 5, moved[1]: 10**9 + 6})
    assert progress.take() == ({moved[1]: 10**9 + 7}, False), "a partition that ends in a record needs no word"

    progress.read(dict.fromkeys(moved, 10**9 + 9), {})
    clock[0] += 1.5
    assert progress.is_due, "law E: control records alone are committed, too"
    said, is_whole = progress.take()
    assert not is_whole
    plain = len(LandingCommit(3, 17, "owner", NOON).to_text())
    assert len(LandingCommit(3, 17, "owner", NOON, said).to_text()) - plain < 200
    assert not progress.is_pending

    whole: list[Any] = [progress.take()[1] for _ in range(200)]
    assert whole.count(True) == 4  # of 1 000 partitions each 50th
    clock[0] += 4000
    assert progress.take() == ({**many, moved[0]: 10**9 + 9, moved[1]: 10**9 + 9, moved[2]: 10**9 + 9}, True), (
        "log cleanup goes by age: a source that was silent for long says all at its next commit"
    )
