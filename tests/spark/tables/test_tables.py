"""Typed tables over relays: rows equal a fold over the records, whatever repeats, restarts or changes its type."""

from __future__ import annotations

import json
import random
import threading
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.tables import TableStream, TableWriter, landed_topics, list_tables
from tests.kit.processes import beside, wait_until
from tests.spark.tables.kit import NOON, Make, Regions, bad, past_records, rows


def test_each_record_of_all_regions_is_one_row_or_a_bad_record(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"id": 1, "amount": 1.5}), (None, None), ("b", b"{broken"))
    regions.land("west", "sales", ("a", {"id": 2, "tags": ["new"]}), ("a", b"5"))
    [done] = mirror.keep_tables(once=True)
    assert (done.table, done.records, done.bad) == ("sales", 5, 2)
    assert rows(mirror, "sales", "_source", "_offset", "_key", "id", "amount", "tags") == [
        ("east", 0, "a", 1, 1.5, None),
        ("east", 1, None, None, None, None),
        ("west", 0, "a", 2, None, ["new"]),
    ]
    assert bad(mirror) == [
        ("sales", "east", 2, "the value is not JSON: object keys must be strings (byte 1)"),
        ("sales", "west", 1, "the value is a number, where the table has members"),
    ]
    [done] = mirror.keep_tables(once=True)
    assert done.records == 0
    assert len(rows(mirror, "sales", "id")) == 3
    [status] = mirror.tables().tables
    assert (status.state, status.offset_lag, status.bad_records) == ("ok", 0, 2)


def test_law_f_an_upserted_table_is_the_newest_record_of_each_key_however_the_batches_fall(make: Make) -> None:
    seed = 3011
    rng = random.Random(seed)
    mirror = make({"topics": "customers", "mode": "upsert"})
    regions = Regions(mirror)
    for batch in range(4):
        for source in ("east", "west"):
            for partition in (0, 1):
                pairs = [
                    (f"{partition}-{rng.randrange(6)}", rng.choice([None, {"n": rng.randrange(99), "batch": batch}]))
                    for _ in range(8)
                ]
                regions.land(source, "customers", *pairs, partition=partition)
        if batch != 1:
            mirror.keep_tables(once=True)
        found = {
            (source, key): {"n": n, "batch": of}
            for source, key, n, of in rows(mirror, "customers", "_source", "_key", "n", "batch")
        }
        if batch != 1:
            assert found == regions.newest("customers"), seed
    mirror.keep_tables(once=True)
    stored = rows(mirror, "customers", "_timestamp", "_source", "_key")
    assert len(stored) == len(regions.newest("customers"))
    page = mirror.table("customers", newest=5)
    newest = [(row["_source"], row["_key"]) for row in page.newest]
    assert (page.rows, newest) == (len(stored), [one[1:] for one in sorted(stored, reverse=True)[:5]])


def test_law_f_a_second_writer_drops_its_batch_and_stops(make: Make) -> None:
    mirror = make({"topics": "sales"}, {"topics": "customers", "mode": "upsert"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"id": 1}))
    regions.land("east", "customers", ("a", {"n": 1}))
    mirror.keep_tables(once=True)
    writers = {}
    for table in list_tables(mirror.config, landed_topics(mirror.lake, ["east"])):
        writers[table.name] = TableWriter(mirror.lake, table, owner="slow", now=lambda: NOON)
        writers[table.name].open()
    regions.land("east", "sales", ("b", {"id": 2}))
    regions.land("east", "customers", ("a", {"n": 2}))
    late = {name: past_records(mirror, name, first=1) for name in writers}
    regions.land("east", "customers", ("a", None))
    mirror.keep_tables(once=True)
    for name, writer in writers.items():
        with pytest.raises(SafetyError, match=f"another run writes the table {name}"):
            writer.write(late[name])
    assert rows(mirror, "sales", "id") == [(1,), (2,)]
    assert rows(mirror, "customers", "n") == []


def test_a_type_that_changes_widens_the_column_and_keeps_what_was_there(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1, "who": {"age": 3}, "list": [1]}))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("a", {"n": 2.5, "who": {"age": "old", "name": "x"}, "list": [0.5]}))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("a", {"n": 2**70, "list": "none"}))
    mirror.keep_tables(once=True)
    assert dict(mirror.lake.typed("sales").dtypes)["n"] == "string"
    found = [
        (n, tuple(who.values()) if who else None, lines) for n, who, lines in rows(mirror, "sales", "n", "who", "list")
    ]
    assert found == [
        ("1.0", ("3", None), "[1.0]"),
        ("2.5", ("old", "x"), "[0.5]"),
        (str(2**70), None, "none"),
    ]
    assert bad(mirror) == []


