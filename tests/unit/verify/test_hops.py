"""Whole verifications of generated ends: each fault is named where it is, and nothing else; no broker."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from mirrorlake.lake import Lake, ProofCache, RangeProof
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.verify import VerifyReport
from mirrorlake.offsets import OffsetMaps
from mirrorlake.verify import unit
from mirrorlake.verify.chosen_ranges import compare_ranges
from mirrorlake.verify.cut import FixedCut
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.target_end import TargetEnd, summarize_feeds
from mirrorlake.verify.verify import Verification, Verifier
from tests.builders import mirror_config
from tests.kit.lake import LakeBuilder, map_row
from tests.kit.lake import rows as landed
from tests.kit.memory_cluster import Entry, MemoryCluster, MemoryFetcher, Topic
from tests.kit.memory_cluster import Log as HeldLog
from tests.unit.verify.test_stream_comparison import Row

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)
CONFIG = mirror_config(verify={})
[FLOW] = CONFIG.flows
REMOTE = FLOW.remote_topic("orders")
FAULTS = (
    "none",
    "relay missing",
    "relay altered",
    "relay doubled",
    "relay extra",
    "target missing",
    "target altered",
    "target doubled",
    "target extra",
    "target trimmed",
    "skipped",
)


@dataclass
class Log:
    """One partition: its records, and where it begins and ends."""

    rows: dict[int, Row] = field(default_factory=dict)
    first: int = 0
    end: int = 0


class Cluster(MemoryCluster):
    """A cluster of one topic whose first offsets may be `leaving`."""

    def __init__(self, alias: str, topic: str, logs: list[Log]) -> None:
        super().__init__(alias)
        self.logs = [
            HeldLog(
                [
                    Entry(offset, ms, 0, key, value, headers or ())
                    for offset, ms, key, value, headers in sorted(log.rows.values(), key=itemgetter(0))
                ],
                log.first,
                log.end,
            )
            for log in logs
        ]
        self.topics[topic] = Topic(f"id of {topic}", self.logs, {"cleanup.policy": "delete"})
        self.leaving = 0


class Reader(MemoryFetcher):
    """A consumer that comes when what is leaving has left."""

    def __init__(self, cluster: Cluster, positions: Mapping[TopicPartition, int], step: int) -> None:
        super().__init__(cluster, positions, step)
        for log in cluster.logs:
            log.drop(below=min(cluster.leaving, log.end))


class Shouting:
    """The rules of version `v1`: each value in capitals."""

    version = "v1"

    def __call__(self, _: SourcePartition, rows: pa.RecordBatch) -> Any:
        loud = pc.binary_join_element_wise(rows.column("value"), pa.scalar(b"!"), pa.scalar(b""))
        return SimpleNamespace(records=rows.set_column(rows.schema.get_field_index("value"), "value", loud))


def loud(row: Row) -> Row:
    return (*row[:3], None if row[3] is None else row[3] + b"!", row[4])


@dataclass
class World:
    """A source, its relay and a target, and what the ledger says; `places` are the target's of source records."""

    source: list[Log] = field(default_factory=lambda: [Log(), Log()])
    relay: list[list[Row]] = field(default_factory=lambda: [[], []])
    target: list[Log] = field(default_factory=list)
    places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    versions: dict[tuple[int, int], str | None] = field(default_factory=dict)
    sent_in: list[list[Sequence[int]]] = field(default_factory=lambda: [[], []])
    withheld: list[list[int]] = field(default_factory=lambda: [[], []])
    positions: list[int] = field(default_factory=lambda: [0, 0])
    step: int = 5
    expected: set[tuple[str, str, str, int, int, int]] = field(default_factory=set)
    faulty: set[tuple[int, int]] = field(default_factory=set)

    def landed(self, partition: int) -> list[int]:
        return sorted({row[0] for row in self.relay[partition]})

    def held_in(self, proof: RangeProof) -> list[int]:
        """Return the records of a proof's range that its target partition holds, by the rules that it names."""
        return [
            offset
            for (number, offset), (to, place) in self.places.items()
            if (number, to) == (proof.partition.partition, proof.target_partition)
            and self.versions[number, offset] == proof.view
            and proof.first_upstream <= offset <= proof.last_upstream
            and place >= self.target[to].first
        ]

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        clusters = {"east": Cluster("east", "orders", self.source), "west": Cluster("west", REMOTE, self.target)}

        def reader(alias: str, _: Any, positions: Mapping[TopicPartition, int]) -> Reader:
            return Reader(clusters[alias], positions, self.step)

        with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
            patch.setattr(unit, "Fetcher", reader)
            built = LakeBuilder(Path(root))
            built.observe("orders", topic_id="id of orders", partitions=2, configs={"cleanup.policy": "delete"})
            rows = [
                record
                for number, part in enumerate(self.relay)
                for at, ms, key, value, pairs in part
                for record in landed(
                    *("orders", number, at),
                    timestamp=datetime.fromtimestamp(ms / 1000, timezone.utc),
                    key=key,
                    value=value,
                    landed_at=AT,
                    headers=None if pairs is None else [{"key": k, "value": v} for k, v in pairs],
                )
            ]
            for half in (0, 1):
                built.turn(rows[half::2])
            yield Opened(self, built.lake, clusters)

    def maps(self, lake: Lake) -> OffsetMaps:
        known = {"flow": FLOW.name, "lane": 0, "ledger_seq": 0, "epoch": 1, "committed_at": AT}
        runs: list[dict[str, Any]] = []
        for number, batches in enumerate(self.sent_in):
            for upstream in batches:
                left = [o for o in upstream if (number, o) in self.places]
                to, first = self.places[number, left[0]]
                more = {**known, "target_partition": to, "view": self.versions[number, left[0]]}
                runs.append(map_row(left, first, "orders", number, **more))
        withheld = {**known, "kind": "filtered", "target_partition": None, "first_downstream": None}
        kept = [
            map_row(offsets, 0, "orders", number, **withheld) for number, offsets in enumerate(self.withheld) if offsets
        ]
        positions = {SourcePartition("orders", 1, number): at for number, at in enumerate(self.positions)}
        return OffsetMaps(
            lake=lake,
            positions={FLOW.name: positions},
            sources={FLOW.name: "east"},
            newer=(*runs, *kept),
        )


