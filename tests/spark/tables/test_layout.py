"""How a typed table lies on disk, and what its derived columns do where they cannot be computed."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.errors import ColumnUnknown, UsageError
from mirrorlake.tables import plan_tables
from tests.spark.frames import assert_rows
from tests.spark.tables.kit import Make, Regions, bad, rows

ODD = "a/b=ü %25"


@pytest.mark.law("E", "F")
def test_law_f_a_partitioned_table_keeps_its_partitions_until_it_is_built_again(make: Make) -> None:
    entries: list[dict[str, Any]] = [
        {"topics": "sales", "columns": {"day": "to_date(_timestamp)"}, "partition_by": ["c", "n", "day"]},
        {"topics": "sales", "name": "newest", "mode": "upsert", "partition_by": "_source, n"},
    ]
    mirror = make(*entries)
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"c": "plain", "n": 1}))
    mirror.keep_tables(once=True)
    location = mirror.lake.typed_location("sales")
    odd = [("a", {"c": ODD, "n": 1}), ("b", {"c": "", "n": 2}), ("c", None), ("d", {"c": "plain"})]
    regions.land("east", "sales", *odd)
    version = mirror.lake.version(location)
    mirror.keep_tables(once=True)
    assert mirror.lake.version(location) == version + 1, "workers wrote the files, and no column changed"
    regions.land("west", "sales", *odd, ("e", {"c": "plain", "n": 2.5}))
    mirror.keep_tables(once=True)
    regions.land("west", "sales", *odd)
    mirror.keep_tables(once=True)
    found = rows(mirror, "sales", "c", "n")
    values = [(ODD, 1.0), (None, 2.0), (None, None), ("plain", None)]
    assert found == [("plain", 1.0), *values, *values, ("plain", 2.5), *values]
    assert len(rows(mirror, "newest", "n")) == 7
    assert [mirror.lake.partition_by(mirror.lake.typed_location(name)) for name in ("sales", "newest")] == [
        ("c", "n", "day"),
        ("_source", "n"),
    ]
    for name in ("sales", "newest"):
        proof = mirror.verify_table(name)
        assert proof.equal, proof
    query = f"SELECT count(*) AS found FROM sales WHERE c = '{ODD}' AND n = 1.0 AND day = DATE '2026-07-01'"  # noqa: S608
    assert mirror.query(query).to_pylist() == [{"found": 3}]
    frame = mirror.sql(query)
    assert_rows(frame, "found bigint", [(3,)])
    assert "PartitionFilters: [isnotnull(c#" in frame._jdf.queryExecution().toString()
    edited = make({**entries[0], "partition_by": ["_source"]}, entries[1])
    [note] = plan_tables(edited._context).notes
    assert note.reason.endswith(
        "and the settings say ['_source']; all rows, also new ones, lie as they did until it is built again: "
        "mirrorlake tables --rebuild sales --apply"
    )
    regions.land("west", "sales", *odd)
    edited.keep_tables(once=True)
    assert edited.lake.partition_by(location) == ("c", "n", "day")
    edited.rebuild_table("sales", apply=True)
    assert edited.lake.partition_by(location) == ("_source",)
    assert plan_tables(edited._context).notes == ()
    assert edited.verify_table("sales").equal


@pytest.mark.law("E", "F")
def test_law_f_a_record_that_a_derived_column_fails_for_is_a_bad_record_alone(make: Make) -> None:
    columns = {"day": "CAST(at AS DATE)", "next": "CAST(n AS INT) + 1", "after": "CAST(n AS INT) + 2"}
    mirror = make(
        {"topics": "sales", "columns": columns},
        {"topics": "sales", "name": "newest", "columns": columns, "mode": "upsert", "bad_records": "null"},
    )
    regions = Regions(mirror)
    good = [("a", {"at": "2026-07-01", "n": "5"}), ("b", None)]
    regions.land("east", "sales", *good, ("c", {"at": "soon", "n": "6"}))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", *good, ("d", {"at": "2026-07-01", "n": "x"}), ("e", b"{broken"))
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "_offset", "n", "next", "after") == [
        *((0, "5", 6, 7), (1, None, None, None), (3, "5", 6, 7), (4, None, None, None))
    ]
    assert bad(mirror) == [
        ("sales", "east", 2, "the column day of the settings cannot be computed of it"),
        ("sales", "east", 5, "the column next of the settings cannot be computed of it"),
        ("sales", "east", 6, "the value is not JSON: object keys must be strings (byte 1)"),
    ]
    [row] = mirror.lake.query_rows("SELECT value FROM {bad_records} WHERE offset = 5")
    assert row.value == b'{"at": "2026-07-01", "n": "x"}'
    assert rows(mirror, "newest", "_key", "n", "next") == [
        ("c", "6", None),
        ("a", "5", 6),
        ("d", "x", None),
        ("e", None, None),
    ]
    assert mirror.verify_table("sales").equal


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (
            {"columns": {"fine": "n", "low": "lower(nosuch)"}},
            r"tables\[1\]\.columns\.low: the table x cannot compute it",
        ),
        (
            {"partition_by": ["n", "nosuch"]},
            r"tables\[1\]\.partition_by\[1\]\): its first records have no column nosuch",
        ),
        ({"partition_by": ["who"]}, r"tables\[1\]\.partition_by\[0\]\): its column who is struct<age:bigint>"),
    ],
)
def test_settings_that_the_records_contradict_park_their_table_alone(
    make: Make, entry: dict[str, Any], place: str
) -> None:
    mirror = make({"topics": "sales"}, {"topics": "sales", "name": "x", **entry})
    Regions(mirror).land("east", "sales", ("a", {"n": 1, "who": {"age": 3}}))
    with pytest.raises(UsageError, match=place):
        mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "n") == [(1,)]
    assert not mirror.lake.exists(mirror.lake.typed_location("x"))


@pytest.mark.parametrize("entry", [{"columns": {"cents": "CAST(amount * 100 AS BIGINT)"}}, {"partition_by": "shop"}])
def test_law_f_a_table_waits_for_the_first_record_with_a_column_that_its_settings_name(
    make: Make, entry: dict[str, Any]
) -> None:
    mirror = make({"topics": "sales", **entry})
    regions = Regions(mirror)
    regions.land("east", "sales")
    assert [one.records for one in mirror.keep_tables(once=True)] == [0], "a topic without records is no fault"
    regions.land("east", "sales", ("a", "{broken"), ("b", {"id": 1}))
    with pytest.raises(ColumnUnknown):
        mirror.keep_tables(once=True)
    regions.land("east", "sales", ("c", {"id": 2, "amount": 1.5, "shop": "x"}))
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "id") == [(1,), (2,)]
    assert len(bad(mirror)) == 1
