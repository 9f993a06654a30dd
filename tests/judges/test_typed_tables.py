"""Typed tables from outside: columns and rows are a function of the records, whatever batches, kills and order they came in."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.errors import MirrorlakeError
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import beside, wait_until
from tests.kit.typed import World, every_cut
from tests.kit.typed_fold import Record

LARGE, BEYOND = 2**53 + 1, 2**70
KINDS: dict[str, Any] = {"object": {"a b": 1, "é": [1.5]}, "array": [1, {"x": None}], "number": 10.5, "text": "it's"}
KINDS |= {"boolean": True, "integer": 10, "large": LARGE}
# A value that no reason may quote.
HIDDEN = "s3cret"


def values(world: World, name: str, column: str) -> list[Any]:
    """Return a column by the place of its records."""
    return [json.loads(row)[column] for _, row in sorted(world.rows(name).items())]


# -- columns ------------------------------------------------------------------------------------------------------------


@pytest.mark.law("C")
def test_law_c_integers_lose_no_digit_whatever_batch_brings_a_fraction(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, *every_cut(3))
    world.land_each(
        [{"m": 10, "within": 10, "past": 1, "list": [1], "large": 1}],
        [{"m": LARGE, "within": 2**53, "past": BEYOND, "list": [LARGE], "large": -LARGE}],
        [{"m": 10.5, "within": 10.5, "past": 2**63 - 1, "list": [0.5], "large": 2**63 - 1}],
    )
    for name in world.entries:
        assert values(world, name, "m") == ["10", "9007199254740993", "10.5"]
        assert values(world, name, "within") == [10.0, 2.0**53, 10.5]
        assert values(world, name, "list") == [["1"], ["9007199254740993"], ["0.5"]]
        assert values(world, name, "large") == [1, -LARGE, 2**63 - 1]


@pytest.mark.law("C")
def test_law_c_any_two_kinds_of_a_member_merge(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, *every_cut(2))
    pairs = {f"{one}_{other}": (KINDS[one], KINDS[other]) for one, other in permutations(KINDS, 2)}
    first, second = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    world.land_each([{**first, "in": first, "each": [first]}], [{**second, "in": second, "each": [second]}])
    for name in world.entries:
        assert values(world, name, "object_array") == ['{"a b":1,"é":[1.5]}', '[1,{"x":null}]']


@pytest.mark.law("C")
def test_law_c_any_two_roots_merge_but_beside_objects_others_are_bad(tmp_path: Path, spark: SparkSession) -> None:
    pairs = [*permutations([[1, 2], 5, "x"], 2), (True, 0.5), ([], [0.5]), (1, {"a": 1}), ({"a": 1}, 1)]
    entries = [every_cut(2, f"pair{number}", topics=f"topic{number}") for number in range(len(pairs))]
    world = World(tmp_path, spark, *chain(*entries))
    world.land_each(*([Record(pair[side], topic=f"topic{at}") for at, pair in enumerate(pairs)] for side in (0, 1)))


@pytest.mark.law("C")
def test_law_c_any_two_kinds_of_keys_merge(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, *every_cut(3, keys="json"), *every_cut(3, "new", keys="json", mode="upsert"))
    world.land_each(
        [Record({"n": 1}, "1"), Record({"n": 2}, "2"), Record({"n": 3}, "1")],
        [Record({"n": 4}, '{"a b": [1]}'), Record({"n": 5}, "2")],
        [Record({"n": 6}, '"x"'), Record({"n": 7}, "[1]"), Record(None, "1"), Record({"n": 8}, "true")],
    )


@pytest.mark.law("F")
def test_law_f_rows_of_before_are_those_of_a_fresh_decode(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, *every_cut(2), *every_cut(2, "new", mode="upsert"))
    before = {"n": 10, "who": {"a b": 1, "é": [True]}, "list": [], "no": {}, "in": {"list": []}, "Id": 1, "a b": 1}
    after = {
        "n": "x",
        "who": "me",
        "list": [1],
        "no": {"a": 1},
        "in": {"list": [{"a": 1}]},
        "id": 2,
        "a_b": 2,
        "more": 1,
    }
    world.land_each([Record(before, "k1"), Record(None, "k2")], [Record(after, "k3")])
    for name in world.entries:
        row = json.loads(world.rows(name)["east", "sales", 0, 0])
        assert row == {
            "_key": "k1",
            "n": "10",
            "who": '{"a b":1,"é":[true]}',
            "list": [],
            "no": {"a": None},
            "in": {"list": []},
            "id": None,
            "Id_2": 1,
            "a_b": None,
            "a_b_2": 1,
            "more": None,
        }
        assert world.open().verify_table(name).equal


@pytest.mark.law("F")
def test_law_f_a_new_member_alone_is_added_to_the_files_that_are_there(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, {"topics": "sales"})
    world.land({"n": 1, "who": {"age": 1}})
    world.keep()
    before = {*DeltaTable(tmp_path / "lake" / "tables" / "sales").file_uris()}
    world.land({"n": 2, "more": 0.5, "who": {"name": "x"}})
    world.keep()
    world.check()
    assert before < {*DeltaTable(tmp_path / "lake" / "tables" / "sales").file_uris()}


@pytest.mark.law("E")
def test_law_e_where_the_relay_lost_old_records_one_that_would_widen_is_a_bad_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark, {"topics": "sales"}, {"topics": "sales", "name": "newest", "mode": "upsert"})
    world.land(Record({"n": 1}, "a"), Record({"n": 2}, "b"))
    world.keep()
    world.expire(1)
    world.land(Record({"n": "x"}, "c"), Record({"n": 3, "more": 1}, "d"), Record({"n": 4.5}, "b"))
    world.keep()
    for name in world.entries:
        assert values(world, name, "n") == [1, 2, 3]
        assert values(world, name, "more") == [None, None, 1]
        assert sorted(offset for *_, offset in world.bad(name)) == [2, 4]
        assert world.open().verify_table(name).equal


# -- changes: refuse ----------------------------------------------------------------------------------------------------


@pytest.mark.law("G")
@pytest.mark.parametrize("stays_on", [False, True], ids=["once", "always on"])
def test_law_g_changes_that_are_refused_are_so_from_the_second_batch_on(
    tmp_path: Path, spark: SparkSession, stays_on: bool
) -> None:
    entry = {"topics": "sales", "changes": "refuse", "every": "1s"}
    world = World(tmp_path, spark, entry, {**entry, "name": "newest", "mode": "upsert"})
    batches = (
        [Record({"n": 1}, "a"), Record({"n": 1.5}, "b")],
        [Record({"n": "x"}, "c"), Record({"n": 2, "more": 1}, "b"), Record([1], "e"), Record({"n": 3}, "d")],
        [Record({"more": True}, "a"), Record({"n": 4, "more": None}, "e")],
    )

    world.land(*batches[0])
    running = beside(lambda stop: world.open().keep_tables(stop=stop)) if stays_on else nullcontext([])
    with running as failures:
        for number, batch in enumerate(batches):
            if number:
                world.land(*batch)
            if not stays_on:
                world.keep()
            last = batch[-1].key
            wait_until(
                lambda last=last: failures or all(last in keys(world, name) for name in world.entries),
                f"batch {number} is written",
            )
            assert not failures
    for name in world.entries:
        assert values(world, name, "n") == [1.0, 1.5, 3.0, 4.0]
        assert sorted(offset for *_, offset in world.bad(name)) == [2, 3, 4, 6]
        assert "more" not in json.loads(next(iter(world.rows(name).values())))
        assert world.open().verify_table(name).equal


def keys(world: World, name: str) -> set[str]:
    there = any((world.lake.root / "tables" / name / "_delta_log").glob("*.json"))
    return {json.loads(row)["_key"] for row in world.rows(name).values()} if there else set()


# -- what a person sees -------------------------------------------------------------------------------------------------


def states(world: World) -> dict[str, tuple[str, str]]:
    """Return the state of each table and its reason, which `tables` and `status` tell alike."""
    tables, status = (
        {one.name: one for one in shown} for shown in (world.open().tables().tables, world.open().status().tables)
    )
    told = {name: (one.state, one.why()) for name, one in tables.items()}
    assert told == {name: (one.state, one.why()) for name, one in status.items()}
    return told


@pytest.mark.law("E")
def test_law_e_a_table_that_a_drain_refused_is_shown_parked_with_its_reason(
    tmp_path: Path, spark: SparkSession
) -> None:
    stops = {"topics": "sales", "name": "stops", "bad_records": "stop"}
    asks = {"topics": "sales", "name": "asks", "columns": {"twice": "amount * 2"}}
    world = World(tmp_path, spark, {"topics": "sales"}, stops, asks)
    world.land({"n": 1}, b"{" + HIDDEN.encode())
    with pytest.raises(MirrorlakeError):
        world.keep()
    world.check("sales")
    told = states(world)
    assert told["sales"] == ("ok", "")
    assert {name: state for name, (state, _) in told.items()} == {"sales": "ok", "stops": "parked", "asks": "parked"}
    assert "sales/0@1" in told["stops"][1]
    assert "amount" in told["asks"][1]
    assert HIDDEN not in str(told)
    world.set_tables({"topics": "sales"}, {**stops, "bad_records": "quarantine"}, {"topics": "sales", "name": "asks"})
    world.keep()
    assert {*states(world).values()} == {("ok", "")}
    world.check()


@pytest.mark.law("E")
def test_law_e_a_table_whose_log_is_garbled_is_named_and_built_again_beside_the_others(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(
        tmp_path, spark, {"topics": "sales"}, {"topics": "orders"}, {"topics": "sales", "name": "new", "mode": "upsert"}
    )
    world.land({"n": 1}, Record({"n": 1}, topic="orders"))
    world.keep()
    for name in ("sales", "new"):
        for commit in (tmp_path / "lake" / "tables" / name / "_delta_log").glob("*.json"):
            commit.write_text("{")
    world.land({"n": 2}, Record({"n": 2}, topic="orders"))
    told = states(world)
    assert {name: state for name, (state, _) in told.items()} == {
        "sales": "broken",
        "new": "broken",
        "orders": "behind",
    }
    assert all("rebuild" in told[name][1] for name in ("sales", "new"))
    with pytest.raises(MirrorlakeError):
        world.keep()
    world.check("orders")
    world.rebuild("sales", "new")
    world.land({"n": "x"}, Record({"n": 3}, topic="orders"))
    world.keep()
    world.check(proves=True)
    assert {state for state, _ in states(world).values()} == {"ok"}


@pytest.mark.law("G")
def test_law_g_plan_shows_the_columns_that_waiting_records_will_change(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path, spark: SparkSession
) -> None:
    addresses = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    world = World(tmp_path, spark, {"topics": "typed_sales"}, sources=("east",), **addresses)

    def noted() -> str:
        plan = world.open().plan()
        return "; ".join(one.reason for one in plan.notes if (one.kind, one.name) == ("table", "typed_sales"))

    world.land(Record({"amount": 1, "steady": 1, "who": {"age": 1}}, topic="typed_sales"))
    world.keep()
    assert noted() == ""
    world.land(Record({"amount": HIDDEN, "steady": 2, "who": {"age": 1.5}, "more": 0.5}, topic="typed_sales"))
    rows, told = world.rows("typed_sales"), noted()
    for column, *types in (("amount", "BIGINT", "STRING"), ("who", "BIGINT", "DOUBLE"), ("more", "DOUBLE")):
        assert all(text in told for text in (column, *types)), told
    assert "steady" not in told
    assert HIDDEN not in told
    assert world.rows("typed_sales") == rows, "nothing is made by a plan"
    world.keep()
    world.check()
    assert noted() == ""


# -- bad input ----------------------------------------------------------------------------------------------------------

DIGITS = b"7" * 400
BAD_INPUT = {
    "garbage": b"\xff\xfe\x00 s3cret",
    "empty": b"",
    "cut short": b'{"a": "s3cret',
    "more after it": b'{"a": 1} "s3cret"',
    "deep lists": b"[" * 10_000 + b'"s3cret"' + b"]" * 10_000,
    "deep objects": b'{"a":' * 10_000 + b'"s3cret"' + b"}" * 10_000,
    "40 levels": b'{"a":' * 40 + b'"s3cret"' + b"}" * 40,
    "no double": b'{"a": "s3cret", "n": 1e999}',
    "no number": b'{"a": "s3cret", "n": NaN}',
    "digits": b'{"a": "s3cret", "n": %s}' % DIGITS,
    "digits of a fraction": b'{"a": "s3cret", "n": %s.5}' % DIGITS,
    "lone surrogate": b'{"a": "\\ud800 s3cret"}',
    "lone surrogate in a name": b'{"\\ud800": "s3cret"}',
    "twice": b'{"a": 1, "a": "s3cret"}',
    "no UTF-8": b'{"a": "\xc3\x28 s3cret"}',
    "UTF-16": '{"a": "s3cret"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a": "s3cret"}',
    "members": json.dumps({f"m{number}": HIDDEN for number in range(5_000)}).encode(),
    "no name": b'{"": "s3cret"}',
    "our names": b'{"_key": "s3cret", "_offset": "s3cret", "value": "s3cret"}',
    "NUL": b'{"a\\u0000b": "s3cret\\u0000"}',
    "no object": b'"s3cret"',
}
NEVER_ROWS = {"garbage", "empty", "cut short", "more after it", "deep lists", "deep objects", "40 levels"}
NEVER_ROWS |= {"no UTF-8", "UTF-16", "members", "no object"}


@pytest.mark.law("E")
def test_law_e_bad_input_stops_no_table_and_no_reason_quotes_it(tmp_path: Path, spark: SparkSession) -> None:
    upsert = {"topics": "sales", "name": "newest", "mode": "upsert"}
    nulls = {"topics": "sales", "name": "nulls", "bad_records": "null"}
    world = World(tmp_path, spark, {"topics": "sales"}, upsert, nulls, {"topics": "orders"})
    world.land({"a": "fine"}, Record({"n": 1}, topic="orders"))
    world.keep()
    bad = [Record(value, key) for key, value in BAD_INPUT.items()] + [Record({"a": "s3cret"}, b"\xff\xfe s3cret")]
    world.land(*bad, Record({"n": 2}, topic="orders"))
    world.keep()
    world.land({"a": "fine again"}, Record({"n": 3}, topic="orders"))
    world.keep()
    world.check("orders")
    wrong = {1 + number for number, key in enumerate(BAD_INPUT) if key in NEVER_ROWS}
    for name in ("sales", "newest"):
        rows, reasons = ({place[3]: told for place, told in of(name).items()} for of in (world.rows, world.bad))
        assert {*rows}.isdisjoint(reasons)
        assert wrong <= {*reasons}
        assert {*rows, *reasons} == {*range(len(bad) + 2)} - ({0} if name == "newest" else set())
        assert all(reason and HIDDEN not in reason and "7777" not in reason for reason in reasons.values())
        assert all(0 < len(reason) < 300 for reason in reasons.values())
    assert len(world.rows("nulls")) == len(bad) + 2
    for name in world.entries:
        assert world.open().verify_table(name).equal, name
