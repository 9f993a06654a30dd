"""A table that is built again is that of a table made from scratch, whatever became of the old one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.tables import TableWriter, landed_topics, list_tables
from mirrorlake.tables.commits import Overtaken
from tests.spark.tables.kit import NOON, Make, Regions, bad, past_records, rows


@pytest.mark.law("F", "G")
def test_law_f_a_rebuilt_table_is_that_of_a_table_made_from_scratch_and_goes_on(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}), ("b", b"{broken"))
    mirror.keep_tables(once=True)
    mirror = make({"topics": "sales", "schema": "n BIGINT, more STRING"})
    mirror.lake.spark.sql(f"DELETE FROM delta.`{mirror.lake.typed_location('sales')}`")  # noqa: S608
    regions.land("east", "sales", ("c", {"n": 2, "more": "x"}), ("d", {"n": "text"}))
    planned = mirror.rebuild_table("sales")
    assert (planned.planned, planned.old, planned.old_rows) == (True, "ok", 0)
    assert rows(mirror, "sales", "n") == []
    [table] = list_tables(mirror.config, landed_topics(mirror.lake, ["east"]))
    writer = TableWriter(mirror.lake, table, owner="slow", now=lambda: NOON)
    writer.open()
    done = mirror.rebuild_table("sales", apply=True)
    assert (done.old, done.rows, done.bad_records) == ("ok", 2, 2)
    with pytest.raises(Overtaken):
        writer.write(past_records(mirror, "sales", first=2))
    assert mirror.lake.typed("sales").columns[-2:] == ["n", "more"]
    regions.land("east", "sales", ("e", {"n": 5}))
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "_offset", "n", "more") == [(0, 1, None), (2, 2, "x"), (4, 5, None)]
    assert [offset for _, _, offset, _ in bad(mirror)] == [1, 3]
    assert mirror.lake.typed_names() == ["sales"]
    with pytest.raises(UsageError, match="no entry of `tables:` makes the table orders"):
        mirror.rebuild_table("orders")


@pytest.mark.law("F")
@pytest.mark.parametrize("fate", ["lost", "broken"])
def test_law_f_a_table_that_is_lost_or_broken_is_built_again(make: Make, fate: str) -> None:
    mirror = make({"topics": "sales", "mode": "upsert"})
    regions = Regions(mirror)
    for number in range(3):
        regions.land("east", "sales", ("a", {"n": number}))
        mirror.keep_tables(once=True)
    regions.land("east", "sales", ("a", {"n": 2}), ("b", {"n": 3}))
    mirror.keep_tables(once=True)
    location = Path(mirror.lake.typed_location("sales"))
    [table] = list_tables(mirror.config, landed_topics(mirror.lake, ["east"]))
    writer = TableWriter(mirror.lake, table, owner="slow", now=lambda: NOON)
    writer.open()
    if fate == "lost":
        shutil.rmtree(location)
    else:
        for commit in (location / "_delta_log").glob("*.json"):
            commit.write_text("{")
    mirror = make({"topics": "sales", "mode": "upsert"})
    assert mirror.rebuild_table("sales").old == fate
    done = mirror.rebuild_table("sales", apply=True)
    assert (done.old, done.rows, bool(done.moved_to)) == (fate, 2, fate == "broken")
    regions.land("east", "sales", ("b", {"n": 4}))
    with pytest.raises(Overtaken):
        writer.write(past_records(mirror, "sales", first=5))
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "_key", "n") == [("a", 2), ("b", 4)]
