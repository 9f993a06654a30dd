"""What stands around a reader's position, from a lake in a folder and from newer ledger records, without Spark."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.offsets import OffsetMaps
from mirrorlake.offsets.neighbours import PositionNeighbours, ReadPast, count_read_again, find_neighbours, find_redriven
from tests.builders import Placed, placed_by_key, row_of
from tests.kit.lake import LakeBuilder, map_row

SEED, FLOW = 20261122, "east->central"
SOURCES, TARGETS, COPIED_TO = 3, 4, 40


@pytest.fixture(scope="module")
def placed() -> Placed:
    return placed_by_key(random.Random(SEED), sources=SOURCES, targets=TARGETS)


@pytest.fixture(scope="module")
def maps(placed: Placed, tmp_path_factory: pytest.TempPathFactory) -> OffsetMaps:
    """A table that holds most runs, some of them twice, and what was appended after it was looked at; the rest from the ledger."""
    rows = [row_of(run, ledger_seq=seq) for seq, run in enumerate(placed.runs)]
    strangers = [row | {"flow": "other->central", "first_downstream": 10_000} for row in rows]
    built = LakeBuilder(tmp_path_factory.mktemp("around")).add("offset_map", *rows, *rows[::5], *strangers)
    return OffsetMaps(
        lake=built.lake,
        positions={},
        copied={(FLOW, 0): COPIED_TO},
        sources={FLOW: "east"},
        newer=tuple(rows[COPIED_TO + 1 :]),
    )


@pytest.mark.law("A")
def test_law_a_what_is_read_and_what_is_not_on_every_target_partition(placed: Placed, maps: OffsetMaps) -> None:
    end = max(offset for _, offset in placed.truth) + 4
    asked = [(SourcePartition("orders", 1, source), at) for source in range(SOURCES) for at in range(end)]
    for (source, at), standing in find_neighbours(maps, FLOW, asked).items():
        mine = {o: place for (s, o), place in placed.truth.items() if s == source.partition}
        assert standing.republished_from == min(mine), f"seed {SEED}: {source}@{at}"
        assert {tp.partition for tp in standing.by_target} == {target for target, _ in mine.values()}
        for tp, found in standing.by_target.items():
            here = {o: p for o, (target, p) in mine.items() if target == tp.partition}
            read = max((p for o, p in here.items() if o < at), default=None)
            unread = min((p for o, p in here.items() if o >= at), default=None)
            assert found == (read, unread), f"law A, seed {SEED}: {source}@{at} in {tp}"


@pytest.mark.law("A")
def test_law_a_of_what_was_sent_again_in_any_order_the_first_unread_record(placed: Placed, maps: OffsetMaps) -> None:
    end = max(offset for _, offset in placed.truth) + 4
    asked = [(SourcePartition("orders", 1, source), at) for source in range(SOURCES) for at in range(0, end, 3)]
    found = find_redriven(maps, FLOW, asked)
    for source, at in asked:
        unread = [place for (s, o), place in placed.truth.items() if s == source.partition and o >= at]
        firsts = {to: min(place for other, place in unread if other == to) for to, _ in unread}
        expected = {TopicPartition("a.orders", to): first for to, first in firsts.items()}
        assert found.get((source, at), {}) == expected, f"law A, seed {SEED}: {source}@{at}"
    rows = map_row([20, 21], 0, flow="again"), map_row([10, 11], 2, flow="again")
    again = replace(maps, copied={}, sources={"again": "east"}, newer=rows)
    [found_at] = find_redriven(again, "again", [(SourcePartition("orders", 1, 0), 11)]).values()
    assert [*found_at.values()] == [0], "two redrives, the later record first"


def test_how_many_records_are_read_again(placed: Placed, maps: OffsetMaps) -> None:
    rng, points = random.Random(SEED + 1), set()
    for _ in range(200):
        (source, offset), (target, place) = rng.choice(sorted(placed.truth.items()))
        to = TopicPartition("a.orders", target), place - rng.randint(0, 30)
        points.add(ReadPast(SourcePartition("orders", 1, source), offset + rng.randint(0, 30), *to))
    found = count_read_again(maps, FLOW, points)
    for one in points:
        ways = (one.source.partition, one.target.partition)
        expected = sum(
            (s, t) == ways and o < one.offset and p >= one.position for (s, o), (t, p) in placed.truth.items()
        )
        assert found.get(one, 0) == expected, f"seed {SEED}: {one}"


def test_a_partition_that_nothing_is_known_of(maps: OffsetMaps) -> None:
    one = SourcePartition("clicks", 1, 0), 5
    assert find_neighbours(maps, FLOW, [one]) == {one: PositionNeighbours()}
    assert find_neighbours(maps, FLOW, []) == {}


@pytest.mark.law("A")
def test_law_a_runs_into_a_topic_that_is_gone_do_not_stand(placed: Placed, maps: OffsetMaps) -> None:
    gone = replace(maps, current="NOT (flow = 'east->central' AND target_topic = 'a.orders' AND target_partition = 0)")
    one = SourcePartition("orders", 1, 1), 20
    assert TopicPartition("a.orders", 0) in find_neighbours(maps, FLOW, [one])[one].by_target
    assert TopicPartition("a.orders", 0) not in find_neighbours(gone, FLOW, [one])[one].by_target, (
        "law A: a position in a topic that is gone"
    )
