"""Law A where two clusters mirror each other under one name: a simulation of both logs, and what groups are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka import Committed
from mirrorlake.lake import KnownTopic, Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck, Resume
from mirrorlake.model.own_commits import find_last_committed, may_move
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.offsets import OffsetMaps, RelatedFlows, maps, stable_ends
from mirrorlake.offsets.pairs import Copies, Pair, PairPosition, Pairs
from tests.builders import mirror_config
from tests.kit.lake import LakeBuilder
from tests.kit.memory_cluster import MemoryCluster

EDGES = (("east", "west"), ("west", "east"))
Name = tuple[str, int]


@dataclass
class World:
    """One partition on each cluster: the records by origin; None in a log is a marker."""

    logs: dict[str, list[Name | None]] = field(default_factory=lambda: {"east": [], "west": []})
    done: dict[tuple[str, str], int] = field(default_factory=lambda: dict.fromkeys(EDGES, 0))
    sent: dict[tuple[str, str], list[tuple[int, int, int]]] = field(
        default_factory=lambda: {edge: [] for edge in EDGES}
    )
    withheld: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=lambda: {edge: [] for edge in EDGES})
    births: int = 0

    def produce(self, alias: str, count: int) -> None:
        self.logs[alias] += [(alias, self.births + n) for n in range(count)]
        self.births += count

    def mirror(self, edge: tuple[str, str], count: int, *, withholds: bool = False) -> bool:
        """Let a flow read so many offsets and send what is to be sent, or withhold it, in one transaction."""
        source, target = (self.logs[alias] for alias in edge)
        begin, before = self.done[edge], len(target)
        for offset in range(begin, min(begin + count, len(source))):
            record = source[offset]
            if record is None:
                continue
            self.done[edge] = offset + 1
            if record[0] == edge[1]:
                continue
            if withholds:
                self.withheld[edge].append((offset, offset + 1))
                continue
            self.sent[edge].append((offset, len(target), 1))
            target.append(record)
        if len(target) > before:
            target.append(None)
        return self.done[edge] > begin

    def settle(self) -> None:
        while sum(self.mirror(edge, 1000) for edge in EDGES):
            pass

    def read(self, positions: dict[str, int]) -> set[Name]:
        return {r for alias, position in positions.items() for r in self.logs[alias][:position] if r is not None}

    def resume(self, source: str, target: str, positions: dict[str, int]) -> int | None:
        """Ask for a position on the target, and hold it against law A."""
        ways = ((source, target), (target, source))
        forward, back = (Copies(self.sent[way], position=self.done[way], withheld=self.withheld[way]) for way in ways)
        log, read = self.logs[target], self.read(positions)
        found: PairPosition = Pair(forward, back).resume(
            positions[source], read_there=positions.get(target, 0), known_to=len(log)
        )
        if found.position is None:
            return None
        skipped = [r for r in log[: found.position] if r is not None and r not in read]
        assert not skipped, f"law A: {skipped} of {target} {log} are skipped at {found}, read {positions}"
        ends = {s: max((i + 1 for i, r in enumerate(log) if r), default=0) for s, log in self.logs.items()}
        if not self.withheld[ways[1]] and all(done == ends[s] for (s, _), done in self.done.items()):
            again = [r for r in log[found.position :] if r is not None and r in read]
            assert found.again == len(again), f"{found} on {log}, read {positions}"
        return found.position


@st.composite
def worlds(draw: st.DrawFn, *, withholds: bool = False) -> World:
    world = World()
    alias, edge = st.sampled_from(sorted(world.logs)), st.sampled_from(EDGES)
    step = st.one_of(
        st.tuples(st.just("produce"), alias), st.tuples(st.just("mirror"), edge), st.tuples(st.just("marker"), alias)
    )
    for (what, where), count in draw(st.lists(st.tuples(step, st.integers(1, 4)), max_size=30)):
        if what == "produce":
            world.produce(where, count)
        elif what == "mirror":
            world.mirror(where, count, withholds=withholds and draw(st.booleans()))
        else:
            world.logs[where].append(None)
    return world


def positions_in(data: st.DataObject, world: World, source: str) -> dict[str, int]:
    read = {alias: data.draw(st.integers(0, len(log))) for alias, log in world.logs.items()}
    return read if data.draw(st.booleans()) else {source: read[source]}


@pytest.mark.law("A")
@given(st.data())
def test_law_a_a_position_skips_no_record_of_either_cluster(data: st.DataObject) -> None:
    world = data.draw(worlds(withholds=True))
    for source, target in EDGES:
        world.resume(source, target, positions_in(data, world, source))


@pytest.mark.law("A")
@given(st.data())
def test_where_all_is_mirrored_it_is_the_first_unread_record(data: st.DataObject) -> None:
    world = data.draw(worlds())
    world.settle()
    for source, target in EDGES:
        positions, log = positions_in(data, world, source), world.logs[target]
        read, found = world.read(positions), world.resume(source, target, positions)
        unread = [at for at, record in enumerate(log) if record is not None and record not in read]
        last = max((at for at, record in enumerate(log) if record is not None), default=-1)
        if unread:
            assert found is not None
            assert not [r for r in log[found : unread[0]] if r is not None], f"{found} on {log}, read {positions}"
        else:
            assert found == last + 1 or last == -1, f"{found} on {log}, read {positions}"


@pytest.mark.law("A")
@settings(max_examples=60)
@given(st.data())
def test_law_a_over_rounds_nothing_echoes_and_nobody_is_moved_at_home(data: st.DataObject) -> None:
    """Groups read on, move between clusters and stop; both flows put them in step again and again."""
    world = data.draw(worlds())
    held: dict[str, int] = {}
    own_since: dict[str, int | None] = {}
    clock = 0
    ever: set[Name] = set()
    for _ in range(data.draw(st.integers(1, 5))):
        clock += 1
        if data.draw(st.booleans()):
            world.settle()
        home = data.draw(st.sampled_from(sorted(world.logs)))
        begin = held.get(home, 0)
        offset = min(len(world.logs[home]), begin + data.draw(st.integers(0, 6)))
        if home not in held or offset != begin:
            # What the group has read so far: it began here where a position stood that skipped nothing.
            ever |= {r for r in world.logs[home][begin:offset] if r is not None}
            held[home], own_since[home] = offset, clock
        for turn in range(3):
            before = dict(held)
            for source, target in data.draw(st.permutations(EDGES)):
                if source not in held or not may_move(target, own_since).is_free:
                    continue
                own = {alias: o for alias, o in held.items() if own_since[alias] is not None or alias == target}
                position = world.resume(source, target, own)
                assert world.read(own) <= ever, "law A: a position claims more than was ever read"
                if position is not None and (target not in held or held[target] < position):
                    held[target], own_since[target] = position, None
            assert turn < 2 or held == before, "a second pass moves nothing"
            for alias in find_last_committed(own_since):
                assert held[alias] == before.get(alias, held[alias]), "a group is moved where it last committed itself"


@pytest.mark.law("A")
@pytest.mark.parametrize(("is_whole", "expected"), [(True, 6), (False, 0)])
def test_law_a_what_came_before_the_way_back_began_is_not_read(is_whole: bool, expected: int) -> None:
    back = Copies([(2, 2, 2)], position=4, is_whole=is_whole)
    assert Pair(Copies([(0, 4, 2)], position=2), back).resume(4, known_to=6).position == expected


def test_copies_at_the_end_of_the_source_do_not_follow() -> None:
    pair = Pair(Copies([(0, 3, 2)], position=2), Copies([(0, 2, 3)], position=3))
    assert not pair.may_follow(5), "E1 E2 are on the target, W1 W2 W3 came from there"
    assert pair.may_follow(6)


# -- what a flow's groups are told -----------------------------------------------------------------------------------

ORDERS, REMOTE = SourcePartition("orders", 1, 0), TopicPartition("orders", 0)
# east: E1 E2 W1 W2 W3; west: W1 W2 W3 E1 E2. First upstream offset, first downstream offset, records.
SENT = {("east->west", "orders", 0): [(0, 3, 2)], ("west->east", "orders", 0): [(0, 2, 3)]}


def writes_hops(source: str, target: str, **more: Any) -> FlowConfig:
    flow = mirror_config({"source": source, "target": target, "topics": "orders, west.orders", **more}).flows[0]
    return flow.bound_to(TopicPattern(()), adds_hops=True)


def told(
    own: dict[str, int],
    *,
    ends: tuple[str, ...] = ("east", "west", "east"),
    check: PositionCheck | None = None,
    known: dict[TopicPartition, int] | None = None,
    earliest: int = 0,
    is_led: bool = True,
) -> Resume:
    """Ask where a group goes on at west; `own` are the positions that it committed itself, by flow."""
    hops = tuple(writes_hops(*edge, policy="identity") for edge in pairwise(ends))
    topic = {"orders": KnownTopic(name="orders", generation=1, partitions=1)}
    related = RelatedFlows(flows=hops[:1], topics={flow.name: topic for flow in hops}, hops=hops)
    nothing: Any = None
    maps = OffsetMaps(lake=nothing, positions={flow.name: {ORDERS: 5} for flow in hops})
    target: Any = MemoryCluster(orders=(earliest, 5))
    target.topics["orders"].logs[0].has_leader = is_led
    pairs = Pairs(related, maps, target, {REMOTE: 5} if known is None else known)
    pairs.__dict__["_fates"] = {key: (sent, []) for key, sent in SENT.items()}
    readers = {name: {("billing", ORDERS): Committed(offset)} for name, offset in own.items()}
    asked = pairs.find_readers(readers["east->west"], readers)
    checks = {(ORDERS, own["east->west"]): check or PositionCheck()}
    [((reader, partition), found)] = pairs.resume(asked, checks, {}).items()
    assert (reader, partition, found.target, found.source) == ("billing", REMOTE, REMOTE, ORDERS)
    return found


@pytest.mark.law("A")
@pytest.mark.parametrize(
    ("own", "position", "again"),
    [
        ({"east->west": 2}, 0, 2),  # it has read E1 E2, and not W1
        ({"east->west": 5}, 5, 0),
        ({"east->west": 2, "west->east": 3}, 5, 0),  # W1 W2 W3 on west itself
        ({"east->west": 1, "west->east": 3}, 4, 0),
    ],
)
def test_law_a_the_first_record_that_the_group_has_read_nowhere(own: dict[str, int], position: int, again: int) -> None:
    found = told(own)
    assert (found.downstream_offset, found.records_again, found.exact) == (position, again, not again)
    assert ("the logs interleave: west's own record" in found.reason) == bool(again)
    assert told({"east->west": 2}, earliest=1).downstream_offset == 1, "retention removed the record before"


@pytest.mark.law("A")
def test_law_a_nothing_is_said_of_what_is_not_certain() -> None:
    assert told({"east->west": 5}, known={}).downstream_offset is None
    assert "has no leader" in told({"east->west": 5}, is_led=False).reason
    target: Any = MemoryCluster(orders=(0, 5), clicks=(0, 3))
    target.lose_leader("orders")
    assert stable_ends(target, ["orders", "clicks"], [writes_hops("east", "west")]) == {TopicPartition("clicks", 0): 3}
    assert told({"east->west": 5}, known={REMOTE: 4}).downstream_offset == 4, "the maps may lack records past that"
    unsafe = told({"east->west": 5}, check=PositionCheck(is_safe=False, reason="records were never republished"))
    assert (unsafe.downstream_offset, unsafe.reason) == (None, "records were never republished")


@pytest.mark.law("A")
def test_law_a_without_the_source_the_way_back_is_as_the_table_has_it(
    built: LakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, back = writes_hops("east", "west"), writes_hops("west", "east")
    related, away = RelatedFlows(flows=(there,), topics={}, hops=(there, back)), ["east"]
    read_copied = maps._read_copied

    def read(_copied: Any, flows: list[FlowConfig], _context: Any) -> list[maps._LedgerTail]:
        if {*away} & {flow.target for flow in flows}:
            raise ClusterUnreachable("away", alias=away.pop())
        return [maps._LedgerTail(positions={ORDERS: 9}) for _ in flows]

    def then_append(lake: Lake) -> maps.Copied:
        found = read_copied(lake)
        built.send([2, 3], 7, flow=back.name, target_topic="west.orders", ledger_seq=1)
        return found

    monkeypatch.setattr(maps, "_read_ledgers", read)
    monkeypatch.setattr(maps, "_read_copied", then_append)
    built.send([0, 1], 5, flow=back.name, target_topic="west.orders")
    context: Any = SimpleNamespace(lake=built.lake, admin=lambda _: MemoryCluster())
    lost = maps.load_related_maps(context, related, {"east"})
    assert (lost.positions[back.name], lost.copied) == ({ORDERS: 2}, {(back.name, 0): 0}), "past the rows that count"
    assert maps.load_related_maps(context, related).positions == {there.name: {ORDERS: 9}, back.name: {ORDERS: 4}}
    away.append("west")
    with pytest.raises(ClusterUnreachable):
        maps.load_related_maps(context, related)
    assert maps.load_related_maps(context, related).positions[back.name] == {ORDERS: 9}


@pytest.mark.law("A")
def test_law_a_copies_that_come_back_under_another_name_are_read_by_their_own_position() -> None:
    there, back = writes_hops("east", "west", policy="identity"), writes_hops("west", "east")
    nothing: Any = None
    related = RelatedFlows(flows=(there,), topics={}, hops=(there, back))
    pairs = Pairs(related, OffsetMaps(lake=nothing, positions={}), nothing, {})
    orders = {("billing", ORDERS): Committed(2)}
    copies = {("billing", SourcePartition("west.orders", 1, 0)): Committed(1)}
    [found] = pairs.find_readers(orders, {there.name: {**orders, **copies}})
    assert (found.source, found.offset, found.copies_read) == (ORDERS, 2, 1)
    assert pairs.find_readers(orders, {there.name: orders}) == [], "it reads nothing of west's own records"
    pair = Pair(Copies([(0, 3, 2)], position=2), Copies([(0, 0, 3)], position=3), is_one_topic=False)
    assert pair.resume(2, copies_read=1, known_to=5) == PairPosition(1, 2, is_own_first=True)
    assert pair.may_follow(3), "what is on the source is no copy"


def test_what_waits_on_the_source_counts_unless_it_is_a_copy() -> None:
    waiting = PositionCheck(exact=False, again=1, reason="past what was republished")
    copies = told({"east->west": 5}, check=waiting)
    assert (copies.downstream_offset, copies.records_again, copies.exact) == (5, 0, True)
    one_more = told({"east->west": 6}, check=waiting)
    assert (one_more.downstream_offset, one_more.records_again, one_more.exact) == (5, 1, False)
