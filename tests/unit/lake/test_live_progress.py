"""Where a long-lived lander reads, in the files of a checkpoint location."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import (
    Lake,
    LiveProgress,
    drop_old_locations,
    kafka_positions,
    land_checkpoint_path,
    read_checkpoint_location,
)
from mirrorlake.model.flow import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.law("F")
def test_law_f_a_planned_batch_counts_as_read_only_when_it_is_done(tmp_path: Path) -> None:
    # Any relay makes the lake one that needs no Spark.
    (tmp_path / "relay" / "east" / "_delta_log").mkdir(parents=True)
    (tmp_path / "relay" / "east" / "_delta_log" / f"{0:020}.json").touch()
    lake, path = (
        Lake(lambda: pytest.fail("Spark is not needed"), LakeConfig(root=str(tmp_path))),
        str(tmp_path / "land"),
    )
    assert not read_checkpoint_location(lake, path).has_progress
    progress = LiveProgress(path, {A: 3, B: 0})
    for batch, moved in enumerate(({}, {B: 5}, {A: 4}, {B: 9})):
        progress.plan(batch, moved)
        if batch < 3:
            progress.done(batch)
    found = read_checkpoint_location(lake, path)
    assert found.is_live
    assert (found.last_committed, found.last_planned) == (2, 3)
    assert kafka_positions(found.committed) == {A: 4, B: 5}
    assert kafka_positions(found.planned) == {A: 4, B: 9}
    assert len(list((tmp_path / "land" / "offsets").iterdir())) == 3, "older batches are removed"


def test_locations_of_landers_long_ago_are_deleted_and_the_newest_stay(tmp_path: Path) -> None:
    lake = Lake(lambda: pytest.fail("Spark is not needed"), LakeConfig(root=str(tmp_path)))
    for number in range(1, 31):
        progress = LiveProgress(land_checkpoint_path(lake, "east", number), {})
        progress.plan(0, {})
    drop_old_locations(lake, "east", 29)
    left = Path(land_checkpoint_path(lake, "east", 30)).parent
    assert sorted(int(each.name) for each in left.iterdir()) == list(range(10, 29)), "also those of a relay put back"
