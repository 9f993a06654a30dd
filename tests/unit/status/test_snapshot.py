"""What a look finds: how long records wait at each position, and what a sampler writes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.context import Context
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.lake import Lake, LastSamples, PositionKey, PositionState, SubjectSample, landed_positions
from mirrorlake.lake.landing_state import landed_and_republished
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.offsets import OffsetMaps
from mirrorlake.republish import find_unsent
from mirrorlake.status.ages import Ages, TargetCommit, WaitPosition, find_unread
from mirrorlake.status.sources import SourceReader
from tests.builders import NOON, ORDERS
from tests.kit.lake import FLOW, LakeBuilder, at, landed

# -- since when records wait ---------------------------------------------------------------------------------------------


def place_key(flow: str | None) -> PositionKey:
    return PositionKey("east", flow, "orders", 1, 0, "republished" if flow else "reached", None)


def source(unlanded: Mapping[int, datetime | None]) -> Any:
    """Return readers of a source that holds records, or only markers, from some offsets on."""

    def read(_topic: str, _partition: int, offset: int) -> Any:
        since = unlanded[offset]
        return iter(() if since is None else [SimpleNamespace(timestamp_ms=int(since.timestamp() * 1000))])

    return lambda _: nullcontext(SimpleNamespace(read=read))


def away(alias: str) -> Any:
    raise ClusterUnreachable(f"{alias} is away", consequence="", remedy="", alias=alias)


def expected(records: Iterable[int], kept_back: set[int], position: int, reached: int, end: int) -> Any:
    """Return what waits as the law words it: the record's offset, None of none, or "next" where it is not landed."""
    if position >= end:
        return None
    waiting = [offset for offset in records if position <= offset < min(end, reached) and offset not in kept_back]
    if waiting:
        return min(waiting)
    return None if max(position, reached) >= end else "next"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    offsets=st.sets(st.integers(0, 12)),
    kept_back=st.sets(st.integers(0, 12)),
    positions=st.tuples(st.integers(0, 14), st.integers(0, 14)),
    unlanded=st.integers(0, 3),
)
@pytest.mark.law("E")
def test_law_e_a_time_lag_is_the_age_of_the_oldest_record_that_waits(
    tmp_path_factory: pytest.TempPathFactory,
    offsets: set[int],
    kept_back: set[int],
    positions: tuple[int, int],
    unlanded: int,
) -> None:
    built = LakeBuilder(tmp_path_factory.mktemp("ages"))
    built.turn(landed({offset: at(offset) for offset in sorted(offsets)}, topic="orders"))
    if kept_back:
        built.withhold(*sorted(kept_back))
    # Another flow's records wait in that flow only.
    built.withhold(*range(13), flow="east->west")
    reached = max(offsets, default=-1) + 1
    end = reached + unlanded
    asked = {
        place_key(None): WaitPosition(None, ORDERS, positions[0]),
        place_key(FLOW): WaitPosition(FLOW, ORDERS, positions[1]),
    }
    following = {offset: at(1_000) for offset in range(20)}
    found = Ages(built.lake, "east").find(
        asked, landed={ORDERS: reached}, ends={ORDERS: end}, readers=source(following)
    )
    for (flow, kept), position in zip(((None, set[int]()), (FLOW, kept_back)), positions, strict=True):
        oldest = expected(offsets, kept, position, reached, end)
        since = at(1_000) if oldest == "next" else None if oldest is None else at(oldest)
        assert found[place_key(flow)] == since, (flow, oldest)


def test_the_oldest_record_that_waits_is_found_in_a_backlog_past_a_hole_and_on_the_source(
    built: LakeBuilder, lake: Lake
) -> None:
    built.turn(landed({offset: at(offset) for offset in (0, 1, 2, 3, 5_000)}, topic="orders")).withhold(1)
    ages, key = Ages(lake, "east"), place_key(FLOW)

    def since(position: int, end: int = 6_000, reached: int = 6_000, readers: Any = away) -> Any:
        asked = {key: WaitPosition(FLOW, ORDERS, position)}
        found = ages.find(asked, landed={ORDERS: reached}, ends={ORDERS: end}, readers=readers)
        return found.get(key, "unknown")

    assert since(1) == at(2), "near by, in a backlog"
    assert since(4) == at(5_000), "past a long hole"
    assert since(5_001) is None, "markers do not wait"
    assert since(6_000, 6_000) is None
    assert since(5_001, 6_002) == "unknown", "the source does not answer"
    assert since(5_001, 6_002, readers=source({6_000: at(9)})) == at(9)
    assert since(5_001, 6_002, readers=source({6_000: None})) is None, "nothing but markers follows"
    assert since(6_001, 6_002, readers=source({6_001: at(7)})) == at(7), "a group reads on what is not landed"


# -- groups on a target --------------------------------------------------------------------------------------------------