@dataclass
class Opened:
    """A world whose relay lies in a lake, to be verified."""

    world: World
    lake: Lake
    clusters: dict[str, Cluster]

    @property
    def context(self) -> Any:
        return SimpleNamespace(
            lake=self.lake, config=CONFIG, admin=self.clusters.__getitem__, reader_options=lambda _: {}
        )

    def target_end(self) -> TargetEnd:
        ends = {TopicPartition(REMOTE, number): log.end for number, log in enumerate(self.world.target)}
        cut = FixedCut(flows={FLOW.name: FLOW}, maps=self.world.maps(self.lake), ends=ends)
        return TargetEnd.at(cut, "west", self.context)

    def compare_ranges(self, *ranges: tuple[int, int]) -> VerifyReport:
        target = self.target_end()
        return compare_ranges(
            FLOW,
            cast("Any", Shouting()),
            {SourcePartition("orders", 1, number): span for number, span in enumerate(ranges)},
            source=SourceEnd(self.context, "east", is_lost=True),
            target=replace(target, summaries=summarize_feeds(target.cut, [REMOTE])),
            tell=lambda _: None,
        )

    def verify(self, *, full: bool = False) -> Verification:
        context = self.context
        views: Any = {FLOW.name: Shouting()}
        return Verifier(
            context,
            [FLOW],
            proofs=ProofCache(self.lake),
            sources={"east": SourceEnd(context, "east")},
            targets={"west": self.target_end()},
            views=views,
            scope=Scope(full=full),
            waits=False,
        ).run()


