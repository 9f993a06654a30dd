"""Law A where clusters mirror each other under one name: a simulation of a pair, and of groups in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.model.interleaved import CopiedSpans, Interleaved, ResumePoint
from mirrorlake.model.loops.routes import TopicPlace, ways_from
from mirrorlake.model.own_commits import CommittedPosition, find_last_committed, may_move

TOPIC = "orders"
PAIR = (("east", "west"), ("west", "east"))
Name = tuple[str, int]


@dataclass(frozen=True)
class Flow:
    source: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def carries(self, topic: str) -> bool:
        return topic == TOPIC

    def remote_topic(self, topic: str) -> str:
        return topic


@dataclass
class World:
    """One partition on each cluster; None in a log is a marker."""

    edges: Sequence[tuple[str, str]]
    logs: dict[str, list[Name | None]] = field(default_factory=dict)
    done: dict[tuple[str, str], int] = field(default_factory=dict)
    stretches: dict[tuple[str, str], list[tuple[int, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logs = {alias: [] for edge in self.edges for alias in edge}
        self.done = dict.fromkeys(self.edges, 0)
        self.stretches = {edge: [] for edge in self.edges}
        self.flows = [Flow(*edge) for edge in self.edges]
        self.ways = {alias: ways_from(TopicPlace(alias, TOPIC), self.flows) for alias in self.logs}
        self.births = 0

    def produce(self, alias: str, count: int) -> None:
        for _ in range(count):
            self.logs[alias].append((alias, self.births))
            self.births += 1

    def mirror(self, edge: tuple[str, str], count: int) -> bool:
        """Let a flow look at so many offsets and send what is to be sent, in one transaction."""
        source, target = (self.logs[alias] for alias in edge)
        begin, places = self.done[edge], list[int]()
        for offset in range(begin, min(begin + count, len(source))):
            record = source[offset]
            if record is None:
                continue
            self.done[edge] = offset + 1
            if record not in target:
                self.stretches[edge].append((offset, len(target), 1))
                places.append(len(target))
                target.append(record)
        if places:
            target.append(None)
        return self.done[edge] > begin

    def settle(self) -> None:
        while sum(self.mirror(edge, 1000) for edge in self.edges):
            pass

    def maps(self) -> Interleaved:
        carried = {
            (TopicPlace(source, TOPIC), TopicPlace(target, TOPIC)): CopiedSpans(
                self.stretches[source, target], position=self.done[source, target]
            )
            for source, target in self.edges
        }
        ways = {
            (TopicPlace(alias, TOPIC), place): way for alias, ways in self.ways.items() for place, way in ways.items()
        }
        return Interleaved(carried, ways)

    def read(self, positions: dict[str, int]) -> set[Name]:
        return {r for alias, position in positions.items() for r in self.logs[alias][:position] if r is not None}

    def answer(self, target: str, positions: dict[str, int]) -> ResumePoint:
        places = {TopicPlace(alias, TOPIC): position for alias, position in positions.items()}
        return self.maps().answer(TopicPlace(target, TOPIC), places, known_to=len(self.logs[target]))

    def check(self, target: str, positions: dict[str, int]) -> int | None:
        """Ask for a position and hold it against law A."""
        found, read = self.answer(target, positions), self.read(positions)
        log = self.logs[target]
        if found.position is not None:
            skipped = [r for r in log[: found.position] if r is not None and r not in read]
            assert not skipped, f"law A: {skipped} of {target} {log} are skipped at {found}, read {positions}"
            again = [r for r in log[found.position :] if r is not None and r in read]
            assert found.again >= 0
            # Asked of its own place alone nothing tells records and markers apart; a group is never moved there.
            if set(positions) != {target} and all(
                done == max((i + 1 for i, r in enumerate(self.logs[s]) if r), default=0)
                for (s, _), done in self.done.items()
            ):
                assert found.again == len(again), f"{found} on {log}, read {positions}"
        return found.position


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World(PAIR)
    alias, edge = st.sampled_from(sorted(world.logs)), st.sampled_from(world.edges)
    step = st.one_of(
        st.tuples(st.just("produce"), alias), st.tuples(st.just("mirror"), edge), st.tuples(st.just("marker"), alias)
    )
    for (what, where), count in draw(st.lists(st.tuples(step, st.integers(1, 4)), max_size=30)):
        if what == "produce":
            world.produce(where, count)
        elif what == "mirror":
            world.mirror(where, count)
        else:
            world.logs[where].append(None)
    return world


@st.composite
def readers(draw: st.DrawFn, world: World) -> dict[str, int]:
    where = draw(st.sets(st.sampled_from(sorted(world.logs)), min_size=1))
    return {alias: draw(st.integers(0, len(world.logs[alias]))) for alias in sorted(where)}


@pytest.mark.law("A")
@given(st.data())
def test_law_a_a_position_never_skips_a_record_of_any_origin(data: st.DataObject) -> None:
    world = data.draw(worlds())
    positions = data.draw(readers(world))
    for target in world.logs:
        world.check(target, positions)


@pytest.mark.law("A")
@given(st.data())
def test_where_all_is_mirrored_it_is_the_first_unread_record(data: st.DataObject) -> None:
    world = data.draw(worlds())
    world.settle()
    positions = data.draw(readers(world))
    read = world.read(positions)
    for target, log in world.logs.items():
        found = world.check(target, positions)
        unread = [at for at, record in enumerate(log) if record is not None and record not in read]
        last = max((at for at, record in enumerate(log) if record is not None), default=-1)
        if found is None:
            assert last == -1 or not read or set(positions) == {target}
        elif set(positions) == {target}:
            continue
        elif unread:
            assert found <= unread[0]
            assert not [r for r in log[found : unread[0]] if r is not None], f"{found} on {log}, read {positions}"
        else:
            assert found == last + 1 or last == -1, f"{found} on {log}, read {positions}"


def test_copies_at_the_end_of_the_source_do_not_follow() -> None:
    world = World(PAIR)
    world.produce("east", 2)
    world.produce("west", 3)
    world.mirror(PAIR[0], 2)
    world.mirror(PAIR[1], 3)
    here, there = (TopicPlace(alias, TOPIC) for alias in PAIR[0])
    assert not world.maps().may_follow(here, there, 5), "E1 E2 are there, W1 W2 W3 came from there"
    world.produce("east", 1)
    assert world.maps().may_follow(here, there, 7)


@pytest.mark.law("A")
def test_law_a_what_a_rule_kept_from_the_reader_is_not_read() -> None:
    here, there = TopicPlace("east", TOPIC), TopicPlace("west", TOPIC)
    out = CopiedSpans([(0, 4, 2)], position=2)
    back = CopiedSpans([(0, 2, 1), (2, 3, 2)], position=4, withheld=[(1, 2)])
    maps = Interleaved(
        {(here, there): out, (there, here): back}, {(here, there): (here, there), (there, here): (there, here)}
    )
    assert maps.answer(there, {here: 5}, known_to=6).position == 1


@pytest.mark.law("A")
def test_law_a_what_came_before_the_way_back_began_is_not_read() -> None:
    here, there = TopicPlace("east", TOPIC), TopicPlace("west", TOPIC)
    ways = {(here, there): (here, there), (there, here): (there, here)}
    out = CopiedSpans([(0, 4, 2)], position=2)
    for whole, expected in ((True, 6), (False, 0)):
        back = CopiedSpans([(2, 2, 2)], position=4, whole=whole)
        maps = Interleaved({(here, there): out, (there, here): back}, ways)
        assert maps.answer(there, {here: 4}, known_to=6).position == expected


@pytest.mark.law("A")
@settings(max_examples=60)
@given(st.data())
def test_law_a_over_rounds_nothing_echoes_and_nobody_is_moved_at_home(data: st.DataObject) -> None:
    """Groups read on, move between clusters and stop; every flow puts them in step again and again."""
    world = data.draw(worlds())
    held: dict[str, CommittedPosition] = {}
    clock = 0
    ever: set[Name] = set()
    for _ in range(data.draw(st.integers(1, 5))):
        clock += 1
        if data.draw(st.booleans()):
            world.settle()
        home = data.draw(st.sampled_from(sorted(world.logs)))
        begin = held[home].offset if home in held else 0
        offset = min(len(world.logs[home]), begin + data.draw(st.integers(0, 6)))
        if home not in held or offset != begin:
            # What the group has read so far: it began here where a position stood that skipped nothing.
            ever |= {r for r in world.logs[home][begin:offset] if r is not None}
            held[home] = CommittedPosition(offset, own_since=clock)
        for turn in range(3):
            before = dict(held)
            order = data.draw(st.permutations(list(world.edges)))
            for source, target in order:
                if source not in held:
                    continue
                if not may_move(target, held).is_free:
                    continue
                own = {alias: one.offset for alias, one in held.items() if one.own_since is not None or alias == target}
                position = world.check(target, own)
                assert world.read(own) <= ever, "law A: a position claims more than was ever read"
                if position is None:
                    continue
                if target not in held or held[target].offset < position:
                    held[target] = CommittedPosition(position, own_since=None)
            assert turn < 2 or held == before, "a second pass moves nothing"
            for alias in find_last_committed(held):
                assert held[alias] == before.get(alias, held[alias]), "a group is moved where it last committed itself"