def test_law_a_a_group_on_the_target_has_read_up_to_its_oldest_unread_record_on_the_source(
    built: LakeBuilder, lake: Lake
) -> None:
    # 3 is a hole; a second source partition feeds the same target partition.
    built.send([0, 1, 2, 4, 5], 100).send([7, 8], 110).send([0, 1], 105, source_partition=1, target_partition=0)
    other = SourcePartition("orders", 1, 1)
    maps = OffsetMaps(lake=lake, positions={}, copied={(FLOW, 0): 0}, sources={FLOW: "east"})
    for position, mine, others in (
        (100, 0, 0),
        (102, 2, 0),
        (103, 4, 0),
        (105, 7, 0),
        (106, 7, 1),
        (111, 8, 9),
        (112, 20, 9),
    ):
        commit = TargetCommit(FLOW, "audit", TopicPartition("east.orders", 0), position)
        found = find_unread(maps, [commit], {FLOW: {ORDERS: 20, other: 9}})[commit]
        assert {key.partition: offset for key, offset in found.items()} == {0: mine, 1: others}, position
        assert {(key.kind, key.group_id, key.flow) for key in found} == {("consumed", "audit", FLOW)}
    assert find_unread(maps, [], {}) == {}


# -- what is not sent ----------------------------------------------------------------------------------------------------


class World:
    """A relay of a source that does not answer, and a flow from it."""

    def __init__(self, built: LakeBuilder) -> None:
        self.built, mirror = built.observe("orders"), built.mirror(topics="orders")
        self.context: Context = mirror._context
        self.lake, [self.flow] = mirror.lake, mirror.config.flows
        self.reader = SourceReader(self.context, "east")

    def lag(self, sent: int, reader: SourceReader | None = None) -> int:
        """Return the offsets that a look says the flow has to send."""
        reader = reader or self.reader
        reader.read_landed()
        known: Any = SimpleNamespace(positions={ORDERS: sent})
        found = reader.flow_positions([self.flow], {self.flow.name: known})
        [reached], [republished] = found["relay", "east"].values(), found["flow", self.flow.name].values()
        return reached - republished

    def unsent(self, sent: int) -> Mapping[SourcePartition, int]:
        return find_unsent(self.lake, self.flow, {ORDERS: sent}, landed_positions(self.lake, "east").reached)


@pytest.fixture
def world(built: LakeBuilder) -> World:
    return World(built)


@pytest.mark.parametrize("erased", [True, False], ids=["erased", "never landed"])
def test_a_marker_before_records_that_will_never_be_sent_is_no_lag_that_never_ends(world: World, erased: bool) -> None:
    # 8 is the marker of a transaction, 9 to 11 are not in the relay any more, or never were.
    world.built.land("orders", 0, range(8)).position("landed", 12)
    if erased:
        world.built.add("removed", removal="r", kind="erased", first_offset=9, last_offset=11, record_count=3)
    assert (world.unsent(8), world.lag(8)) == ({}, 0)
    assert (world.unsent(6), world.lag(6)) == ({ORDERS: 6}, 6)
    world.built.land("orders", 0, [20, 21])
    assert (world.unsent(8), world.lag(8, SourceReader(world.context, "east"))) == ({ORDERS: 8}, 2)


# -- what is written -----------------------------------------------------------------------------------------------------


def end_key(partition: int) -> PositionKey:
    return PositionKey("east", None, "orders", 1, partition, "last_stable", None)


standing = st.tuples(
    st.integers(0, 3), st.sampled_from([PositionState(), PositionState(False), PositionState(True, NOON, "OK")])
)
seen = st.dictionaries(st.integers(0, 4).map(end_key), standing)


@given(st.lists(seen, min_size=1, max_size=8))
def test_what_was_written_tells_every_look(looks: list[dict[PositionKey, tuple[int, PositionState]]]) -> None:
    remembered, table = LastSamples(), dict[PositionKey, tuple[int | None, PositionState]]()
    for number, look in enumerate(looks):
        at = NOON + timedelta(hours=number)
        positions, findings = ({key: of[place] for key, of in look.items()} for place in (0, 1))
        found = SubjectSample(subject="cluster", name="east", positions=positions, findings=findings)  # type: ignore[arg-type]
        [change] = remembered.choose_rows([found], at, complete_every=timedelta(hours=3))
        remembered.record(change, at)
        assert change.complete == (number % 3 == 0)
        written = {key: (offset, change.findings.get(key, PositionState())) for key, offset in change.rows.items()}
        if change.complete:
            table = {}
        else:
            assert all(table.get(key) != of for key, of in written.items()), "only what has changed"
            moved = [key for key, (offset, _) in written.items() if table.get(key, (None,))[0] != offset]
            assert change.changed == len(moved), "what has only another finding did not move"
        table |= written
        assert {key: of for key, of in table.items() if of[0] is not None} == look
        assert remembered.standings == {change.key: look}


@pytest.mark.parametrize(
    ("holds", "seen_to", "end", "sent", "expected"),
    [
        (None, 0, 0, 0, (0, 0)),
        (None, 0, 9, 0, (0, 0)),
        # Markers at the end are read, not landed: they are passed.
        (7, 9, 9, 7, (9, 9)),
        (7, 9, 9, 6, (9, 6)),
        # The checkpoint location is of another life of the topic.
        (2, 90, 5, 2, (5, 5)),
        # The source lost what the relay holds.
        (7, 7, 3, 7, (7, 7)),
        # Nothing but markers was ever there: nothing was sent, either.
        (None, 3, 3, 0, (3, 0)),
    ],
)
def test_how_far_a_partition_is_landed_and_republished(
    holds: int | None, seen_to: int, end: int, sent: int, expected: tuple[int, int]
) -> None:
    assert landed_and_republished(holds=holds, seen=seen_to, end=end, sent=sent) == expected
