"""The version of a lake whose tables have names in a catalog: a table property there, too."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.errors import SafetyError
from mirrorlake.lake import GAPS, Lake, lake_changes, migrate

CATALOG = LakeConfig.model_validate({"catalog": "spark_catalog", "schema": "versions", "checkpoints": "/nowhere"})


@pytest.mark.law("G")
def test_law_g_a_lake_in_a_catalog_gets_its_version_by_a_plan_and_a_newer_one_is_refused(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS versions")
    try:
        lake = Lake(spark, CATALOG)
        assert lake_changes(lake) == [], "there is none yet"
        lake.create_side_table(GAPS)
        assert lake_changes(lake) == [], "it was made with its version"
        spark.sql("ALTER TABLE versions.gaps UNSET TBLPROPERTIES ('mirrorlake.lakeVersion')")
        [change] = lake_changes(lake)
        assert (change.action, change.name) == ("record_version", "spark_catalog.versions")
        migrate(lake, now=datetime.now(timezone.utc))
        assert lake_changes(lake) == []

        spark.sql("ALTER TABLE versions.gaps SET TBLPROPERTIES ('mirrorlake.lakeVersion' = '2')")
        lake.recheck_version()
        for look in (
            lambda: lake.query_rows("SELECT * FROM {gaps}"),
            lambda: lake.meta(GAPS),
            lambda: lake.missing(["east"]),
        ):
            with pytest.raises(SafetyError, match="versions has version 2"):
                look()
    finally:
        spark.sql("DROP SCHEMA versions CASCADE")
