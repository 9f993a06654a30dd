"""Law A: what mirrorlake set is never taken for a group's own progress, and nobody is moved where they last committed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from mirrorlake.model.own_commits import CommitHistory, Held, last_own, may_move

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.mark.law("A")
@pytest.mark.parametrize(
    ("history", "offset", "expected"),
    [
        (CommitHistory({}), 5, Held(5, own_since=at(9))),
        (CommitHistory({}, (at(1), 5)), 5, Held(5, own_since=at(1))),
        (CommitHistory({5: at(1)}), 5, Held(5)),
        (CommitHistory({5: at(2)}, (at(1), 3)), 5, Held(5)),
        (CommitHistory({5: at(1)}, (at(2), 7)), 7, Held(7, own_since=at(2))),
        # It committed something else since: that it came back to 5 is its own doing.
        (CommitHistory({5: at(1)}, (at(2), 7)), 5, Held(5, own_since=at(9))),
        (CommitHistory({5: at(1)}), 6, Held(6, own_since=at(9))),
    ],
)
def test_law_a_whose_a_position_is(history: CommitHistory, offset: int, expected: Held) -> None:
    assert history.held(offset, now=at(9)) == expected


@pytest.mark.law("A")
def test_law_a_nobody_is_moved_where_they_last_committed() -> None:
    held = {"east": Held(5, own_since=at(1)), "west": Held(4, own_since=at(2)), "central": Held(3)}
    assert last_own(held) == {"west"}
    assert [may_move(place, held).is_free for place in held] == [True, False, True]
    tied = {**held, "east": Held(5, own_since=at(2))}
    assert [may_move(place, tied).is_free for place in tied] == [False, False, True]
    assert not may_move("east", tied).is_certain
    assert not may_move("west", {"east": Held(5)}).is_free
