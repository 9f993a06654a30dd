"""What leaves a relay by its retention: whole files, oldest first, explained before they go, and never what is needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mirrorlake.config.schema import ClusterConfig, FlowConfig, LakeConfig, MaintenanceConfig
from mirrorlake.lake import Lake, RelayLog, TableMaintenance, left_before, removed_from
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.maintenance.results import KeptTable
from mirrorlake.maintenance.retention import replaying
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.timing import Timing
from tests.builders import ORDERS, mirror_config
from tests.kit.deaths import dying
from tests.kit.lake import LANDED_AT, Row, rows
from tests.unit.lake.kit import Relay

FANOUT = Timing().compaction_fanout

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FLOW = mirror_config({"target": "central"}).flows[0]
THREE_DAYS = {"orders": {"age": "3d"}}


class World(Relay):
    """A lake in a folder, without Spark, with a batch of ten offsets a day from `LANDED_AT` on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.today = LANDED_AT

    def land_days(
        self,
        count: int = 1,
        *,
        topic: str = "orders",
        accounted: bool = True,
        fresh: bool = False,
        also: Sequence[Row] = (),
    ) -> None:
        for _ in range(count):
            first, self.today = self.batches * 10, LANDED_AT + self.batches * DAY
            several = [
                row | {"timestamp": self.today, "landed_at": self.today}
                for row in (*also, *rows(topic, 0, *range(first, first + 10)))
            ]
            self.turn(several, uncompressed=fresh)
            if accounted:
                self.account(first + 10, topic)

    def account(self, position: int, topic: str = "orders") -> None:
        self.position("landed", position, topic=topic, observed_at=self.today)

    def keep(
        self,
        *flows: SentUpTo,
        retention: Mapping[str, Any] = THREE_DAYS,
        plan: bool = False,
        now: datetime | None = None,
        **settings: Any,
    ) -> KeptTable:
        clusters = {"east": ClusterConfig(bootstrap_servers="e:1", retention=retention)}
        at = now or self.today + HOUR
        upkeep = LakeUpkeep(self.lake, MaintenanceConfig(**settings), now=lambda: at, clusters=clusters)
        kept = upkeep.relay("east", flows, is_published=False, plan=plan)
        assert kept is not None
        assert kept.why_not == ""
        return kept


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def up_to(position: int | None, **settings: Any) -> SentUpTo:
    flow = FLOW.model_copy(update=settings)
    return SentUpTo(flow=flow, positions=None if position is None else {ORDERS: position} if position else {})


@pytest.mark.law("E")
def test_law_e_whole_files_leave_oldest_first_and_every_offset_is_explained(world: World) -> None:
    world.land_days(6)
    version = world.tables.version(world.path)
    log = RelayLog(world.tables, world.path)
    log.files({})
    planned = world.keep(up_to(60), plan=True)
    assert (planned.expired.records, planned.expired.files, planned.held) == (30, 3, ())
    assert (world.tables.version(world.path), removed_from(world.lake, "east")) == (version, []), "a plan does nothing"
    kept = world.keep(up_to(60))
    assert kept.expired == planned.expired
    assert world.offsets() == [*range(30, 60)]
    [left] = removed_from(world.lake, "east")
    assert (left.kind, left.source, left.first_offset, left.last_offset, left.records) == ("expired", ORDERS, 0, 29, 30)
    assert left.reason == "retention: older than 3 d 0 h"
    assert left.relay_version is not None
    assert DeltaTable(world.path, version=left.relay_version - 1).to_pyarrow_table().num_rows == 60
    assert left_before(world.lake, "east") == {ORDERS: 30}
    assert log.new_files({ORDERS: 60}) == [], "a flow that follows the log has nothing to do"
    assert sorted(file.first_offset for file in RelayLog(world.tables, world.path).files({})) == [30, 40, 50]
    assert world.keep(up_to(60)).expired.records == 0, "twice changes nothing"
    assert len(removed_from(world.lake, "east")) == 1
    world.land_days()
    assert world.offsets() == [*range(30, 70)], "landing goes on"


