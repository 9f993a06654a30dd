"""Typed tables of a running mirror: one query for all of them, and what happens to one is nothing to the others."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.errors import UsageError
from mirrorlake.tables import SharedQuery, TableStream, find_tables
from mirrorlake.tables.progress import app_of
from mirrorlake.topics import settings_in_force
from tests.kit.lake import NOON
from tests.kit.processes import beside, wait_until
from tests.kit.typed import BOTH, UPSERT, World
from tests.kit.typed_fold import Record


def has(world: World, name: str, number: int) -> bool:
    with suppress(Exception):
        return (number,) in world.columns(name, "n")
    return False


@pytest.mark.law("E", "F")
def test_law_f_one_query_keeps_all_tables_and_what_happens_to_one_leaves_the_others_alone(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mirrorlake")
    every, numbers = {"topics": "sales", "every": "1s"}, count()
    stops, late = {**every, "name": "stops", "bad_records": "stop"}, {**every, "name": "late", **UPSERT}
    world = World(tmp_path, spark, every, {**every, "name": "newest", **UPSERT}, stops)

    def land(*names: str, more: tuple[Any, ...] = ()) -> None:
        number = next(numbers)
        world.land({"n": number}, Record({"n": number}, "b", "west"), *more)
        wait_until(lambda: failures or all(has(world, name, number) for name in names), f"{names} have {number}")
        assert not failures

    def messages(sign: str) -> list[str]:
        return [one.getMessage() for one in caplog.records if sign in one.getMessage()]

    world.land({"n": -1}, Record({"n": -1}, source="west"))
    mirror = world.open()
    settings_in_force.put_in_force(mirror.config, mirror._context.control())
    with beside(lambda stop: mirror.keep_tables(stop=stop)) as failures:
        land("sales", "newest", "stops")
        mirror.pause(table="sales", reason="a look first")
        wait_until(lambda: failures or messages("stream.stop"), "it stops")
        # A batch under way may be its last.
        land("newest", "stops")
        land("newest", "stops")
        assert not has(world, "sales", 2)
        mirror.resume(table="sales")
        wait_until(lambda: failures or has(world, "sales", 2), "it has caught up")
        # The relay's files are rewritten beside the query, which takes no record of them for a new one.
        world.erase(3)
        world.expire(1)
        for place in (world.relay("west"), world.location("sales")):
            DeltaTable(place).optimize.compact()
        land("sales", "newest", "stops")
        land("sales", "newest", more=(Record(b"{broken", "c"),))
        wait_until(lambda: {*mirror.parked()} == {"table stops"}, "it is parked")
        world.set_tables(*world.entries.values(), late)
        edited = world.open()
        settings_in_force.put_in_force(edited.config, edited._context.control())
        land("sales", "newest", "late")
        land("sales", "newest", "late")
    # One of all tables, and another where an erasure had all of them leave it at once.
    assert {*messages("tables.query_started")} == {"tables.query_started sources=east,west every_s=1"}
    assert {one.name: one.state for one in world.open().tables().tables}["stops"] == "parked"
    assert [n for (n,) in world.columns("stops", "n")] == [-1, 0, 1, 3, -1, 0, 1, 2, 3]
    world.check("sales", "newest", "late")
    for name in world.entries:
        versions = [DeltaTable(world.location(name)).transaction_version(app_of(other)) for other in world.entries]
        assert [version is not None for version in versions] == [name == other for other in world.entries]


@pytest.mark.law("F")
@pytest.mark.parametrize("held_at", [1, 2], ids=["before the query", "in the query"])
def test_law_f_a_query_goes_on_when_maintenance_has_deleted_commits_that_it_has_not_read(
    tmp_path: Path, spark: SparkSession, held_at: int
) -> None:
    world = World(tmp_path, spark, {"topics": "sales", "every": "1s"})
    world.land({"n": 0}, Record({"n": 0}, source="west"))
    context = world.open()._context
    [table] = find_tables(context)
    told, held, go = count(1), threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        if next(told) == held_at:
            held.set()
            assert go.wait(300)

    stream = TableStream(context, table, tell=hold, queries=SharedQuery(context))
    with beside(lambda stop: stream.run(stop, once=False)) as failures:
        # A query that has not started yet reads none of these.
        wait_until(lambda: failures or world.land({"n": 0}) or held.wait(3), "a batch is held")
        world.land({"n": 100})
        world.land({"n": 101})
        relay: Any = context.lake.open_maintenance(world.relay("east"))
        relay.ensure_properties({"delta.logRetentionDuration": "interval 0 seconds"})
        relay.checkpoint(after=0)
        assert relay.clean_log(keep=timedelta(0), now=NOON + timedelta(days=9_999), is_signed=False)
        go.set()
        wait_until(lambda: failures or has(world, "sales", 101), "the query goes on")
    world.check(proves=True)


# What its first records lack, a later one brings; the other one is mended in the settings.
LATER = {
    "lies": {"partition_by": "n, no"},
    "low": {"columns": {"low": "lower(no)"}},
}
AT_FAULT = {**LATER, "who": {"partition_by": ["who"]}}
REASONS = {
    "lies": r"\.partition_by\[1\]\): its first records have no",
    "low": r"\.columns\.low: the table low",
    "who": r"its column who is struct<age:bigint>",
}


def test_a_table_that_is_paused_or_at_fault_waits_alone_until_it_is_mended(tmp_path: Path, spark: SparkSession) -> None:
    late, sales = {"topics": "late"}, {"topics": "sales"}
    faults = [{**sales, "name": name, **entry} for name, entry in AT_FAULT.items()]
    world = World(tmp_path, spark, sources=("east",))
    twice = [{"topics": "twice"}, {"topics": "orders", "name": "twice"}]
    world.entries = {str(number): entry for number, entry in enumerate([sales, *faults, *twice, late])}
    for topic in ("sales", "orders", "twice", "late"):
        world.land(Record({"n": 1, "who": {"age": 3}}, topic=topic))
    world.open().pause(table="sales", reason="a look first")
    with pytest.raises(UsageError):
        world.keep()
    assert world.columns("late", "n") == [(1,)]
    tables = {one.name: one for one in world.open().tables().tables}
    states = {name: one.state for name, one in tables.items()}
    parked = dict.fromkeys(AT_FAULT, "parked")
    assert states == {"sales": "paused", "twice": "fault", "late": "ok", **parked}
    assert re.search(r"tables\[4\] and tables\[5\]", tables["twice"].why())
    for name, reason in REASONS.items():
        assert re.search(reason, tables[name].why()), tables[name].why()
    world.open().resume(table="sales")
    world.land({"n": 2, "no": "X"})
    world.set_tables(
        sales, *({**sales, "name": name, **entry} for name, entry in LATER.items()), {**sales, "name": "who"}, late
    )
    world.keep()
    assert all(world.columns(name, "n")[0] == (1,) for name in world.entries)
    assert {one.state for one in world.open().tables().tables} == {"ok"}


def test_a_table_is_not_written_by_settings_that_its_rows_contradict(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark, BOTH[0], sources=("east",))
    world.land({"n": 1}, {"n": 2})
    world.keep()
    world.set_tables({**BOTH[0], **UPSERT})
    with pytest.raises(UsageError, match="the table sales was made with mode: append, and the settings say upsert"):
        world.keep()
    world.rebuild()
    world.open().resume(table="sales")
    world.land({"n": 3, "times": 1})
    world.keep()
    world.check(proves=True)
