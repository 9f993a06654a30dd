"""Groups: what becomes of one that moved after its plan was made, and where one was last seen whose cluster is lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import GroupActive
from mirrorlake.kafka import Committed
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, Resume, decide
from mirrorlake.offsets import apply_groups
from mirrorlake.offsets.group_positions import read_commits
from mirrorlake.render import document
from tests.builders import NOON, ORDERS, mirror_config
from tests.kit.lake import LakeBuilder

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
    assert {one.group: (one.action, one.has_members) for one in done} == {
        "runs": ("hold", True),
        "moved": ("hold", False),
        "free": ("move", False),
        "busy": ("hold", True),
        "on": ("hold", False),
    }
    assert done.with_members == ["busy", "runs"], "a failover and a failback stop for these"
    assert all(" on east" in one.reason for one in done.held)
    assert "has_members" not in document(done)["positions"][0], "what `--json` prints stays as it was"


def see_topic(built: LakeBuilder, generation: int, cuts: list[dict[str, int]] | None = None) -> None:
    at = NOON + timedelta(minutes=generation)
    built.observe("orders", topic_id=f"x{generation}", generation=generation, observed_at=at, cuts=cuts)


def see_group(built: LakeBuilder, generation: int, position: int, *, minute: int) -> None:
    at = NOON + timedelta(minutes=minute)
    built.position("group", position, group_id="billing", generation=generation, observed_at=at)


def recorded(built: LakeBuilder) -> dict[Any, Committed]:
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"})
    flow, context = config.flow("east->central"), SimpleNamespace(config=config, lake=built.lake)
    return dict(read_commits(context, flow, recorded=True).by_flow[flow.name])  # type: ignore[arg-type]


@pytest.mark.law("A")
def test_a_group_has_one_position_whatever_lives_its_topic_had(built: LakeBuilder) -> None:
    see_topic(built, 1)
    see_group(built, 1, 80, minute=1)
    see_topic(built, 2)
    assert recorded(built) == {("billing", SourcePartition("orders", 1, 0)): Committed(80)}, "not come to the new one"
    see_group(built, 2, 5, minute=3)
    assert recorded(built) == {("billing", SourcePartition("orders", 2, 0)): Committed(5)}, (
        "two positions on what feeds one target partition would hold the group back"
    )


@pytest.mark.law("A")
def test_a_position_is_of_the_life_that_the_source_held_there(built: LakeBuilder) -> None:
    see_topic(built, 1, [{"partition": 0, "generation": 2, "first_offset": 120}])
    # A sample counts by the newest life of the partition, the sync of groups by that at the position.
    see_group(built, 1, 50, minute=3)
    see_group(built, 2, 50, minute=4)
    assert recorded(built) == {("billing", SourcePartition("orders", 1, 0)): Committed(50)}
    see_group(built, 2, 130, minute=5)
    assert recorded(built) == {("billing", SourcePartition("orders", 2, 0)): Committed(130)}
