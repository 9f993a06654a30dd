"""How a lander starts: what it goes on from, and what it writes down of what it steps over; a relay in a folder, no broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import ClusterUnreachable, SourceGap
from mirrorlake.lake import KnownTopic, LandedPositions, LandingLog, ReadProgress
from mirrorlake.landing import source_state, start
from mirrorlake.landing.context import LandingContext
from mirrorlake.landing.settings import LandSettings
from mirrorlake.landing.source_state import SourceState
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap, LogTruncation
from tests.builders import NOON, mirror_config
from tests.kit.lake import LakeBuilder, rows
from tests.kit.memory_cluster import MemoryCluster
from tests.unit.lake.kit import written

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)
GAP = "SELECT topic, generation, kind, first_offset, last_offset FROM {gaps} ORDER BY ALL"


class World:
    """A lake in a folder and a source, from which one lander after another lands."""

    def __init__(self, path: Path, source: MemoryCluster, *flows: dict[str, Any]) -> None:
        self.source = source
        self.flows = mirror_config(*flows or [{"topics": ".*"}]).flows
        self.lake = LakeBuilder(path).lake
        self.landed = 0

    def lander(self, *, on_gap: str = "halt") -> Any:
        settings = LandSettings(
            alias="east", flows=self.flows, subscribe_pattern="", kafka_options={}, reader_options={}, on_gap=on_gap
        )
        admin: Any = self.source
        return LandingContext(self.lake, admin, settings, now=lambda: NOON)

    def started(self, *, on_gap: str = "halt", once: bool = False) -> tuple[Any, Any]:
        """Start a lander; return it, and the offsets that it begins at."""
        lander = self.lander(on_gap=on_gap)
        return lander, lander.prepare(once=once, rebuild=False, is_live=True)

    def land(
        self, lander: Any, start: dict[TopicPartition, int], read: dict[TopicPartition, tuple[list[int], int]]
    ) -> None:
        """Do a turn of a task: land offsets, and read up to an offset."""
        self.landed += 1
        at = NOON + timedelta(seconds=self.landed)
        seat, progress = lander.writer.relay_claim(), ReadProgress(lander.read_to | lander.key_by_source(start))
        progress.read(
            lander.key_by_source({tp: end for tp, (_, end) in read.items()}),
            lander.key_by_source({tp: offsets[-1] + 1 for tp, (offsets, _) in read.items() if offsets}),
        )
        read_to, is_whole = progress.take()
        records = [
            row | {"landed_at": at, "generation": lander.current[tp].generation}
            for tp, (offsets, _) in read.items()
            for row in rows(tp.topic, tp.partition, *offsets)
        ]
        LandingLog(seat).append(written(seat.path, records), 1, at, read_to, is_whole=is_whole)

    def account(self, lander: Any) -> None:
        """Account for the only turn of a lander, as it does when its time has come."""
        lander.batches, lander.landed_until = 1, NOON + timedelta(seconds=self.landed)
        lander.account_for_landed()

    def gaps(self) -> list[tuple[Any, ...]]:
        return [tuple(vars(row).values()) for row in self.lake.query(GAP)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two topics, of which five records each are landed; the last offset of clicks is the marker of a transaction."""
    found = World(tmp_path, MemoryCluster(orders=(0, 5), clicks=(0, 6)))
    lander, start = found.started()
    assert start == {ORDERS: 0, CLICKS: 0}
    found.land(lander, start, {ORDERS: ([0, 1, 2, 3, 4], 5), CLICKS: ([0, 1, 2, 3, 4], 6)})
    found.account(lander)
    return found


@pytest.mark.law("E")
def test_law_e_the_end_of_a_life_is_explained_though_the_start_that_found_it_was_refused(world: World) -> None:
    world.source.fill("orders", 0, 3, anew=True)
    world.source.fill("clicks", 9, 12)
    with pytest.raises(SourceGap, match=r"clicks-0 6\.\.8"):
        world.started()
    _, start = world.started(on_gap="record")
    assert start == {ORDERS: 0, CLICKS: 9}
    assert ("orders", 1, "recreated", 5, -1) in world.gaps(), "law E: nothing tells where the life before ended"


@pytest.mark.law("E")
def test_law_e_markers_that_left_the_source_are_not_lost_where_another_topic_was_created_again(world: World) -> None:
    world.source.fill("orders", 0, 3, anew=True)
    world.source.fill("clicks", 6, 6)
    _, start = world.started()
    assert start == {ORDERS: 0, CLICKS: 6}


@pytest.mark.law("E", "F")
def test_law_f_a_lander_that_ended_after_its_claim_leaves_what_was_read_before(world: World) -> None:
    world.source.fill("clicks", 6, 6)
    for _ in range(2):
        assert world.started()[1] == {ORDERS: 5, CLICKS: 6}, "the marker counts as lost"
    # Of another life, an offset would step over records of this one.
    world.source.fill("clicks", 0, 9, anew=True)
    for _ in range(2):
        assert world.started()[1] == {ORDERS: 5, CLICKS: 0}


