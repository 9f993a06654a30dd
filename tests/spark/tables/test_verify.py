"""A typed table is proven against the relay: each record is a row, superseded, filtered, or a bad record."""

from __future__ import annotations

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS
from tests.spark.tables.kit import Make, Regions


@pytest.mark.law("E")
def test_law_e_each_record_of_an_appended_table_is_accounted_for(make: Make) -> None:
    mirror = make({"topics": "sales", "columns": {"twice": "n * 2"}})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1, "who": {"age": 3}}), ("b", b"{broken"), ("c", None))
    regions.land("west", "sales", *((f"k{n}", {"n": n}) for n in range(5)))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("late", {"n": 9}))
    proof = mirror.verify_table("sales")
    assert (proof.equal, proof.records, proof.rows, proof.bad_records, proof.findings) == (True, 8, 7, 1, ())
    location = mirror.lake.sql_name(mirror.lake.typed_location("sales"))
    spark = mirror.spark
    spark.sql(f"DELETE FROM {location} WHERE _source = 'west' AND _offset = 1")  # noqa: S608
    spark.sql(f"UPDATE {location} SET who.age = 4 WHERE _source = 'east' AND _offset = 0")  # noqa: S608
    spark.sql(f"INSERT INTO {location} SELECT * FROM {location} WHERE _source = 'west' AND _offset = 3")  # noqa: S608
    spark.sql(f"DELETE FROM {mirror.lake.sql_name(mirror.lake.meta_location(BAD_RECORDS))}")  # noqa: S608
    proof = mirror.verify_table("sales")
    assert [(one.kind, one.source, one.offset) for one in proof.findings] == [
        ("different", "east", 0),
        ("not recorded", "east", 1),
        ("missing", "west", 1),
        ("doubled", "west", 3),
    ]
    assert (proof.equal, proof.wrong) == (False, 4)
    assert "west sales/0@1" in str(proof)


def test_of_an_upserted_table_the_superseded_records_are_no_rows(make: Make) -> None:
    mirror = make({"topics": "customers", "mode": "upsert"})
    regions = Regions(mirror)
    regions.land("east", "customers", ("a", {"n": 1}), ("b", {"n": 1}), ("a", {"n": 2}), ("b", None), (None, {"n": 5}))
    with pytest.raises(UsageError, match="was never written"):
        mirror.verify_table("customers")
    mirror.keep_tables(once=True)
    proof = mirror.verify_table("customers")
    assert (proof.equal, proof.records, proof.rows, proof.superseded, proof.bad_records) == (True, 5, 1, 3, 1)
    location = mirror.lake.sql_name(mirror.lake.typed_location("customers"))
    mirror.spark.sql(f"UPDATE {location} SET _offset = 0, n = 1")  # noqa: S608
    proof = mirror.verify_table("customers")
    assert [(one.kind, one.offset) for one in proof.findings] == [("left over", 0), ("missing", 2)]