@pytest.mark.law("E")
def test_law_e_of_a_turn_of_several_topics_only_what_is_past_its_retention_leaves(world: World) -> None:
    clicks, others = SourcePartition("clicks", 1, 2), rows("clicks", 2, *range(3))
    for day in range(4):
        world.land_days(also=[row | {"offset": 3 * day + row["offset"]} for row in others])
    read = {row["offset"]: row for row in world.records("clicks")}
    kept = world.keep(up_to(40), retention={"orders": {"age": "2d"}})
    assert (kept.expired.records, kept.expired.files, kept.held) == (20, 2, ())
    assert world.offsets("orders") == [*range(20, 40)]
    assert {row["offset"]: row for row in world.records("clicks")} == read, "law C: the others are as they were"
    [left] = removed_from(world.lake, "east")
    assert (left.source, left.first_offset, left.last_offset, left.records) == (ORDERS, 0, 19, 20)
    assert world.keep(up_to(40), retention={"orders": {"age": "2d"}}).expired.records == 0
    assert world.keep(up_to(40), retention={"clicks": {"age": "1d"}}).held[0].source == clicks, "nobody accounted for"


def test_only_topics_with_a_retention_lose_records(world: World) -> None:
    world.land_days(6)
    assert world.keep(up_to(60), retention={"clicks.*": {"age": "1h"}}).expired.records == 0
    assert world.keep(up_to(60), retention={"or.*": {"age": "6d"}, ".*": {"age": "1h"}}).expired.records == 0
    assert world.keep(up_to(60), retention={".*": {"age": "1h"}}, now=world.today + DAY).expired.records == 60
    assert world.offsets() == [], "also the newest file of a topic that has fallen silent"


def test_bytes_bound_a_partition_as_kafka_does(world: World) -> None:
    world.land_days(6)
    one = min(file.stat().st_size for file in Path(world.path).glob("*.parquet"))
    # What is left is never smaller than the bound.
    assert world.keep(up_to(60), retention={".*": {"bytes": f"{3 * one - 1} B"}}).expired.files == 3
    assert world.offsets() == [*range(30, 60)]
    world.land_days(3, fresh=True)
    kept = world.keep(up_to(90), retention={".*": {"bytes": f"{3 * one - 1} B"}})
    assert kept.expired.files == 0, "what upkeep will compress does not push out what is kept"


@pytest.mark.law("E")
@pytest.mark.parametrize(
    ("flows", "settings", "left", "held_by", "words"),
    [
        ([up_to(60), up_to(25, name="slow")], {}, 20, "slow", "slow has sent orders-0 up to 25"),
        ([up_to(60), up_to(0, name="new")], {}, 0, "new", "new has sent orders-0 up to 0"),
        ([up_to(None)], {}, 0, "east->central", "central, which holds its ledger, does not answer"),
        ([up_to(60)], {"replay_window": "5d"}, 10, "maintenance.replay_window", "replay window of 5 d 0 h"),
        ([up_to(60)], {"retention": {".*": {"age": "3d", "proven": True}}}, 0, "east->central", "verify has proven"),
    ],
)
def test_law_e_what_somebody_needs_stays_and_it_is_said_who_and_what_to_do(
    world: World, flows: list[SentUpTo], settings: dict[str, Any], left: int, held_by: str, words: str
) -> None:
    world.land_days(6)
    kept = world.keep(*flows, **settings)
    assert (kept.expired.records, world.offsets()[0]) == (left, left)
    [held] = kept.held
    assert (held.held_by, held.source, held.from_offset, held.records) == (held_by, ORDERS, left, 30 - left)
    assert words in held.why
    assert held.remedy


@pytest.mark.law("E")
def test_law_e_what_landing_has_not_accounted_for_stays(world: World) -> None:
    world.land_days(6, accounted=False)
    world.account(15)
    kept = world.keep(up_to(60))
    assert (kept.expired.records, kept.held[0].held_by) == (10, "landing")


@pytest.mark.law("E")
def test_law_e_what_a_replay_reads_stays_until_it_is_done(world: World) -> None:
    world.land_days(6)
    clusters = {"east": ClusterConfig(bootstrap_servers="e:1", retention=THREE_DAYS)}
    needed = {"east": [replaying("replay.march", {ORDERS: (12, 15), SourcePartition("orders", 1, 9): (0, 99)})]}
    at = world.today + HOUR
    upkeep = LakeUpkeep(world.lake, MaintenanceConfig(), now=lambda: at, clusters=clusters, needed=needed)
    kept = upkeep.relay("east", [up_to(60)], is_published=False, plan=False)
    assert kept is not None
    assert (kept.expired.records, kept.held[0].from_offset, kept.held[0].held_by) == (10, 10, "replay.march")
    assert world.keep(up_to(60)).expired.records == 20


