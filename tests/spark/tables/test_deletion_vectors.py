"""Upserts where a person switched deletion vectors on: no row that stays is rewritten, and what left is on no disk after its time."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from mirrorlake.config.schema import MaintenanceConfig
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.mirror import Mirror
from tests.spark.frames import assert_rows
from tests.spark.tables.kit import Make, Regions, account
from tests.spark.tables.test_erasing import erase, on_disk


def check(mirror: Mirror, regions: Regions) -> None:
    # By Spark: delta-rs does not know deletion vectors.
    expected = [(source, key, one["n"]) for (source, key), one in regions.newest("sales").items()]
    assert_rows(
        mirror.lake.typed("sales").select("_source", "_key", "n"), "_source string, _key string, n bigint", expected
    )


@pytest.mark.law("C", "F")
def test_law_f_upserts_rewrite_no_other_row_and_erased_records_leave_the_files(make: Make) -> None:
    mirror = make({"topics": "sales", "mode": "upsert"})
    regions, location = Regions(mirror), mirror.lake.typed_location("sales")
    regions.land("east", "sales", *((f"k{n}", {"n": n}) for n in range(50)))
    mirror.keep_tables(once=True)
    switched = "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    mirror.spark.sql(f"ALTER TABLE {mirror.lake.sql_name(location)} {switched}")
    for first in (100, 200):
        regions.land("east", "sales", ("k1", {"n": first}), ("k2", {"n": first + 1}), ("new", {"n": first}))
        mirror.keep_tables(once=True)
        [merge] = DeltaTable(location).history(1)
        assert int(merge["operationMetrics"]["numTargetRowsCopied"]) == 0
    check(mirror, regions)
    asked = mirror.query("SELECT sum(n) AS n FROM sales").to_pylist()
    assert asked == [{"n": sum(one["n"] for one in regions.newest("sales").values())}]
    page = mirror.table("sales")
    assert (page.columns[-1].name, page.rows, page.newest) == ("n", None, ()), "its files hold replaced rows, too"

    upkeep = LakeUpkeep(mirror.lake, MaintenanceConfig(), now=mirror._context.now, clusters=mirror.config.clusters)
    kept = upkeep.typed_table("sales", plan=False)
    assert kept is not None
    assert (kept.why_not, kept.files, kept.compacted.into) == ("", 1, 1)
    check(mirror, regions)

    regions.land("east", "sales", ("k1", {"n": 300}), ("k3", {"n": 300}))
    mirror.keep_tables(once=True)
    account(mirror)
    done = erase(mirror, "sales", where="value.n = 200 AND key = 'k1'")
    assert (done.records, done.rows_of_tables) == (1, {"sales": 0}), "a newer record has its row"
    assert ("east", 53) not in on_disk(mirror, "sales"), "the file named it still, behind a vector"
    check(mirror, regions)
    assert mirror.verify_table("sales").equal