def test_where_changes_are_refused_a_record_that_does_not_fit_is_a_bad_record(make: Make) -> None:
    mirror = make({"topics": "sales", "changes": "refuse"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("a", {"n": "x"}), ("a", {"n": 2, "more": 1}), ("a", {"n": 3}))
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "n") == [(1,), (3,)]
    assert [reason for *_, reason in bad(mirror)] == [
        "n is text, which is not BIGINT",
        "more is no column, and the table takes no new ones",
    ]


def test_columns_of_the_settings_have_their_types_and_derived_ones_are_computed(make: Make) -> None:
    schema = "amount DECIMAL(12,2), sold_at TIMESTAMP, prices MAP<STRING, DOUBLE>"
    columns = {"cents": "CAST(amount * 100 AS BIGINT)", "day": "to_date(sold_at)"}
    mirror = make({"topics": "sales", "schema": schema, "columns": columns})
    regions = Regions(mirror)
    good = {"amount": 12.34, "sold_at": "2026-07-01T23:59:59+00:00", "prices": {"EUR": 1}, "left out": 1}
    regions.land("east", "sales", ("a", good), ("a", {"amount": 0.001}), ("a", {"sold_at": 5}))
    mirror.keep_tables(once=True)
    [row] = rows(mirror, "sales", "amount", "prices", "cents", "day")
    assert (str(row[0]), row[1], row[2], str(row[3])) == ("12.34", [("EUR", 1.0)], 1234, "2026-07-01")
    assert [reason for *_, reason in bad(mirror)] == [
        "amount is a number, which DECIMAL(12,2) does not hold exactly",
        "sold_at is a number, which is not TIMESTAMP",
    ]


def test_bad_records_may_be_rows_of_nulls_or_stop_the_table(make: Make) -> None:
    mirror = make(
        {"topics": "sales", "bad_records": "null", "name": "nulls"},
        {"topics": "sales", "bad_records": "stop", "name": "stops"},
    )
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("a", b"{broken"), ("a", {"n": 2}))
    mirror.keep_tables("nulls", once=True)
    assert rows(mirror, "nulls", "_offset", "n") == [(0, 1), (1, None), (2, 2)]
    with pytest.raises(UsageError, match="east sales/0@1 is no row of stops: the value is not JSON"):
        mirror.keep_tables("stops", once=True)
    assert rows(mirror, "stops", "n") == [(1,)]


def test_a_table_that_was_restored_to_an_older_version_goes_on_from_there(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}))
    mirror.keep_tables(once=True)
    location = mirror.lake.typed_location("sales")
    version = mirror.lake.version(location)
    regions.land("east", "sales", ("a", {"n": 2}), ("a", b"{broken"))
    mirror.keep_tables(once=True)
    mirror.spark.sql(f"RESTORE TABLE delta.`{location}` TO VERSION AS OF {version}")
    regions.land("east", "sales", ("a", {"n": 3}))
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "n") == [(1,), (2,), (3,)]
    assert len(bad(mirror)) == 1


