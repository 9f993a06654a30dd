"""What a follower of the relay's log sends, and when it ends; the relay is real, the lane's producer is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.kafka.lane import Batch, LaneSpec
from mirrorlake.lake import RelayFile, RelayLog
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import Claim
from mirrorlake.republish import follower
from mirrorlake.republish.follower import FollowerSpec, read_results, run_follower
from mirrorlake.republish.lane_tasks import LaneAssignment
from mirrorlake.republish.spark_feeder import backfill_batches
from tests.kit.lake import rows
from tests.unit.lake.kit import Relay

TOPIC, LANES = "orders", 2
PARTITIONS = [SourcePartition(TOPIC, 1, number) for number in range(4)]
Sent = list[tuple[int, int]]


class Producer:
    """A lane's sender that notes each offset as (partition, offset), a chunk a batch; `after` is called with each chunk."""

    def __init__(self, sent: Sent, after: Callable[[], object]) -> None:
        self.positions: dict[SourcePartition, int] = {}
        self.seq = -1
        self._sent, self._after = sent, after

    def send(self, batches: Iterable[Batch], _: object) -> Iterator[Any]:
        for each in batches:
            offsets = each.after(self.positions.get(each.source)).offsets.tolist()
            self._sent += [(each.source.partition, offset) for offset in offsets]
            self.positions[each.source], self.seq = offsets[-1] + 1, self.seq + 1
            self._after()
            yield SimpleNamespace(seq=self.seq)


class World:
    """A relay, a plan of it, and a follower with both lanes; `turns` are done one after each look for new commits."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.relay, self.sent, self.chunks = Relay(folder), Sent(), 0
        self.stops_after, self.turns = 10**9, list[Callable[[], object]]()
        self.producers = {lane: Producer(self.sent, self._count) for lane in range(LANES)}
        monkeypatch.setattr(follower, "cached_sender", lambda task: self.producers[task.claim.lane])

    def _count(self) -> None:
        self.chunks += 1

    def _is_running(self) -> bool:
        if self.chunks >= self.stops_after:
            return False
        if self.turns:
            self.turns.pop(0)()
            return True
        return self.ends

    def follow(self, *, ends: bool, ready: Iterable[SourcePartition] = PARTITIONS, ignored: str = "") -> list[Any]:
        self.ends = ends
        log = RelayLog(self.relay.tables, self.relay.path)
        planned = log.files({})
        work = []
        for lane in range(LANES):
            mine = {s for s in ready if lane_of(s.topic, s.partition, lanes=LANES) == lane}
            work.append(
                LaneAssignment(
                    spec=LaneSpec(claim=Claim(flow="f", lanes=LANES, epoch=1, lane=lane), target="central"),
                    files=tuple(file for file in planned if file.source in mine),
                    targets={source: TopicPartition("east.orders", source.partition) for source in mine},
                )
            )
        run_marker: Any = SimpleNamespace(exists=self._is_running)
        one = FollowerSpec(
            lanes=tuple(work),
            relay=self.relay.path,
            version=log.version,
            ends=ends,
            ignored=frozenset({ignored}),
            run_marker=run_marker,
            poll_interval_s=0.0,
        )
        return list(run_follower(one))

    def land(self, *offsets: int) -> None:
        self.relay.turn(*(rows(TOPIC, source.partition, *offsets) for source in PARTITIONS))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def in_order(sent: Sent) -> dict[int, list[int]]:
    return {number: [offset for at, offset in sent if at == number] for number in range(4)}


@pytest.mark.law("D", "E")
def test_law_d_what_was_planned_comes_before_what_is_landed_meanwhile_and_nothing_is_left_out(world: World) -> None:
    world.land(0, 1, 2)
    world.land(3, 4)
    # While the backlog is sent, and after it.
    world.turns = [lambda: world.land(5), lambda: None, lambda: world.land(6, 7), *[lambda: None] * 40]
    answers = world.follow(ends=False)
    assert in_order(world.sent) == {number: list(range(8)) for number in range(4)}
    assert read_results(answers) == (set(), {lane: one.seq for lane, one in world.producers.items()})


def test_a_follower_with_an_end_sends_the_plan_and_nothing_that_comes_later(world: World) -> None:
    world.land(0, 1)
    world.turns = [lambda: world.land(2)]
    answers = world.follow(ends=True)
    assert in_order(world.sent) == {number: [0, 1] for number in range(4)}
    assert read_results(answers) == (set(), {lane: one.seq for lane, one in world.producers.items()})


def test_a_stop_is_heard_after_the_chunk_under_way_and_lanes_take_turns(world: World) -> None:
    for number in range(5):
        world.land(number)
    world.stops_after = 4
    world.follow(ends=True)
    assert world.chunks == 4
    assert [one.seq for one in world.producers.values()] == [1, 1]


def test_a_partition_that_nobody_made_ready_ends_it_and_a_topic_that_the_flow_leaves_out_does_not(world: World) -> None:
    world.turns = [
        lambda: world.relay.turn(rows("other", 0, 1)),
        lambda: world.land(0),
        lambda: pytest.fail("it goes on"),
    ]
    answers = world.follow(ends=False, ready=PARTITIONS[:3], ignored="other")
    assert read_results(answers)[0] == {PARTITIONS[3]}
    assert world.sent == [], "what was landed with it is planned again"


@pytest.mark.law("D", "E")
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1, max_size=6), st.integers(1, 60))
def test_law_d_and_e_parts_hold_each_offset_once_and_in_order(due: list[tuple[int, int]], records: int) -> None:
    files = [
        RelayFile(SourcePartition("t", 1, number), first, first + length, length + 1, "")
        for number, (first, length) in enumerate(due)
    ]
    held: dict[SourcePartition, list[int]] = {file.source: [] for file in files}
    for part in backfill_batches(files, records):
        for file in part:
            held[file.source] += range(file.first_offset, file.last_offset + 1)
    assert held == {file.source: list(range(file.first_offset, file.last_offset + 1)) for file in files}
    assert list(backfill_batches([], records)) == []
