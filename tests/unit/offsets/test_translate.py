"""One offset's counterpart, in both directions, from the tables of a folder, without Spark."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Resume
from mirrorlake.model.offset_map import (
    BeforeFirst,
    Exact,
    NoRecord,
    NotYetRepublished,
    OffsetMap,
    OtherGeneration,
    standing_at,
)
from mirrorlake.offsets import external_readers, to_mapped_range, translate_back
from mirrorlake.offsets.translate import _NEAR, translate_offset
from tests.builders import mirror_config, row_of, run
from tests.kit.lake import LakeBuilder

FLOW = mirror_config({"target": "central"}).flows[0]
REMOTE = TopicPartition("east.orders", 0)


def translate(lake: Lake, offset: int, generation: int | None = None) -> Any:
    return translate_offset(lake, FLOW, topic="orders", partition=0, offset=offset, generation=generation)


@pytest.mark.law("A", "E")
def test_law_a_an_offset_is_of_the_newest_life_that_was_republished(built: LakeBuilder, lake: Lake) -> None:
    built.send(range(100), 0).send([*range(100, 150), *range(160, 200)], 100)
    found = partial(translate, lake)
    unseen = found(7), found(165)
    built.observe("orders", topic_id="1")
    assert (found(7), found(165)) == unseen == (Exact(7, REMOTE), Exact(155, REMOTE))
    assert isinstance(found(155), NoRecord)
    built.observe("orders", topic_id="2", generation=2)
    assert found(7) == Exact(7, REMOTE), "the new life has no record on the target yet"
    built.send(range(50), 190, generation=2)
    assert (found(7), found(7, 1), found(7, 2)) == (Exact(197, REMOTE), Exact(7, REMOTE), Exact(197, REMOTE))
    assert isinstance(found(120), OtherGeneration)


@pytest.mark.law("A", "E")
def test_law_e_what_left_the_relay_is_exact_where_it_was_sent_and_explained_where_it_never_will_be(
    built: LakeBuilder, lake: Lake
) -> None:
    built.send([*range(50, 60), *range(62, 100)], 0)
    built.add("removed", removal="a", kind="expired", first_offset=0, last_offset=49, record_count=50)
    ranges = [{"first": offset, "length": 1} for offset in (60, 70, 120)]
    built.add("removed", removal="b", kind="erased", first_offset=60, last_offset=120, ranges=ranges, record_count=3)
    found = partial(translate, lake)
    assert found(7) == BeforeFirst(50, "expired_from_relay"), "the flow began when it had left"
    assert found(70) == Exact(18, REMOTE), "it was sent before it was erased"
    assert (found(60), found(61)) == (NoRecord(10, "erased"), NoRecord(10, None))
    assert (found(120), found(121)) == (NoRecord(None, "erased"), NotYetRepublished(100))


@pytest.mark.law("A", "B")
@pytest.mark.parametrize("targets", [1, 2], ids=["one target partition", "spread by key"])
def test_law_a_a_hole_is_what_all_runs_say_however_far_they_are(built: LakeBuilder, lake: Lake, targets: int) -> None:
    starts = (5, 30, 90, 5_000_000, 5_000_100, 90_000_000)
    rows = [
        row_of(run(first, first + 19, n * 100, [(first + 7, 3)]), target_partition=n % targets)
        for n, first in enumerate(starts)
    ]
    every = OffsetMap([to_mapped_range(SimpleNamespace(**one)) for one in rows])
    # An earlier life had its runs elsewhere.
    built.add("offset_map", *rows).send(range(3, 41), 0, generation=0)
    for offset in (0, *(first + step for first in starts for step in (-1, 0, 7, 9, 10, 19, 20, 400, 2_000_000))):
        assert translate(lake, offset) == every.translate(offset), offset


@pytest.mark.law("A")
def test_law_a_offsets_of_a_file_are_of_the_life_that_the_source_holds_there(
    built: LakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.observe("orders", cuts=[{"partition": 0, "generation": 2, "first_offset": 120}])
    asked: list[SourcePartition] = []

    def resume(_context: Any, _related: Any, readers: Any) -> dict[Any, Resume]:
        asked.extend(source for _, source in readers["east->central"])
        return {}

    monkeypatch.setattr(external_readers, "resume_readers", resume)
    context: Any = SimpleNamespace(lake=built.lake, config=SimpleNamespace(flows=()))
    for offset in (119, 120):
        external_readers.move_positions(context, FLOW, {"orders": {"0": offset}})
    assert [source.generation for source in asked] == [1, 2]


T_FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})
# Other writers of the target have filled what lies between the runs.
STARTS = (10, 25, 30 + 2 * _NEAR, 50 + 5 * _NEAR)


def test_law_b_a_look_back_says_what_all_runs_say(built: LakeBuilder, lake: Lake) -> None:
    runs = [run(n * 10, n * 10 + 9, start, source=SourcePartition("t", 1, 0)) for n, start in enumerate(STARTS)]
    built.add("offset_map", *map(row_of, runs))
    edges = [start + step for start in STARTS for step in (-1, 0, 9, 10)]
    for offset in [0, *edges, _NEAR, 4 * _NEAR, 9 * _NEAR]:
        found = translate_back(lake, T_FLOW, topic="east.t", partition=0, offset=offset)
        assert found == standing_at(runs, offset), offset
    assert translate_back(lake, T_FLOW, topic="east.u", partition=0, offset=1) == standing_at([], 1)
