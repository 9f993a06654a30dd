"""A plan of groups that was shown, carried out later: nothing but what it shows, and only what is still right (laws A, G)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirrorlake.model.groups import GroupPlan, GroupPosition
from tests.unit.values import group_position


def at(downstream: int | None, action: Any = "move", group: str = "billing", reason: str = "exact") -> GroupPosition:
    position = group_position(group, action, reason=reason)
    return replace(position, resume=replace(position.resume, downstream_offset=downstream))


def carried_out(shown: GroupPosition, *present: GroupPosition) -> GroupPosition:
    [done] = GroupPlan("f", present).as_shown(GroupPlan("f", (shown,)))
    return done


@pytest.mark.law("A", "G")
def test_law_g_a_group_that_reads_on_goes_where_it_was_shown_to_go() -> None:
    shown = at(100)
    assert carried_out(shown, at(100)) == shown
    assert carried_out(shown, at(140)) == shown, "the place that was shown, not the present one"


@pytest.mark.law("A", "G")
def test_law_a_what_the_present_does_not_allow_is_held_back() -> None:
    back = carried_out(at(100), at(90))
    assert (back.action, "went back" in back.reason) == ("hold", True)
    active = carried_out(at(100), at(None, "hold", reason="it has members"))
    assert (active.action, active.reason) == ("hold", "it has members")
    gone = carried_out(at(100))
    assert (gone.action, "is gone" in gone.reason) == ("hold", True)


@pytest.mark.law("G")
def test_law_g_nothing_is_set_that_was_not_shown() -> None:
    present = GroupPlan("f", (at(100), at(100, group="other")))
    assert [one.group for one in present.as_shown(GroupPlan("f", (at(100),)))] == ["billing"]
    # What was in step when it was shown stays so, although there is something to move by now.
    assert not present.as_shown(GroupPlan("f", (at(60, "in_step"),))).moves


def test_some_groups_of_a_plan() -> None:
    plan = GroupPlan("f", (at(100, group="b"), at(100, group="a"), at(50, group="a")))
    assert plan.groups == ("a", "b")
    assert plan.only(["a"]).groups == ("a",)