@pytest.mark.law("F")
def test_law_f_a_lander_that_lands_while_another_one_looks_has_lost_no_checkpoint_location(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, coming = start.landed_positions, [([5], 6), ([6, 7], 8)]

    def read_late(*asked: Any) -> LandedPositions:
        if coming:
            # The number was looked up: the other one claims its own, and lands.
            offsets, end = coming.pop(0)
            monkeypatch.setattr(start, "landed_positions", read)
            other, begin = world.started()
            world.land(other, begin, {ORDERS: (offsets, end)})
            monkeypatch.setattr(start, "landed_positions", read_late)
        return read(*asked)

    world.source.fill("orders", 0, 8)
    monkeypatch.setattr(start, "landed_positions", read_late)
    assert world.started()[1] == {ORDERS: 8, CLICKS: 6}


@pytest.mark.law("E")
def test_law_e_what_left_a_new_life_before_it_was_landed_is_no_silent_loss(world: World) -> None:
    world.source.fill("orders", 3, 7, anew=True)
    with pytest.raises(SourceGap):
        world.started()
    _, start = world.started(on_gap="record")
    assert start == {ORDERS: 3, CLICKS: 6}
    assert ("orders", 2, "expired", 0, 2) in world.gaps()


@pytest.mark.law("E", "F")
def test_law_e_what_a_lander_left_without_an_account_is_accounted_for_though_nothing_comes(world: World) -> None:
    lander, start = world.started()
    world.land(lander, start, {ORDERS: ([5, 8], 9)})
    world.source.fill("orders", 0, 9)
    # It died here.
    heir, start = world.started(once=True)
    assert not heir.is_drained, "its account is still to be made"
    heir.account_for_landed()
    assert ("orders", 1, "transactional", 5, 8) in world.gaps()
    before = world.gaps()
    next_one, start = world.started(once=True)
    next_one.account_for_landed()
    assert (start, next_one.is_drained, world.gaps()) == (None, True, before)


@pytest.mark.law("E")
def test_law_e_what_the_brokers_cleaner_may_have_taken_is_no_transactions(world: World) -> None:
    world.source.defaults["cleanup.policy"] = "compact"
    lander, start = world.started()
    world.land(lander, start, {ORDERS: ([5, 8], 9)})
    world.account(lander)
    assert ("orders", 1, "compacted", 5, 8) in world.gaps(), "law E: a topic without its own policy has the brokers'"


@pytest.mark.law("E")
def test_law_e_the_first_topic_of_a_source_that_was_empty_is_landed_from_its_beginning(tmp_path: Path) -> None:
    world = World(tmp_path, MemoryCluster(), {"topics": ".*", "start": "latest"})
    lander, start = world.started()
    assert start == {}
    world.source.fill("orders", 0, 3)
    assert lander.prepare(once=False, rebuild=False, is_live=True) == {ORDERS: 0}


def test_a_topic_begins_where_the_flows_want_it_that_take_it(tmp_path: Path) -> None:
    flows: list[dict[str, Any]] = [
        {"name": "all", "topics": "orders"},
        {"name": "new", "topics": "clicks, prices", "start": "latest", "policy": "identity"},
        {"name": "since", "topics": "prices", "start": {"timestamp": "1970-01-01T00:00:04Z"}},
    ]
    world = World(tmp_path, MemoryCluster(orders=(0, 9), clicks=(0, 9), prices=(0, 9)), *flows)
    _, start = world.started()
    assert start == {ORDERS: 0, CLICKS: 9, TopicPartition("prices", 0): 4}


@pytest.mark.law("E")
def test_law_e_a_query_of_sparks_needs_a_leader_of_each_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "election_timeout_s=0")
    world.source.lose_leader("clicks")
    with pytest.raises(ClusterUnreachable, match=r"cluster east: no leader for clicks-0"):
        world.lander().prepare(once=True, rebuild=False, is_live=False)


@pytest.mark.law("E")
def test_law_e_a_record_that_the_brokers_cleaner_may_have_taken_is_no_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []

    def find(*_: Any, default_cleanup: str) -> dict[str, Any]:
        heard.append(KnownTopic(name="orders").may_compact(default_cleanup))
        return {}

    monkeypatch.setattr(source_state, "find_truncations", find)
    world.source.elect("orders", 0)
    world.source.defaults["cleanup.policy"] = "compact,delete"
    world.started()
    assert heard[0], "law E: a topic without a policy of its own has the brokers'"
    assert not KnownTopic(name="orders", configs={"cleanup.policy": "delete"}).may_compact("compact")


OLD, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
SOURCES = {OLD: SourcePartition("orders", 1, 0), NEW: SourcePartition("orders", 1, 1)}
LOOK = SourceState(
    current=SOURCES,
    positions={OLD: 7},
    log_start_offsets={OLD: 3, NEW: 0},
    high_watermarks={OLD: 9, NEW: 0},
    expired_gaps=[],
    truncations={},
    truncated_gaps=[],
    leader_epochs={},
)


def test_a_checkpoint_location_goes_on_where_nothing_is_stepped_over() -> None:
    assert LOOK.can_resume_from({OLD: 7, NEW: 0})
    assert LOOK.can_resume_from({OLD: 7}), "all of a new partition is read"
    assert not LOOK.can_resume_from({NEW: 0}), "the first records of a partition that nobody planned are gone"
    assert not LOOK.can_resume_from({OLD: 7, TopicPartition("gone", 0): 1})
    gap = Gap(source=SOURCES[OLD], first_offset=1, last_offset=2, missing=2, kind="expired")
    assert not replace(LOOK, expired_gaps=[gap]).can_resume_from({OLD: 7})
    assert not replace(
        LOOK, truncations={"orders": [LogTruncation(partition=0, generation=2, first_offset=5)]}
    ).can_resume_from({OLD: 7})
