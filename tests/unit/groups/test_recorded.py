"""Positions of groups as the lake last saw them, for when their cluster is lost."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.groups.committed import committed_positions
from mirrorlake.kafka import Committed
from mirrorlake.lake import METADATA, POSITIONS, Lake, position_row
from mirrorlake.model.flow import SourcePartition
from tests.builders import NOON, mirror_config
from tests.lakes import lake_in


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_in(tmp_path, METADATA, POSITIONS)


def see_topic(lake: Lake, generation: int, cuts: list[dict[str, int]] | None = None) -> None:
    row = {"cluster": "east", "role": "source", "kind": "topic", "topic": "orders", "topic_id": f"x{generation}"}
    at = NOON + timedelta(minutes=generation)
    more = {"generation": generation, "partitions": 1, "configs": {}, "present": True, "observed_at": at, "cuts": cuts}
    lake.append_rows(METADATA, [row | more])


def see_group(lake: Lake, generation: int, position: int, *, minute: int) -> None:
    source, at = SourcePartition("orders", generation, 0), NOON + timedelta(minutes=minute)
    lake.append_rows(POSITIONS, [position_row("east", source, "group", position, at, group="billing")])


def recorded(lake: Lake) -> dict[Any, Committed]:
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"})
    flow, context = config.flow("east->central"), SimpleNamespace(config=config, lake=lake)
    return dict(committed_positions(context, flow, recorded=True, unsure={})[flow.name])  # type: ignore[arg-type]


@pytest.mark.law("A")
def test_a_group_has_one_position_whatever_lives_its_topic_had(lake: Lake) -> None:
    see_topic(lake, 1)
    see_group(lake, 1, 80, minute=1)
    see_topic(lake, 2)
    assert recorded(lake) == {("billing", SourcePartition("orders", 1, 0)): Committed(80)}, (
        "it has not come to the new one"
    )
    see_group(lake, 2, 5, minute=3)
    assert recorded(lake) == {("billing", SourcePartition("orders", 2, 0)): Committed(5)}, (
        "two positions on what feeds one target partition would hold the group back"
    )


@pytest.mark.law("A")
def test_a_position_is_of_the_life_that_the_source_held_there(lake: Lake) -> None:
    see_topic(lake, 1, [{"partition": 0, "generation": 2, "first_offset": 120}])
    # A sample counts by the newest life of the partition, the sync of groups by that at the position.
    see_group(lake, 1, 50, minute=3)
    see_group(lake, 2, 50, minute=4)
    assert recorded(lake) == {("billing", SourcePartition("orders", 1, 0)): Committed(50)}
    see_group(lake, 2, 130, minute=5)
    assert recorded(lake) == {("billing", SourcePartition("orders", 2, 0)): Committed(130)}
