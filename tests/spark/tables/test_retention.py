"""Retention: rows leave a typed table by its own setting, and the relay keeps what a table has not read."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirrorlake.config.schema import ClusterConfig, MaintenanceConfig
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.maintenance.typed_tables import expire_tables, unread_by_tables
from mirrorlake.mirror import Mirror, from_settings
from tests.spark.tables.kit import NOON, Make, Regions, account, rows


@pytest.mark.law("F")
def test_law_f_rows_past_the_retention_leave_their_table_alone_and_do_not_come_back(make: Make) -> None:
    mirror = make({"topics": "sales", "retention": "1h"}, {"topics": "sales", "name": "all"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}), ("b", {"n": 2}))
    mirror.keep_tables(once=True)
    regions.records += [regions.records[-1]] * 3_600
    regions.land("east", "sales", ("c", {"n": 3}))
    mirror.keep_tables(once=True)
    context = mirror._context
    context.now = lambda: NOON + timedelta(hours=1, minutes=5)
    assert [(one.table, one.expired.records) for one in expire_tables(context, plan=False)] == [("table sales", 0)]
    context.now = lambda: NOON + timedelta(hours=1, minutes=7)
    for plan in (True, False):
        [kept] = expire_tables(context, plan=plan)
        assert (kept.table, kept.expired.records, kept.why_not) == ("table sales", 2, "")
    mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "_offset", "n") == [(2, 3)]
    assert rows(mirror, "all", "n") == [(1,), (2,), (3,)]


@pytest.mark.law("E")
def test_law_e_a_record_that_a_table_has_not_read_stays_in_the_relay(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1}))
    mirror.keep_tables(once=True)
    regions.land("east", "sales", ("b", {"n": 2}))
    account(mirror)
    assert _expired(mirror) == (1, [("table sales", 1)])
    mirror.keep_tables(once=True)
    assert _expired(mirror) == (1, [])
    assert rows(mirror, "sales", "n") == [(1,), (2,)]


def test_small_files_of_a_table_become_one_and_the_table_goes_on(make: Make) -> None:
    mirror = make({"topics": "sales"})
    regions = Regions(mirror)
    regions.land("east", "sales", ("a", {"n": 1, "lines": [{"item": "x"}]}))
    mirror.keep_tables(once=True)
    location = mirror.lake.typed_location("sales")
    row = DeltaTable(location).to_pyarrow_table()
    for number in range(1, 40):
        place = row.schema.get_field_index("_offset")
        write_deltalake(location, row.set_column(place, row.schema.field(place), pa.array([-number])), mode="append")
    upkeep = LakeUpkeep(mirror.lake, MaintenanceConfig(), now=mirror._context.now, clusters=mirror.config.clusters)
    planned = upkeep.typed_table("sales", plan=True)
    kept = upkeep.typed_table("sales", plan=False)
    assert planned is not None
    assert kept is not None
    assert (planned.files, planned.compacted.files, kept.compacted.files, kept.files, kept.why_not) == (
        40,
        40,
        40,
        1,
        "",
    )
    assert len(rows(mirror, "sales", "n", "lines")) == 40
    regions.land("east", "sales", ("b", {"n": 2}))
    [done] = mirror.keep_tables(once=True)
    assert done.records == 1
    assert [offset for (offset,) in rows(mirror, "sales", "_offset")][-2:] == [0, 1]


def _expired(mirror: Mirror) -> tuple[int, list[tuple[str, int]]]:
    """Return the records that leave the relay by its retention, and those that stay, by who holds them."""
    document = mirror.config.model_dump(mode="json", include={"tables"}, by_alias=True)
    settings = {
        "lake": {"root": mirror.lake.address},
        "clusters": {
            "east": {"bootstrap_servers": "east:9092", "retention": {".*": {"age": "1h"}}},
            "central": {"bootstrap_servers": "central:9092"},
        },
        "flows": [{"source": "east", "target": "central", "topics": ".*"}],
        "tables": [{"topics": one["topics"]} for one in document["tables"]],
    }
    kept = from_settings(settings, spark=mirror.spark)
    clusters: dict[str, ClusterConfig] = dict(kept.config.clusters)
    upkeep = LakeUpkeep(
        kept.lake,
        MaintenanceConfig(),
        now=lambda: NOON + timedelta(days=9),
        clusters=clusters,
        needed=unread_by_tables(kept._context),
    )
    [relay] = [one for one in upkeep.tables({"east": []}, published=[], plan=False) if one.table == "relay of east"]
    return relay.expired.records, [(one.held_by, one.records) for one in relay.held]
