"""Typed tables of settings that are put in force while a mirror runs, or edited after its tables were made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror, load
from mirrorlake.topics import settings_in_force
from tests.kit.processes import beside, wait_until
from tests.spark.tables.kit import Regions, rows

Write = Callable[..., Mirror]


@pytest.fixture
def write(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> Write:
    """Return a function that writes the settings file with these tables, and loads its mirror."""
    shutil.copytree(empty_lake, tmp_path / "lake")
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "central")}
    flows = [{"source": "east", "target": "central", "topics": ".*"}]

    def write(*tables: dict[str, Any]) -> Mirror:
        settings = {"lake": {"root": str(tmp_path / "lake")}, "clusters": clusters, "flows": flows, "tables": [*tables]}
        file = tmp_path / "mirror.yml"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(settings))
        return load(file, spark=spark)

    return write


def land(mirror: Mirror, *topics: str) -> None:
    regions = Regions(mirror)
    for topic in topics:
        regions.land("east", topic, ("k", {"n": 1}))


def test_a_running_mirror_starts_the_table_of_settings_that_were_applied(write: Write) -> None:
    mirror = write({"topics": "sales", "every": "1s"})
    land(mirror, "sales", "orders")
    settings_in_force.put_in_force(mirror.config, mirror._context.control())
    with beside(lambda stop: mirror.keep_tables(stop=stop)) as failures:
        wait_until(lambda: failures or mirror.lake.exists(mirror.lake.typed_location("sales")), "sales is made")
        edited = write({"topics": "sales", "every": "1s"}, {"topics": "orders", "every": "1s"})
        assert not edited.lake.exists(edited.lake.typed_location("orders"))
        settings_in_force.put_in_force(edited.config, edited._context.control())
        wait_until(lambda: failures or edited.lake.exists(edited.lake.typed_location("orders")), "orders is made")
        wait_until(lambda: failures or rows(edited, "orders", "n") == [(1,)], "orders has its row")


def test_a_table_is_not_written_by_settings_that_its_rows_contradict(write: Write) -> None:
    mirror = write({"topics": "sales"})
    land(mirror, "sales")
    mirror.keep_tables(once=True)
    edited = write({"topics": "sales", "mode": "upsert"})
    with pytest.raises(UsageError, match="the table sales was made with mode: append, and the settings say upsert"):
        edited.keep_tables(once=True)
    assert edited.rebuild_table("sales", apply=True).rows == 1
    assert sum(one.records for one in edited.keep_tables(once=True)) == 0
    mirror.rebuild_table("sales", apply=True)
    assert sum(one.records for one in write({"topics": "sales", "every": "1m"}).keep_tables(once=True)) == 0
