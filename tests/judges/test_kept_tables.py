"""Typed tables that are kept: rows equal the fold of what was produced after kills, erasures and batches cut at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.deaths import Killed, killed
from tests.kit.processes import acting
from tests.kit.typed import World, every_cut
from tests.kit.typed_fold import Record

UPSERT = {"mode": "upsert"}
POINTS = ("table.files_written", "table.bad_recorded", "table.committed", "commit.prepared", "commit.made")


def kills(call: Callable[[], object], point: str, *numbers: int) -> int:
    """Call what is killed whenever it reaches a point for the nth time, of these; return how often it was."""
    deaths = list[str]()

    def die() -> None:
        deaths.append(point)
        killed()

    with ExitStack() as stack:
        for number in numbers:
            stack.enter_context(acting(point, die, nth=number))
        with suppress(Killed):
            call()
    return len(deaths)


# -- upserts ------------------------------------------------------------------------------------------------------------


@pytest.mark.law("F")
def test_law_f_of_a_key_the_newest_record_counts_in_one_order_that_no_batch_changes(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark, *every_cut(3, **UPSERT))
    first = [
        Record({"n": 1}, "deleted", at=100),
        Record(None, "deleted", at=300),
        Record({"n": 1}, "tie", partition=1, at=50),
        Record({"n": 1}, "late", at=90),
        Record(None, "tombstone first", at=80),
        Record({"n": 1}, "reborn", at=10),
        Record(None, "reborn", at=20),
    ]
    second = [
        Record({"n": 2}, "deleted", partition=1, at=200),
        Record({"n": 2}, "tie", partition=0, at=50),
        Record({"n": 2}, "late", at=80),
        Record({"n": 2}, "tombstone first", partition=2, at=70),
        Record({"n": 2}, "reborn", partition=2, at=30),
        Record(None, "deleted", source="west", at=400),
    ]
    third = [
        Record({"n": 3}, "deleted", at=250),
        Record({"n": 3}, "tie", partition=1, at=50),
        Record(None, "tie", partition=0, at=50),
        Record({"n": 3}, "late", at=90),
        Record({"n": 3}, "tombstone first", partition=1, at=80),
        Record(None, "reborn", partition=1, at=25),
        Record({"n": 3}, "deleted", source="west", at=399),
    ]
    world.land_each(first, second, third)
    for name in world.entries:
        assert world.rows(name) == {
            ("east", "sales", 1, 2): '{"_key": "tie", "n": 3}',
            ("east", "sales", 0, 10): '{"_key": "late", "n": 3}',
            ("east", "sales", 1, 3): '{"_key": "tombstone first", "n": 3}',
            ("east", "sales", 2, 1): '{"_key": "reborn", "n": 2}',
        }, name
    # A table that begins again after it was restarted knows of the tombstones, too.
    world.land(Record({"n": 4}, "deleted", partition=2, at=299), Record({"n": 4}, "late", partition=2, at=89))
    world.keep()
    world.check(proves=True)


@pytest.mark.law("F")
@pytest.mark.parametrize("seed", [411, 412])
def test_law_f_every_cut_into_batches_gives_the_same_rows(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, spark, *every_cut(3, **UPSERT))

    def batch() -> list[Record]:
        return [
            Record(
                None if rng.random() < 0.3 else {"n": rng.choice([1, 2**53 + 1, 0.5, "x", [1], None])},
                rng.choice("abcd"),
                rng.choice(["east", "west"]),
                partition=rng.randrange(3),
                at=rng.randrange(8),
            )
            for _ in range(12)
        ]

    world.land_each(batch(), batch(), batch())


# -- erasures -----------------------------------------------------------------------------------------------------------


@pytest.mark.law("C", "F")
def test_law_f_after_an_erasure_tables_are_as_if_the_records_had_never_been_there(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark, {"topics": "sales"}, {"topics": "sales", "name": "newest", **UPSERT})
    named = [("ada", {"n": 1}), ("ada", None), ("bob", {"n": 2}), ("bob", {"n": 3}), ("eve", {"n": 4}), ("fay", b"{")]
    named += [("gus", {"n": 5}), ("gus", {"n": 6}), ("gus", None), ("hal", {"n": 7})]
    records = [Record(value, key) for key, value in named]
    world.land(*records[:4])
    world.keep()
    world.land(*records[4:])
    world.keep()
    world.check(proves=True)
    # Only a tombstone, the newest of a key, its only one, a bad record, and one that a tombstone follows.
    world.erase(1, 3, 4, 5, 7)
    world.check(proves=True)
    assert [row for _, row in sorted(world.rows("newest").items())] == [
        '{"_key": "ada", "n": 1}',
        '{"_key": "bob", "n": 2}',
        '{"_key": "hal", "n": 7}',
    ]
    world.erase(8)
    world.land(Record({"n": 8}, "ada", partition=1, at=0), Record({"n": 9}, "eve"))
    world.keep()
    world.check(proves=True)
    world.rebuild()
    world.check(proves=True)


# -- proofs -------------------------------------------------------------------------------------------------------------


@pytest.mark.law("E")
def test_law_e_verify_finds_each_row_that_is_not_of_its_record(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, {"topics": "sales"}, {"topics": "sales", "name": "newest", **UPSERT})
    world.land(*(Record({"n": number, "who": {"age": number}}, f"k{number}") for number in range(4)), b"{broken")
    world.land(Record({"n": 4}, "k1"), Record(None, "k2"))
    world.keep()
    world.check(proves=True)

    def change(statement: str, name: str) -> list[tuple[str, int]]:
        spark.sql(statement.format(f"delta.`{tmp_path}/lake/tables/{name}`"))
        proof = world.open().verify_table(name)
        assert proof.wrong == len(proof.findings)
        return [(one.kind, one.offset) for one in proof.findings]

    assert change("DELETE FROM {} WHERE _offset = 0", "sales") == [("missing", 0)]
    assert change("UPDATE {} SET who.age = 7 WHERE _offset = 1", "sales")[1:] == [("different", 1)]
    assert change("INSERT INTO {0} SELECT * FROM {0} WHERE _offset = 3", "sales")[2:] == [("doubled", 3)]
    spark.sql(f"DELETE FROM delta.`{world.lake.location('bad_records')}`")  # noqa: S608
    assert change("DELETE FROM {} WHERE _offset = 3", "newest") == [("missing", 3), ("not recorded", 4)]
    assert ("left over", 1) in change("UPDATE {} SET _offset = 1 WHERE _offset = 5", "newest")
    world.rebuild()
    world.check(proves=True)


# -- worlds -------------------------------------------------------------------------------------------------------------

MEMBERS: list[Any] = [10, None, [], {}, 0.5, 2**53 + 1, {"a b": 1, "c": [True]}, [2], "x", {"a b": "y"}]


def produced(rng: random.Random, stage: int) -> Record:
    """Return a record of one topic of the world; kinds are more with each stage."""
    source, topic = rng.choice(["east", "west"]), rng.choice(["sales", "orders"])
    where = {"source": source, "topic": topic, "partition": rng.randrange(3), "at": rng.randrange(300)}
    value: Any = {"id": rng.randrange(1, 99)}
    match rng.random():
        case chance if chance < 0.2:
            value = None
        case chance if chance < 0.3:
            value = rng.choice([b"{broken", b"5", b""])
        case chance if chance < 0.35:
            # The expression of `columns:` fails.
            value = {"id": 0}
        case chance if chance < 0.4:
            return Record(value, None, **where)
        case _:
            value |= {"m": rng.choice(MEMBERS[: 4 + 3 * stage]), "in": {"m": rng.choice(MEMBERS[: 2 + 3 * stage])}}
    return Record(value, rng.choice("abcde"), **where)


@pytest.mark.law("F")
@pytest.mark.parametrize("seed", [4107, 4108])
def test_law_f_fold_table_proof_and_rebuilt_table_agree_at_each_stage(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    rng = random.Random(seed)
    derived = {"topics": "sales", "name": "derived", "columns": {"share": "100 DIV id"}}
    both = {"topics": "sales|orders", "name": "newest", **UPSERT}
    world = World(tmp_path, spark, {"topics": "sales"}, derived, both)
    for stage in range(3):
        for _ in range(rng.randrange(1, 3)):
            world.land(*(produced(rng, stage) for _ in range(rng.randrange(5, 25))))
            kills(world.keep, rng.choice(POINTS[:3]), rng.randrange(1, 4))
        world.keep()
        world.check()
        # Erasing leaves kinds behind, so only records are erased that bring none of their own.
        plain = [one for one in world.records if one.place not in world.gone and b'"m"' not in (one.value or b"")]
        gone = rng.choice(plain)
        world.erase(gone.offset, source=gone.source, topic=gone.topic, partition=gone.partition)
        world.check(proves=True)
    world.rebuild()
    world.check(proves=True)


@pytest.mark.law("F")
def test_law_f_thirty_kills_in_commits_to_tables_that_exist_leave_each_record_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark, {"topics": "sales"}, {"topics": "sales", "name": "newest", **UPSERT})
    world.land({"n": 0})
    world.keep()
    deaths = 0
    for number, point in zip(range(1, 40), cycle(POINTS), strict=False):
        key, broken = f"k{number % 7}", [b"{broken"] if point == "table.bad_recorded" else []
        world.land(Record({"n": number}, key), Record(None if number % 5 else {"n": -number}, key), *broken)
        # Both tables are killed at this point.
        deaths += kills(world.keep, point, 1, 2)
        if deaths >= 30:
            break
    assert deaths >= 30
    world.keep()
    world.check(proves=True)