@st.composite
def worlds(draw: st.DrawFn, faults: tuple[str, ...] = FAULTS, *, least: int = 3) -> World:
    """Draw two source partitions in one or two target partitions, with retention, rules and one fault."""
    targets = draw(st.integers(1, 2))
    world = World(target=[Log() for _ in range(targets)], step=draw(st.integers(2, 40)))
    headers = st.sampled_from([None, (("h", None),), (("h", b""), ("h", b"1"))])
    for number, log in enumerate(world.source):
        for _ in range(draw(st.integers(least, 14))):
            log.end += draw(st.sampled_from([0, 0, 1, 2]))
            key = draw(st.sampled_from([None, b"", b"k"]))
            log.rows[log.end] = (log.end, log.end, key, b"%d of %d" % (log.end, number), draw(headers))
            log.end += 1
        log.end += draw(st.integers(0, 2))
        world.relay[number] = list(log.rows.values())
        _send(draw, world, number)
        _forget(draw, log)
    for log in world.target:
        _forget(draw, log)
    _spoil(draw, world, draw(st.sampled_from(faults)))
    return world


def _send(draw: st.DrawFn, world: World, number: int) -> None:
    left = sorted(world.source[number].rows)
    pending = draw(st.sampled_from([0, 0, 2]))
    left = left[: len(left) - pending]
    while left:
        size, kept = draw(st.integers(1, 6)), draw(st.integers(0, 5)) == 0
        taken, left = left[:size], left[size:]
        world.positions[number] = taken[-1] + 1
        if kept:
            world.withheld[number] += taken
            continue
        to = draw(st.integers(0, len(world.target) - 1))
        version = draw(st.sampled_from([None, None, "v1", "v0"]))
        log = world.target[to]
        for offset in taken:
            row = world.source[number].rows[offset]
            row = {None: row, "v1": loud(row)}.get(version, (*row[:3], b"of older rules", row[4]))
            log.rows[log.end] = (log.end, *row[1:])
            world.places[number, offset], world.versions[number, offset] = (to, log.end), version
            log.end += 1
        world.sent_in[number].append(taken)  # type: ignore[arg-type]
        log.end += draw(st.integers(0, 2))


