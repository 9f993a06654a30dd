"""Erasure: the chosen records are in no file on disk, every reader goes on, and the lake says what is gone and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import RelayLog, TableMaintenance, left_before, read_in_order, removed_from
from mirrorlake.maintenance import Erasure, Selector, removal
from mirrorlake.maintenance.compaction import SentUpTo, compact_relay
from mirrorlake.maintenance.erasure import Eraser
from mirrorlake.timing import Timing
from tests.builders import ORDERS, mirror_config
from tests.kit.deaths import dying
from tests.kit.lake import LANDED_AT, Row, rows
from tests.unit.lake.kit import Relay

FANOUT = Timing().compaction_fanout

LATER = LANDED_AT + timedelta(hours=1)
FLOW = mirror_config({"target": "central"}).flows[0]
ADA = Selector(key=b"ada")


class World(Relay):
    """A lake in a folder, without Spark; every tenth record is Ada's."""

    def land_up_to(self, end: int, *several: list[Row]) -> None:
        """Land records, and account for them."""
        self.turn(*several).position("landed", end)

    def eraser(self, position: int = 60, **flow: Any) -> Eraser:
        standing = SentUpTo(flow=FLOW.model_copy(update=flow), positions={ORDERS: position})
        return Eraser(
            self.lake,
            "east",
            [standing],
            on_target=lambda *_: "for ever",
            now=lambda: LATER,
            foreign_flows=["west->central"],
        )

    def keys_on_disk(self) -> Iterator[tuple[str, bytes | None]]:
        for path in Path(self.path).glob("*.parquet"):
            for row in pq.read_table(path, columns=["topic", "key"]).to_pylist():
                yield row["topic"], row["key"]


def key(offset: int) -> bytes:
    return b"ada" if offset % 10 == 5 else b"%d" % offset


def orders(*offsets: int) -> list[Row]:
    return [
        row for offset in offsets for row in rows("orders", 0, offset, key=key(offset), value=b'{"n": %d}' % offset)
    ]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for first in range(0, 60, 10):
        made.land_up_to(first + 10, orders(*range(first, first + 10)), rows("clicks", 0, first, key=b"ada"))
    return made


LEFT = [offset for offset in range(60) if offset % 10 != 5]
GONE = range(5, 60, 10)


@pytest.mark.law("C", "E")
def test_law_e_what_is_erased_is_in_no_file_and_every_offset_is_explained(world: World) -> None:
    world.withhold(15, 16, kind="quarantined", rule="redact")
    # The flow had another name then; and a flow of another source has a topic of this name.
    world.send([*range(30)], 0, flow="renamed->since").send([*range(30)], 0, flow="west->central")
    before = {row["offset"]: row for row in world.records("orders")}
    log = RelayLog(world.tables, world.path)
    held = [file for file in log.files({}) if file.source == ORDERS]
    version = world.tables.version(world.path)
    planned = world.eraser(position=40).plan("orders", ADA, "request 4711")
    assert (planned.planned, planned.records, planned.files) == (True, 6, 6)
    assert [(one.flow, one.topic, one.passed, one.unsent) for one in planned.targets] == [
        (FLOW.name, "east.orders", 4, 2)
    ]
    assert (world.tables.version(world.path), removed_from(world.lake, "east")) == (version, []), "a plan does nothing"

    done = world.eraser(position=40).erase("orders", ADA, "request 4711")
    assert (done.planned, done.records, done.ok, len(done.deleted_files)) == (False, 6, True, 6)
    after = {row["offset"]: row for row in world.records("orders")}
    assert after == {offset: before[offset] for offset in LEFT}, "all others are as they were"
    assert ("orders", b"ada") not in {*world.keys_on_disk()}, "in any version"
    assert done.sent_to == ("east.orders by renamed->since",)
    [left] = removed_from(world.lake, "east")
    assert (left.kind, left.source, left.records, left.reason) == ("erased", ORDERS, 6, "request 4711")
    assert [offset for offset in range(60) if left.ranges.contains(offset)] == [*GONE]
    assert left.relay_version == done.relay_version == world.tables.version(world.path)
    assert "ada" not in json.dumps(left.evidence)
    assert left_before(world.lake, "east") == {}
    quarantined = world.mirror().query("SELECT `offset`, key FROM quarantine").to_pylist()
    assert quarantined == [{"offset": 16, "key": b"16"}], "the view has what the relay has"

    assert log.new_files({ORDERS: 60}) == [], "a rewritten file is nothing new"
    read = [offset for part in read_in_order(held) for offset in part.column("offset").to_pylist()]
    assert read == LEFT, "who holds the old list reads what the new one names, once and in order"
    read = [offset for part in read_in_order(held, position=33) for offset in part.column("offset").to_pylist()]
    assert read == [offset for offset in LEFT if offset >= 33]
    again = world.eraser().erase("orders", ADA, "request 4711")
    assert (again.records, again.removal, world.tables.version(world.path)) == (0, "", done.relay_version)


