"""Positions of groups as the lake last saw them, for when their cluster is lost."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.kafka import Committed
from mirrorlake.model.flow import SourcePartition
from mirrorlake.offsets.group_positions import committed_positions
from tests.builders import NOON, mirror_config
from tests.kit.lake import LakeBuilder


def see_topic(built: LakeBuilder, generation: int, cuts: list[dict[str, int]] | None = None) -> None:
    at = NOON + timedelta(minutes=generation)
    built.observe("orders", topic_id=f"x{generation}", generation=generation, observed_at=at, cuts=cuts)


def see_group(built: LakeBuilder, generation: int, position: int, *, minute: int) -> None:
    at = NOON + timedelta(minutes=minute)
    built.position("group", position, group_id="billing", generation=generation, observed_at=at)


def recorded(built: LakeBuilder) -> dict[Any, Committed]:
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"})
    flow, context = config.flow("east->central"), SimpleNamespace(config=config, lake=built.lake)
    return dict(committed_positions(context, flow, recorded=True, unsure={})[flow.name])  # type: ignore[arg-type]


@pytest.mark.law("A")
def test_a_group_has_one_position_whatever_lives_its_topic_had(built: LakeBuilder) -> None:
    see_topic(built, 1)
    see_group(built, 1, 80, minute=1)
    see_topic(built, 2)
    assert recorded(built) == {("billing", SourcePartition("orders", 1, 0)): Committed(80)}, (
        "it has not come to the new one"
    )
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