def _forget(draw: st.DrawFn, log: Log) -> None:
    log.first = draw(st.integers(0, log.end // 2)) if draw(st.booleans()) else 0
    log.rows = {offset: row for offset, row in log.rows.items() if offset >= log.first}


def _spoil(draw: st.DrawFn, world: World, fault: str) -> None:
    """Make one fault at a record that both hops compare by content, and say what it is called."""
    whole = [
        (number, offset)
        for (number, offset), (to, place) in world.places.items()
        if world.versions[number, offset] != "v0"
        and offset in world.source[number].rows
        and place in world.target[to].rows
    ]
    if fault == "none" or not whole:
        return
    number, offset = draw(st.sampled_from(sorted(whole)))
    to, place = world.places[number, offset]
    relay, target = world.relay[number], world.target[to]
    at = next(index for index, row in enumerate(relay) if row[0] == offset)
    where = {"relay": ("orders", number, offset), "target": (REMOTE, to, place)}

    def expect(*found: tuple[str, str]) -> None:
        world.expected |= {
            (end, problem, *where[end], 2 if found == (("relay", "doubled"),) else 1) for end, problem in found
        }
        world.faulty.add((number, offset))

    if fault == "relay missing":
        del relay[at]
        expect(("relay", "missing"), ("target", "extra"))
    elif fault == "relay altered":
        relay[at] = (*relay[at][:3], b"other", relay[at][4])
        expect(("relay", "altered"), ("target", "altered"))
    elif fault == "relay doubled":
        relay.append(relay[at])
        expect(("relay", "doubled"))
    elif fault == "relay extra":
        free = [o for o in range(world.source[number].first, world.positions[number]) if o not in world.landed(number)]
        if not free:
            return
        where["relay"] = ("orders", number, free[0])
        world.relay[number] = sorted([*relay, (free[0], 5, b"k", b"stranger", None)], key=lambda row: row[0])
        expect(("relay", "extra"))
        world.expected.add(("target", "missing", "orders", number, free[0], 1))
        world.faulty = {(number, free[0])}
    elif fault == "target missing":
        del target.rows[place]
        expect(("target", "missing"))
    elif fault == "target altered":
        target.rows[place] = (*target.rows[place][:4], (("h", b"other"),))
        expect(("target", "altered"))
    elif fault in ("target doubled", "target extra"):
        free = [o for o in range(target.first, target.end) if o not in target.rows]
        if not free:
            return
        where["target"] = (REMOTE, to, free[0])
        copy = target.rows[place]
        target.rows[free[0]] = (free[0], *copy[1:]) if fault == "target doubled" else (free[0], 5, None, b"x", None)
        expect(("target", fault.split()[1]))
        world.faulty = set()
    elif fault == "target trimmed":
        target.first = place + 1
        target.rows = {o: row for o, row in target.rows.items() if o >= target.first}
    elif fault == "skipped":
        upstream = next(one for one in world.sent_in[number] if offset in one)
        if upstream[-1] != offset or len(upstream) == 1:
            return
        upstream.remove(offset)  # type: ignore[attr-defined]
        del world.places[number, offset], target.rows[place]
        world.expected.add(("target", "missing", "orders", number, offset, 1))
        world.faulty.add((number, offset))


def named(report: VerifyReport) -> set[tuple[str, str, str, int, int, int]]:
    """Return the differences of a report without the records that wait."""
    return {
        (d.where, d.problem, d.topic, d.partition, d.offset, d.records)
        for d in report.differences
        if d.problem != "not_republished"
    }


def covered(proofs: Iterable[RangeProof], kind: str, number: int, offset: int) -> set[str]:
    """Return how an offset is proven."""
    return {
        one.how
        for one in proofs
        if one.kind == kind and one.partition.partition == number and one.first_upstream <= offset <= one.last_upstream
    }


def sent_to(sent: list[list[tuple[int, int]]], *, firsts: list[int], version: str | None = None) -> World:
    """Return a world without a fault; `sent` are batches of a source partition: where they went, and how many records."""
    world = World(source=[Log(end=1), Log(end=1)], target=[Log() for _ in firsts])
    for number, batches in enumerate(sent):
        source = world.source[number]
        for to, count in batches:
            target, taken = world.target[to], list(range(source.end, source.end + count))
            for offset in taken:
                row: Row = (offset, offset, b"k", b"%d of %d" % (offset, number), None)
                source.rows[offset] = row
                target.rows[target.end] = (target.end, *row[1:])
                world.places[number, offset], world.versions[number, offset] = (to, target.end), version
                target.end += 1
            source.end = world.positions[number] = taken[-1] + 1
            world.sent_in[number].append(taken)  # type: ignore[arg-type]
        world.relay[number] = list(source.rows.values())
    for log, first in zip(world.target, firsts, strict=True):
        log.first, log.rows = first, {offset: row for offset, row in log.rows.items() if offset >= first}
    return world


# A record that its partition still holds lies between records that left another one.
_HELD_BETWEEN = sent_to([[(0, 2), (1, 1), (0, 3)], [(1, 1)]], firsts=[3, 0])
# All records of a source partition left the target, which holds those of another.
_ALL_LEFT = sent_to([[(0, 3)], [(0, 2)]], firsts=[4])

_SLOW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.law("E")
@_SLOW
@given(worlds())
@example(_HELD_BETWEEN)
@example(_ALL_LEFT)
def test_law_e_each_fault_is_named_where_it_is_nothing_else_is_and_it_is_never_proven(world: World) -> None:
    with world.opened() as opened:
        found = opened.verify()
        [report] = found.reports
        assert named(report) == world.expected
        waiting = {d.partition: (d.offset, d.records) for d in report.differences if d.problem == "not_republished"}
        owed = {n: [o for o in world.landed(n) if o >= world.positions[n]] for n in (0, 1)}
        assert waiting == {n: (offsets[0], len(offsets)) for n, offsets in owed.items() if offsets}
        assert report.equal == (not report.differences)
        bad = {number for number, _ in world.faulty}
        for one in report.partitions:
            sent = [(n, o) for n, o in world.places if n == one.partition]
            there = [(n, o) for n, o in sent if world.places[n, o][1] >= world.target[world.places[n, o][0]].first]
            held = len(world.landed(one.partition))
            assert (one.landed, one.republished) == (held, len(sent))
            if not world.expected:
                assert (one.verified, one.withheld) == (len(there), len(world.withheld[one.partition]))
            elif one.partition in bad:
                assert one.verified == 0
        for number, offset in world.faulty:
            ways = covered(found.proofs, "source-relay", number, offset) | covered(
                found.proofs, "relay-target", number, offset
            )
            assert "different" in ways or world.expected == {("relay", "doubled", "orders", number, offset, 2)}, ways
        if not world.expected:
            for number, log in enumerate(world.source):
                for offset in world.landed(number):
                    way = {"full"} if offset >= log.first else {"gone"}
                    assert covered(found.proofs, "source-relay", number, offset) == way
            for (number, offset), (to, place) in world.places.items():
                ways = covered(found.proofs, "relay-target", number, offset)
                assert ways == {"gone"} if place < world.target[to].first else ways & {"full", "present"}, (
                    number,
                    offset,
                )
            for proof in found.proofs:
                if proof.target_partition is not None:
                    assert proof.records == len(world.held_in(proof)), "law E: of other records than its range has"


@pytest.mark.law("E")
def test_law_e_a_proof_is_of_the_records_of_its_range_where_others_are_read_again() -> None:
    world = sent_to([[(0, 5)], [(0, 5)]], firsts=[0])
    with world.opened() as opened:
        proofs = opened.verify().proofs
        known = [
            replace(one, **({"last_upstream": 4} if one.partition.partition else {"first_upstream": 2}))
            if one.kind == "relay-target"
            else one
            for one in proofs
        ]
        ProofCache(opened.lake).write(known, verification="one", at=AT)
        found = opened.verify()
    assert {(one.partition.partition, one.first_upstream, one.last_upstream, one.records) for one in found.proofs} == {
        (0, 0, 1, 1),
        (1, 5, 5, 1),
    }
    assert [(one.verified, one.proven_before) for one in found.reports[0].partitions] == [(5, 4), (5, 4)]


@pytest.mark.law("E")
@_SLOW
@given(worlds(("none",)), st.integers(1, 12), st.sampled_from(["east", "west"]))
def test_law_e_what_leaves_an_end_while_it_is_compared_is_not_proven(world: World, leaving: int, alias: str) -> None:
    with world.opened() as opened:
        opened.clusters[alias].leaving = leaving
        before = [log.start for log in opened.clusters[alias].logs]
        found = opened.verify()
    assert not named(found.reports[0])
    gone = [
        (n, first, log.start) for n, (first, log) in enumerate(zip(before, opened.clusters[alias].logs, strict=True))
    ]
    for number, first, now in gone:
        if alias == "east":
            left = [("source-relay", number, o) for o in world.landed(number) if first <= o < now]
        else:
            left = [
                ("relay-target", *of) for of, (to, at) in world.places.items() if to == number and first <= at < now
            ]
        for one in left:
            assert not covered(found.proofs, *one) & {"full", "present"}, (one, "law E: proven without a look")


@pytest.mark.law("C", "E")
@_SLOW
@given(worlds())
@example(_HELD_BETWEEN)
@example(_ALL_LEFT)
def test_law_e_chosen_ranges_are_compared_alike_and_records_of_others_are_no_difference(world: World) -> None:
    with world.opened() as opened:
        found = opened.compare_ranges(*((0, position) for position in world.positions))
        less = opened.compare_ranges(*((0, max(0, position - 1)) for position in world.positions))
    beside = {("target", "extra"), ("target", "doubled"), ("relay", "doubled"), ("relay", "extra")}
    expected = {one for one in world.expected if one[:2] not in beside}
    if not any(one[:2] == ("relay", "missing") for one in world.expected):
        assert {one for one in named(found) if one[0] == "target"} == {one for one in expected if one[0] == "target"}
    assert found.equal == (not expected), found.differences
    if not world.expected:
        there = Counter(n for (n, _), (to, place) in world.places.items() if place >= world.target[to].first)
        assert {one.partition: one.verified for one in found.partitions} == {n: there[n] for n in (0, 1)}
        beyond = {n for n in (0, 1) if world.positions[n]}
        assert {one.partition for one in less.differences if one.problem == "extra"} == beyond, "sent past the range"