@pytest.mark.parametrize(
    ("selector", "gone"),
    [
        (Selector(where="key = 'ada' AND offset > 20"), [25, 35, 45, 55]),
        (Selector(where="value.n < 3"), [0, 1, 2]),
        (Selector(header=("h", b"1")), [*range(1, 60, 2)]),
        (Selector(key=b"nobody"), []),
    ],
)
def test_records_are_chosen_by_header_and_predicate_too(world: World, selector: Selector, gone: list[int]) -> None:
    done = world.eraser().erase("orders", selector, "why")
    assert done.records == len(gone)
    assert sorted({*range(60)}.difference(world.offsets())) == gone


def test_what_a_predicate_cannot_judge_stays_and_is_counted(world: World) -> None:
    world.land_up_to(61, rows("orders", 0, 60, value=b"not json"))
    done = world.eraser(61).erase("orders", Selector(where="value.n = 3"), "why")
    assert (done.records, done.undecided, done.ok) == (1, 1, False)
    assert "cannot be judged" in str(done)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no records are named"),
        ({"key": b"a", "where": "offset = 1"}, "2 ways"),
        ({"where": "no_such = 1"}, "predicate"),
    ],
)
def test_a_choice_that_cannot_be_read_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Selector(**given)


def test_a_topic_that_was_never_landed_and_a_stream_that_is_not_past_are_refused(world: World) -> None:
    with pytest.raises(UsageError, match="holds nothing of payments"):
        world.eraser().plan("payments", ADA, "why")
    with pytest.raises(SafetyError, match="streams the relay"):
        world.eraser(position=50, execution="streaming").erase("orders", ADA, "why")
    assert world.offsets().count(15) == 1
    assert world.eraser(position=60, execution="streaming").erase("orders", ADA, "why").records == 6


@pytest.mark.law("E")
def test_law_e_what_landing_has_not_accounted_for_stays_and_is_said(world: World) -> None:
    world.turn(orders(*range(60, 70)))
    done = world.eraser().erase("orders", ADA, "why")
    assert (done.records, done.waiting, done.left, done.ok) == (6, 1, 1, False)
    world.position("landed", 70)
    assert world.eraser().erase("orders", ADA, "why").ok
    assert b"ada" not in {row["key"] for row in world.records("orders")}


@pytest.mark.law("E", "F")
@pytest.mark.parametrize("step", ["announcing", "announced", "committed", "purged", "confirming"])
@pytest.mark.parametrize("by", ["the command", "upkeep"])
def test_law_f_killed_between_two_steps_it_is_ended_by_the_next_run(world: World, step: str, by: str) -> None:
    with dying(f"remove.{step}"):
        world.eraser().erase("orders", ADA, "why")
    explained = {
        offset for one in removed_from(world.lake, "east") for offset in range(60) if one.ranges.contains(offset)
    }
    assert {*world.offsets()} | explained >= {*range(60)}
    if by == "upkeep" and step != "announcing":
        table = world.lake.open_maintenance(world.path)
        assert table is not None
        removal.Removals(world.lake, "east", table).finish()
    else:
        done: Erasure = world.eraser().erase("orders", ADA, "why")
        assert (done.records + done.finished, done.ok) == (6, True)
    assert ("orders", b"ada") not in {*world.keys_on_disk()}
    assert all(one.is_done for one in removed_from(world.lake, "east"))
    assert sum(one.records for one in removed_from(world.lake, "east")) == 6


@pytest.mark.law("E", "F")
def test_law_f_a_compaction_before_and_one_at_the_same_moment_keep_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    for offset in range(2 * FANOUT):
        world.land_up_to(offset + 1, orders(offset))
    sent = SentUpTo(flow=FLOW, positions={ORDERS: FANOUT})

    def compact(position: int) -> int:
        standing = SentUpTo(flow=FLOW, positions={ORDERS: position})
        done = compact_relay(TableMaintenance(world.path), "east", [standing], now=LATER, max_wait=timedelta(days=1))
        return done.into

    assert compact(FANOUT) == 1, "the first half is a large file, and the small ones are still on disk"
    held = RelayLog(world.tables, world.path).files({})
    replace, others = TableMaintenance.replace, [0]

    def disturbed(table: TableMaintenance, *given: Any, **named: Any) -> bool:
        if not others[0]:
            others[0] = 1
            assert compact(2 * FANOUT) == 1, "the files that are about to be replaced are rewritten first"
        return replace(table, *given, **named)

    monkeypatch.setattr(TableMaintenance, "replace", disturbed)
    eraser = Eraser(world.lake, "east", [sent], on_target=lambda *_: "", now=lambda: LATER)
    done = eraser.erase("orders", ADA, "why")
    assert (done.records, done.ok) == (len(range(5, 2 * FANOUT, 10)), True)
    assert ("orders", b"ada") not in {*world.keys_on_disk()}
    left = [offset for offset in range(2 * FANOUT) if offset % 10 != 5]
    assert world.offsets() == left
    assert [offset for part in read_in_order(held) for offset in part.column("offset").to_pylist()] == left
    [last] = [file for file in held if file.first_offset == 2 * FANOUT - 1]
    assert [offset for part in read_in_order([last]) for offset in part.column("offset").to_pylist()] == left[-1:]
