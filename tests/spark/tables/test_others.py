"""What others do to a typed table: write it, erase, restore, expire or compact it, lose its folder, die while they make it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake import Mirror
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import removed_from
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.maintenance.typed_tables import expire_tables, unread_by_tables
from mirrorlake.tables import find_tables
from mirrorlake.tables.progress import Overtaken, TableRelay, session_of
from mirrorlake.tables.writer import TableWriter
from tests.kit.deaths import dying
from tests.kit.lake import NOON
from tests.kit.typed import BOTH, UPSERT, World
from tests.kit.typed_fold import Record


def waiting(world: World) -> list[Callable[[], object]]:
    """Read what waits for each table as its next batch; return what writes these batches."""
    context, late = world.open()._context, list[Callable[[], object]]()
    for table in find_tables(context):
        session = session_of(world.spark)
        relay = TableRelay(context.lake, table, session)
        writer = TableWriter(context, table, session, owner="slow")
        writer.open()
        batch = relay.past(writer.progress.positions).persist()
        assert batch.count()
        late.append(partial(writer.write, batch))
    return late


def erase(world: World) -> None:
    with dying("remove.purged"):
        world.erase(0, 2, 4)
    again = world.open().erase("east", "sales", where="offset = 9", reason="again", apply=True)
    assert (again.records, again.finished) == (0, 3)
    world.gone |= {("east", "sales", 0, offset) for offset in (0, 2, 4)}


def lose(world: World) -> None:
    for name in world.entries:
        shutil.rmtree(world.location(name))
        assert world.open().rebuild_table(name).old == "lost"
        world.rebuild(name)


ACTS: dict[Callable[[World], object], type[Exception]] = {
    erase: Overtaken,
    World.rebuild: Overtaken,
    lose: Overtaken,
    World.keep: SafetyError,
}


@pytest.mark.law("F")
def test_law_f_a_batch_that_was_read_before_is_dropped(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, *BOTH, sources=("east",))
    world.land(Record({"n": 1}, "ada"), Record({"n": 2}, "bob"))
    world.keep()
    for act, error in ACTS.items():
        world.land(Record({"n": 3}, "ada"), Record({"n": 4}, "bob"), Record(b"{broken", "ada"))
        late = waiting(world)
        act(world)
        for write in late:
            with pytest.raises(error):
                write()
        world.keep()
        world.check()
    world.check(proves=True)


@pytest.mark.law("F")
def test_law_f_a_table_that_was_restored_goes_on_and_one_that_was_lost_or_whose_creator_was_killed_is_made(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark, *BOTH, sources=("east",))
    world.land(Record({"n": 1}, "a"), Record({"n": 1}, "b"))
    world.keep()
    versions = {name: DeltaTable(world.location(name)).version() for name in world.entries}
    world.land(Record({"n": 2}, "a"), b"{broken", Record(None, "b"))
    world.keep()
    for name, version in versions.items():
        spark.sql(f"RESTORE TABLE delta.`{world.location(name)}` TO VERSION AS OF {version}")
    world.land(Record({"n": 3}, "c"), Record({"n": 3}, "b", partition=1, at=0))
    world.keep()
    world.check(proves=True)
    for name, lost in zip(world.entries, ("", "_delta_log"), strict=True):
        shutil.rmtree(world.location(name) / lost)
        with pytest.raises(UsageError, match="was never written"):
            world.open().verify_table(name)
    world.land({"n": "x"})
    world.keep()
    world.check(proves=True)


@pytest.mark.law("F")
def test_law_f_two_generations_of_a_partition_are_read_once_each(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, *BOTH, sources=("east",))

    def land(generation: int, *offsets: int) -> None:
        plain = {"generation": generation, "timestamp": NOON + timedelta(seconds=offsets[-1]), "key": b"k"}
        world.lake.land("sales", 0, offsets, **plain, value=b'{"n": %d}' % generation)
        world.lake.position("landed", offsets[-1] + 1, topic="sales", generation=generation)

    world.land({"n": 1}, {"n": 1})
    world.keep()
    world.lake.observe("sales", topic_id="made again", generation=2, partitions=3)
    for generation, *offsets in ((2, 0, 1), (1, 2), (2, 2)):
        land(generation, *offsets)
        world.keep()
    expected = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert world.columns("sales", "_generation", "_offset") == expected
    assert world.columns("newest", "_generation", "_offset", "n") == [(2, 2, 2)]
    assert [one.offset_lag for one in world.open().tables().tables] == [0, 0]
    assert all(world.open().verify_table(name).equal for name in world.entries)


def upkeep(mirror: Mirror) -> LakeUpkeep:
    config, now = mirror.config, datetime.now(timezone.utc) + timedelta(days=9)
    known: Any = {"clusters": config.clusters, "needed": unread_by_tables(mirror._context)}
    return LakeUpkeep(mirror.lake, config.maintenance, now=lambda: now, **known)


def offsets_on_disk(world: World, name: str) -> set[int]:
    files = [path for path in world.location(name).rglob("*.parquet") if "_delta_log" not in path.parts]
    return {offset for path in files for offset in pq.ParquetFile(path).read(["_offset"])["_offset"].to_pylist()}


@pytest.mark.law("C", "F")
def test_law_f_erased_records_leave_the_files_of_partitioned_tables(tmp_path: Path, spark: SparkSession) -> None:
    by = {"partition_by": ["_source", "_partition"]}
    world = World(tmp_path, spark, *({**entry, **by} for entry in BOTH))
    world.land(
        *(Record({"n": number}, key) for number, key in enumerate("abcd")), b"{broken", Record({}, source="west")
    )
    world.keep()
    world.erase(1, 4)
    world.check(proves=True)
    assert all(offsets_on_disk(world, name).isdisjoint({1, 4}) for name in world.entries)
    assert removed_from(world.open().lake, "east")[-1].evidence["tables"] == {"newest": 1, "sales": 1}


@pytest.mark.law("C", "F")
def test_law_f_deletion_vectors_that_a_person_set_spare_rows_and_hide_no_erased_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark, {"topics": "sales", **UPSERT}, sources=("east",))
    world.land(*(Record({"n": number}, f"k{number}") for number in range(20)))
    world.keep()
    mirror, place = world.open(), str(world.location("sales"))
    spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")

    world.land(Record({"n": 100}, "k1"), Record({"n": 101}, "k2"), Record({"n": 102}, "new"))
    world.keep()
    assert int(DeltaTable(place).history(1)[0]["operationMetrics"]["numTargetRowsCopied"]) == 0
    assert mirror.query("SELECT count(*) AS n FROM sales").to_pylist() == [{"n": 21}]
    assert [(one.state, one.offset_lag) for one in mirror.tables().tables] == [("ok", 0)]
    assert (mirror.table("sales").rows, mirror.table("sales").newest) == (None, ()), "files hold replaced rows, too"
    kept: Any = upkeep(mirror).typed_table("sales", plan=False)
    assert (kept.why_not, kept.files) == ("", 1)
    world.land(Record({"n": 300}, "k1"))
    world.keep()
    # A newer record of its key has its row, and the file named it still, behind a vector.
    world.erase(20)
    assert 20 not in offsets_on_disk(world, "sales")
    # By Spark: delta-rs does not know deletion vectors.
    found = spark.read.format("delta").load(place).select("_offset", "_key", "n").collect()
    expected = [(offset, *json.loads(row).values()) for (*_, offset), row in world.expected("sales")[0].items()]
    assert sorted(map(tuple, found)) == sorted(expected)
    assert world.open().verify_table("sales").equal


@pytest.mark.law("E", "F")
def test_law_f_rows_past_a_retention_leave_their_tables_alone_and_do_not_come_back(
    tmp_path: Path, spark: SparkSession
) -> None:
    hour = {"retention": "1h"}
    world = World(tmp_path, spark, *({**entry, **hour} for entry in BOTH), {**BOTH[0], "name": "all"})
    old = [Record({"n": 1}, "a", at=0), Record({"n": 2}, "b", at=1), Record(None, "b", at=2)]
    world.land(*old, Record({"n": 3}, "c", at=3_600))
    world.keep()
    mirror = world.open()
    for minutes, plan, expected in ((5, False, [0, 0]), (7, True, [1, 3]), (7, False, [1, 3])):
        mirror._context.now = lambda minutes=minutes: NOON + timedelta(hours=1, minutes=minutes)
        kept = [(one.table, one.why_not, one.expired.records) for one in expire_tables(mirror._context, plan=plan)]
        assert kept == [("table newest", "", expected[0]), ("table sales", "", expected[1])]
    world.land(Record({"n": 4}, "b", at=1), Record({"n": 5}, "c", at=3_601))
    world.keep()
    assert world.columns("all", "n") == [(1,), (2,), (None,), (3,), (4,), (5,)]
    # A late record stays until the next maintenance.
    assert (world.columns("sales", "n"), world.columns("newest", "n")) == ([(3,), (4,), (5,)], [(5,)])
    assert all(mirror.verify_table(name).equal for name in world.entries)


@pytest.mark.law("E")
def test_law_e_what_a_table_has_not_read_stays_in_the_relay_and_a_compacted_table_goes_on(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "compaction_fanout=2")
    world = World(tmp_path, spark, *BOTH, sources=("east",))
    world.east = {"retention": {".*": {"age": "1h"}}}

    def expire() -> list[tuple[str, int]]:
        kept: Any = upkeep(world.open()).relay("east", [], is_published=False, plan=False)
        assert (kept.why_not, kept.expired.records) == ("", 1)
        return [(one.held_by, one.records) for one in kept.held]

    world.land(Record({"n": 1}, "a"))
    world.keep()
    world.land(Record({"n": 2}, "b"))
    world.keep("sales")
    assert expire() == [("table newest", 1)]
    world.keep()
    assert expire() == []
    for name in world.entries:
        kept: Any = upkeep(world.open()).typed_table(name, plan=False)
        assert (kept.why_not, kept.compacted.files, kept.files) == ("", 2, 1)
    world.land(Record({"n": 3}, "c"))
    world.keep()
    for name in world.entries:
        assert world.columns(name, "n") == [(1,), (2,), (3,)]
        proof = world.open().verify_table(name)
        assert (proof.equal, proof.rows, proof.not_compared) == (True, 1, 2)