def test_a_flow_that_begins_later_or_does_not_carry_the_topic_holds_nothing_back(world: World) -> None:
    world.land_days(6)
    later = FlowConfig(
        name="late", source="east", target="central", topics="orders", start={"timestamp": "2030-01-01T00:00:00Z"}
    )
    other = FlowConfig(name="other", source="east", target="central", topics="clicks")
    flows = [SentUpTo(flow=flow.bound_to(TopicPattern(), adds_hops=False), positions={}) for flow in (later, other)]
    assert world.keep(*flows).expired.records == 30


@pytest.mark.law("D", "E")
def test_law_e_of_lives_of_a_topic_the_older_one_leaves_first(world: World) -> None:
    world.land_days(3)
    world.land("orders", 0, [0, 1], timestamp=LANDED_AT, generation=2)
    world.position("landed", 2, generation=2, observed_at=world.today)
    again = SourcePartition("orders", 2, 0)
    held = SentUpTo(flow=FLOW, positions={ORDERS: 20, again: 2})
    kept = world.keep(held, now=LANDED_AT + 30 * DAY)
    assert kept.expired.records == 20
    assert (kept.held[0].source, kept.held[0].from_offset, kept.held[0].records) == (ORDERS, 20, 12)


@pytest.mark.law("E", "F")
@pytest.mark.parametrize("step", ["announcing", "announced", "confirming"])
def test_law_e_killed_between_two_steps_it_ends_the_same_and_nothing_is_ever_gone_unexplained(
    world: World, step: str
) -> None:
    world.land_days(6)
    with dying(f"remove.{step}"):
        world.keep(up_to(60))
    explained = {
        offset for one in removed_from(world.lake, "east") for offset in range(100) if one.ranges.contains(offset)
    }
    assert {*world.offsets()} | explained >= {*range(60)}
    # Somebody has lengthened the retention meanwhile: what was announced is done, and nothing else.
    world.keep(up_to(60), retention=THREE_DAYS if step == "announcing" else {})
    assert world.offsets() == [*range(30, 60)]
    [left] = removed_from(world.lake, "east")
    assert (left.is_done, left.first_offset, left.last_offset, left.records) == (True, 0, 29, 30)
    assert world.keep(up_to(60)).expired.records == 0


@pytest.mark.law("E", "F")
def test_law_f_a_compaction_landing_and_a_second_upkeep_at_the_same_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land_days(FANOUT + 8)
    replace, others = TableMaintenance.replace, [0]
    ends = threading.Event()

    def land() -> None:
        while not ends.is_set():
            world.land_days()

    def disturbed(table: TableMaintenance, *given: Any, **named: Any) -> bool:
        if not others[0]:
            others[0] = 1
            # Another upkeep compacts files that are about to leave, then takes out the same ones.
            world.keep(up_to(10**9), retention={})
            world.keep(up_to(10**9), retention={"orders": {"age": "20d"}})
        return replace(table, *given, **named)

    monkeypatch.setattr(TableMaintenance, "replace", disturbed)
    today = world.today
    landing = threading.Thread(target=land)
    landing.start()
    try:
        world.keep(up_to(10**9), retention={"orders": {"age": "5d"}}, now=today + HOUR)
    finally:
        ends.set()
        landing.join()
    held = world.offsets()
    assert held == [*range(held[0], world.batches * 10)], "each record once, one suffix"
    assert all(one.is_done for one in removed_from(world.lake, "east"))
    assert left_before(world.lake, "east") == {ORDERS: held[0]}


def test_a_relay_elsewhere_keeps_everything_and_says_so(tmp_path: Path) -> None:
    lake = Lake(None, LakeConfig(root="s3a://bucket/lake"))  # type: ignore[arg-type]
    clusters = {"east": ClusterConfig(bootstrap_servers="e:1", retention=THREE_DAYS)}
    lake.open_maintenance = lambda _: None  # type: ignore[method-assign]
    upkeep = LakeUpkeep(lake, MaintenanceConfig(), now=lambda: LANDED_AT, clusters=clusters)
    kept = upkeep.relay("east", [], is_published=False, plan=True)
    assert kept is not None
    assert "nothing leaves it" in kept.why_not
