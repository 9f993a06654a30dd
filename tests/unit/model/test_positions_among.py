"""Groups: one position where several source partitions feed one target partition, nobody moved at home, and plans that were shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.groups import Contribution, GroupPlan, GroupPosition, limiting, position_among
from mirrorlake.model.own_commits import CommitHistory, find_last_committed, may_move
from tests.builders import NOON
from tests.unit.values import group_position


@dataclass(frozen=True)
class Case:
    """One target partition: (source, upstream offset) of each record by downstream offset, markers and other flows are None.

    `positions` is what a reader has read of each source that it reads. Records from `known_to` on are not in the maps yet,
    but for those of `ahead`, sources whose transactions were faster.
    """

    records: tuple[tuple[int, int] | None, ...]
    positions: dict[int, int]
    known_to: int
    ahead: frozenset[int] = frozenset()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sources = draw(st.integers(1, 4))
    upstream = [0] * sources
    records: list[tuple[int, int] | None] = []
    for step in draw(st.lists(st.none() | st.integers(0, sources - 1), max_size=40)):
        if step is None:
            records.append(None)
            continue
        # What goes to other target partitions, and markers, leave gaps upstream.
        upstream[step] += draw(st.integers(0, 2))
        records.append((step, upstream[step]))
        upstream[step] += 1
    reads = draw(st.sets(st.integers(0, sources - 1), min_size=1))
    positions = {source: draw(st.integers(0, upstream[source] + 2)) for source in sorted(reads)}
    ahead = draw(st.frozensets(st.integers(0, sources - 1)))
    return Case(tuple(records), positions, draw(st.integers(0, len(records))), ahead)


def contributions(case: Case, *, until: int) -> list[Contribution]:
    found = []
    for source, position in case.positions.items():
        known = len(case.records) if source in case.ahead else until
        places = [(at, r[1]) for at, r in enumerate(case.records[:known]) if r is not None and r[0] == source]
        last_read = max((at for at, offset in places if offset < position), default=None)
        unread = min((at for at, offset in places if offset >= position), default=None)
        here = SourcePartition("orders", 1, source)
        found.append(Contribution("f", here, position, last_read=last_read, first_unread=unread))
    return found


def split(case: Case) -> tuple[list[int], list[int]]:
    """Return where the records stand that the reader has read, and those it has not, of the sources that it reads."""
    mine = [(at, r) for at, r in enumerate(case.records) if r is not None and r[0] in case.positions]
    read = [at for at, (source, offset) in mine if offset < case.positions[source]]
    return read, [at for at, _ in mine if at not in read]


@pytest.mark.law("A")
@given(cases())
def test_law_a_no_unread_record_is_skipped_and_as_few_as_possible_are_read_again(case: Case) -> None:
    read, unread = split(case)
    position = position_among(contributions(case, until=len(case.records)))
    if position is None:
        assert not read
        assert not unread
        return
    assert all(at >= position for at in unread), f"law A: {position} skips a record that was not read"
    # One position a partition: everything after the first unread record is read again, whatever the position.
    unavoidable = [at for at in read if unread and at > min(unread)]
    assert [at for at in read if at >= position] == unavoidable, f"{position} reads more again than it must"


@pytest.mark.law("A")
@given(cases())
def test_law_a_holds_for_records_that_are_under_way(case: Case) -> None:
    _, unread = split(case)
    position = position_among(contributions(case, until=case.known_to), known_to=case.known_to)
    if position is not None:
        assert all(at >= position for at in unread), "law A: a record whose transaction was not known yet is skipped"


@pytest.mark.law("A")
@given(cases())
def test_what_decides_has_the_first_unread_record_or_the_last_read_one(case: Case) -> None:
    found = contributions(case, until=len(case.records))
    decides = limiting(found)
    unread = [one.first_unread for one in found if one.first_unread is not None]
    if unread:
        assert decides.first_unread == min(unread)
    else:
        assert decides.last_read == max((one.last_read for one in found if one.last_read is not None), default=None)


@pytest.mark.law("A", "B")
@given(cases(), st.data())
def test_law_b_a_reader_that_reads_on_is_never_moved_back(case: Case, data: st.DataObject) -> None:
    before = position_among(contributions(case, until=case.known_to), known_to=case.known_to)
    further = {source: position + data.draw(st.integers(0, 3)) for source, position in case.positions.items()}
    later = replace(case, positions=further)
    after = position_among(contributions(later, until=len(case.records)))
    if before is not None:
        assert after is not None
        assert after >= before, "law B"


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.mark.law("A")
@pytest.mark.parametrize(
    ("history", "offset", "expected"),
    [
        (CommitHistory(), 5, at(9)),
        (CommitHistory(newest=(at(1), 5)), 5, at(1)),
        (CommitHistory({5: at(1)}), 5, None),
        (CommitHistory({5: at(2)}, (at(1), 3)), 5, None),
        (CommitHistory({5: at(1)}, (at(2), 7)), 7, at(2)),
        # It committed something else since: that it came back to 5 is its own doing.
        (CommitHistory({5: at(1)}, (at(2), 7)), 5, at(9)),
        (CommitHistory({5: at(1)}), 6, at(9)),
    ],
)
def test_law_a_whose_a_position_is(history: CommitHistory, offset: int, expected: datetime | None) -> None:
    assert history.own_since(offset, now=at(9)) == expected


@pytest.mark.law("A")
def test_law_a_nobody_is_moved_where_they_last_committed() -> None:
    own_since = {"east": at(1), "west": at(2), "central": None}
    assert find_last_committed(own_since) == {"west"}
    assert [may_move(place, own_since).is_free for place in own_since] == [True, False, True]
    tied = {**own_since, "east": at(2)}
    assert [may_move(place, tied).is_free for place in tied] == [False, False, True]
    assert not may_move("east", tied).is_certain
    assert not may_move("west", {"east": None}).is_free


def resumed_at(
    downstream: int | None, action: Any = "move", group: str = "billing", reason: str = "exact"
) -> GroupPosition:
    position = group_position(group, action, reason=reason)
    return replace(position, resume=replace(position.resume, downstream_offset=downstream))


def carried_out(shown: GroupPosition, *present: GroupPosition) -> GroupPosition:
    [done] = GroupPlan("f", present).as_shown(GroupPlan("f", (shown,)))
    return done


@pytest.mark.law("A", "G")
def test_law_a_what_the_present_does_not_allow_is_held_back() -> None:
    back = carried_out(resumed_at(100), resumed_at(90))
    assert (back.action, "went back" in back.reason) == ("hold", True)
    active = carried_out(resumed_at(100), resumed_at(None, "hold", reason="it has members"))
    assert (active.action, active.reason) == ("hold", "it has members")
    gone = carried_out(resumed_at(100))
    assert (gone.action, "is gone" in gone.reason) == ("hold", True)


@pytest.mark.law("G")
def test_law_g_nothing_is_set_that_was_not_shown() -> None:
    present = GroupPlan("f", (resumed_at(100), resumed_at(100, group="other")))
    assert [one.group for one in present.as_shown(GroupPlan("f", (resumed_at(100),)))] == ["billing"]
    # What was in step when it was shown stays so, although there is something to move by now.
    assert not present.as_shown(GroupPlan("f", (resumed_at(60, "in_step"),))).moves