def test_a_running_query_is_that_of_all_tables_and_one_that_is_paused_or_fails_leaves_alone(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    every = {"every": "1s"}
    mirror = make(
        {"topics": "sales", **every},
        {"topics": "customers", "mode": "upsert", **every},
        {"topics": "orders", "bad_records": "stop", **every},
    )
    regions = Regions(mirror)
    names = ("sales", "customers", "orders")

    def land(number: int) -> None:
        for source, topic in zip(("east", "west", "east"), names, strict=True):
            regions.land(source, topic, ("a", {"n": number}))

    def await_rows(*wanted: tuple[str, int]) -> None:
        wait_until(
            lambda: failures or all((number,) in _seen(mirror, name) for name, number in wanted), f"rows {wanted}"
        )
        assert not failures

    land(0)
    caplog.set_level("INFO", logger="mirrorlake")
    with beside(lambda stop: mirror.keep_tables(stop=stop)) as failures:
        await_rows(*((name, 0) for name in names))
        land(1)
        await_rows(*((name, 1) for name in names))
        mirror.pause(table="sales", reason="a look first")
        wait_until(lambda: failures or any("stream.stop" in one.getMessage() for one in caplog.records), "it stops")
        land(10)
        await_rows(("customers", 10), ("orders", 10))
        assert (10,) not in _seen(mirror, "sales")
        mirror.resume(table="sales")
        await_rows(("sales", 10))
        regions.land("east", "orders", ("a", "{broken"))
        land(2)
        await_rows(("sales", 2), ("customers", 2))
        land(3)
        await_rows(("sales", 3), ("customers", 3))
        # Other processes are told at the next look of the run.
        wait_until(
            lambda: {one.name for one in mirror.tables().tables if one.state == "parked"} == {"orders"},
            "the table that failed is parked, and no other one",
        )
    started = [one.getMessage() for one in caplog.records if "tables.query_started" in one.getMessage()]
    assert sorted(started) == [
        "tables.query_started sources=east every_s=1",
        "tables.query_started sources=west every_s=1",
    ]
    assert rows(mirror, "sales", "n") == [(0,), (1,), (10,), (2,), (3,)]
    assert rows(mirror, "orders", "n") == [(0,), (1,), (10,)]


@pytest.mark.law("F")
@pytest.mark.parametrize("held_at", [1, 2], ids=["before the query", "in the query"])
def test_law_f_a_query_goes_on_when_maintenance_has_deleted_commits_that_it_has_not_read(
    make: Make, held_at: int
) -> None:
    mirror = make({"topics": "sales", "every": "1s"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 0}))
    regions.land("west", "sales", ("a", {"n": 0}))
    [table] = list_tables(mirror.config, landed_topics(mirror.lake, ["east", "west"]))
    batches, held, go = count(1), threading.Event(), threading.Event()

    def hold(*_report: Any) -> None:
        if next(batches) == held_at:
            held.set()
            assert go.wait(300)

    stream = TableStream(mirror._context, table, tell=hold)
    with beside(lambda stop: stream.run(stop, once=False)) as failures:
        if held_at == 2:
            wait_until(lambda: failures or _seen(mirror, "sales"), "the first batch is written")
            wait_until(lambda: failures or _land_until(regions, held), "a batch of the query is held")
        assert held.wait(300)
        for number in (100, 101, 102):
            regions.land("east", "sales", ("a", {"n": number}))
        relay = mirror.lake.open_maintenance(mirror.lake.relay_location("east"))
        assert relay is not None
        relay.ensure_properties({"delta.logRetentionDuration": "interval 0 seconds"})
        relay.checkpoint(after=0)
        assert relay.clean_log(keep=timedelta(0), now=NOON, is_signed=False)
        go.set()
        wait_until(lambda: failures or (102,) in _seen(mirror, "sales"), "the query goes on")
    landed = [json.loads(value)["n"] for _, _, _, _, _, value in sorted(regions.records) if value]
    assert rows(mirror, "sales", "n") == [(number,) for number in landed]


def _land_until(regions: Regions, held: threading.Event) -> bool:
    """Land a record, and tell whether a batch is held; a query that has not started yet reads none."""
    regions.land("east", "sales", ("a", {"n": len(regions.records)}))
    return held.wait(3)


def _seen(mirror: Mirror, name: str) -> list[tuple[Any, ...]]:
    return rows(mirror, name, "n") if mirror.lake.exists(mirror.lake.typed_location(name)) else []


def test_a_paused_table_waits_while_others_go_on(make: Make) -> None:
    mirror = make({"topics": "sales|orders"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}))
    regions.land("east", "orders", ("a", {"n": 1}))
    mirror.pause(table="sales", reason="a look first")
    done = {one.table: one for one in mirror.keep_tables(once=True)}
    assert (done["sales"].records, len(done["sales"].paused), done["orders"].records) == (0, 1, 1)
    assert {one.name: one.state for one in mirror.tables().tables} == {"sales": "paused", "orders": "ok"}
    mirror.resume(table="sales")
    assert sum(one.records for one in mirror.keep_tables(once=True)) == 1


def test_two_entries_that_make_one_table_are_its_fault_alone(make: Make) -> None:
    mirror = make({"topics": "sales"}, {"topics": "orders", "name": "sales"}, {"topics": "customers"})
    regions = Regions(mirror)
    for topic in ("sales", "orders", "customers"):
        regions.land("east", topic, ("a", {"n": 1}))
    with pytest.raises(UsageError, match=r"tables\[0\] and tables\[1\]"):
        mirror.keep_tables(once=True)
    assert rows(mirror, "customers", "n") == [(1,)]
    assert {one.name: one.state for one in mirror.tables().tables} == {"sales": "fault", "customers": "ok"}
