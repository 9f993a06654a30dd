"""What becomes of a group that got members, or moved itself, after its plan was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mirrorlake.errors import GroupActive
from mirrorlake.kafka import Committed
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan, HoldCause, Resume, decide
from mirrorlake.offsets import apply_groups
from mirrorlake.render import document
from tests.builders import ORDERS

THERE = TopicPartition("orders", 0)


class Target:
    """Groups of a cluster: `runs` has got members, `moved` has committed since the plan was made."""

    def commit(self, group: str, _: Mapping[TopicPartition, Committed], *, seen: Any) -> bool:
        assert seen.keys() == {THERE}
        if group == "runs":
            raise GroupActive(f"{group} has members")
        return group != "moved"


@pytest.mark.law("A")
def test_law_a_who_is_not_moved_is_on_hold_for_a_cause_that_names_the_cluster() -> None:
    resume = Resume(source=ORDERS, upstream_offset=7, target=THERE, downstream_offset=5, exact=True)

    def position(group: str, at: int | None = None, *, active: bool = False) -> Any:
        return decide(group, resume, metadata="", target_offset=at, is_active=active, where="east")

    plan = GroupPlan("f", (*map(position, ("runs", "moved", "free")), position("busy", active=True), position("on", 9)))
    done = apply_groups(plan, target=Target(), where="east")  # type: ignore[arg-type]  # what is asked of it
    assert {one.group: (one.action, one.cause) for one in done} == {
        "runs": ("hold", HoldCause.ACTIVE_MEMBERS),
        "moved": ("hold", HoldCause.CHANGED),
        "free": ("move", None),
        "busy": ("hold", HoldCause.ACTIVE_MEMBERS),
        "on": ("hold", HoldCause.HAS_READ_ON),
    }
    assert done.with_members == ["busy", "runs"], "a failover and a failback stop for these"
    assert all(" on east" in one.reason for one in done.held)
    assert "cause" not in document(done)["positions"][0], "what `--json` prints stays as it was"
