"""Erasures reach the typed tables: rows of erased records leave them, whatever batch is under way."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mirrorlake.lake import removed_from
from mirrorlake.maintenance import Erasure, Selector
from mirrorlake.maintenance.erasure import Eraser
from mirrorlake.maintenance.typed_tables import out_of_typed_tables
from mirrorlake.mirror import Mirror
from mirrorlake.tables import TableWriter, landed_topics, list_tables
from mirrorlake.tables.commits import Overtaken
from tests.kit.deaths import dying
from tests.spark.tables.kit import NOON, Make, Regions, account, bad, past_records, rows


def erase(mirror: Mirror, topic: str, **by: Any) -> Erasure:
    """Erase records without asking the targets, which are away."""
    eraser = Eraser(
        mirror.lake,
        "east",
        [],
        on_target=lambda *_: "",
        now=lambda: datetime.now(timezone.utc),
        out_of_tables=partial(out_of_typed_tables, mirror._context),
    )
    return eraser.erase(topic, Selector(**by), "she asked")


def on_disk(mirror: Mirror, name: str) -> set[tuple[str, int]]:
    found = set()
    for path in Path(mirror.lake.typed_location(name)).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            # Spark leaves the partition's column out of the file.
            source = next((part.partition("=")[2] for part in path.parts if part.startswith("_source=")), None)
            for row in pq.ParquetFile(path).read().to_pylist():
                found.add((source or row["_source"], row["_offset"]))
    return found


@pytest.mark.law("C", "F")
def test_law_f_rows_of_erased_records_leave_every_table_and_older_records_of_their_keys_come_back(make: Make) -> None:
    mirror = make(
        {"topics": "sales", "partition_by": ["_source", "_topic"]},
        {"topics": "sales", "name": "newest", "mode": "upsert", "partition_by": ["_source", "_partition"]},
    )
    regions = Regions(mirror)
    regions.land("east", "sales", ("ada", {"n": 1}), ("bob", {"n": 2}), ("ada", b"{broken"), ("eve", {"n": 3}))
    regions.land("west", "sales", ("ada", {"n": 4}))
    account(mirror)
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("bob", {"n": 5}), ("eve", None), ("eve", {"n": 5}), ("ada", {"n": 6}))
    account(mirror)
    mirror.keep_tables(once=True)
    assert len(bad(mirror)) == 2
    done = erase(mirror, "sales", where="value.n = 5")
    assert (done.records, done.rows_of_tables) == (2, {"newest": 2, "sales": 2})
    assert rows(mirror, "newest", "_source", "_key", "n") == [
        ("east", "bob", 2),
        ("east", "ada", 6),
        ("west", "ada", 4),
    ]
    done = erase(mirror, "sales", key=b"ada")
    assert (done.records, done.rows_of_tables) == (3, {"newest": 1, "sales": 2})
    assert rows(mirror, "sales", "_source", "_offset", "n") == [
        ("east", 1, 2),
        ("east", 3, 3),
        ("east", 5, None),
        ("west", 0, 4),
    ]
    assert rows(mirror, "newest", "_source", "_key", "n") == [("east", "bob", 2), ("west", "ada", 4)]
    assert bad(mirror) == []
    for name in ("sales", "newest"):
        assert not on_disk(mirror, name) & {("east", offset) for offset in (0, 2, 4, 6, 7, 8)} - {("east", 6)}
    assert removed_from(mirror.lake, "east")[-1].evidence["tables"] == {"newest": 1, "sales": 2}
    assert sum(one.records for one in mirror.keep_tables(once=True)) == 0
    assert len(rows(mirror, "sales", "n")) == 4


@pytest.mark.law("F")
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_law_f_a_batch_that_was_read_before_an_erasure_brings_no_erased_row_back(make: Make, mode: str) -> None:
    mirror = make({"topics": "sales", "mode": mode})
    regions = Regions(mirror)
    regions.land("east", "sales", ("ada", {"n": 1}), ("bob", {"n": 2}))
    account(mirror)
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("ada", {"n": 3}), ("bob", {"n": 4}), ("ada", b"{broken"))
    account(mirror)
    [table] = list_tables(mirror.config, landed_topics(mirror.lake, ["east"]))
    writer = TableWriter(mirror.lake, table, owner="slow", now=lambda: NOON)
    writer.open()
    batch = past_records(mirror, "sales", first=2).persist()
    assert batch.count() == 3
    erase(mirror, "sales", key=b"ada")
    with pytest.raises(Overtaken):
        writer.write(batch)
    mirror.keep_tables(once=True)
    left = [(3, 4)] if mode == "upsert" else [(1, 2), (3, 4)]
    assert rows(mirror, "sales", "_offset", "n") == left
    assert bad(mirror) == []


@pytest.mark.law("F")
def test_law_f_an_erasure_that_is_killed_is_finished_by_the_next(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("ada", {"n": 1}), ("bob", {"n": 2}))
    account(mirror)
    mirror.keep_tables(once=True)
    with dying("remove.purged"):
        erase(mirror, "sales", key=b"ada")
    assert len(rows(mirror, "sales", "n")) == 2
    assert erase(mirror, "sales", key=b"ada").finished == 1
    assert rows(mirror, "sales", "n") == [(2,)]
