"""The version of a lake whose tables have names in a catalog: a table property there, too."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.errors import SafetyError
from mirrorlake.lake import GAPS, Lake

CATALOG = LakeConfig.model_validate({"catalog": "spark_catalog", "schema": "versions", "checkpoints": "/nowhere"})


def test_a_lake_of_another_release_in_a_catalog_is_refused(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS versions")
    try:
        made = Lake(spark, CATALOG)
        made.create_side_table(GAPS)
        assert made.query("SELECT * FROM {gaps}") == [], "it was made with its version"
        spark.sql("ALTER TABLE versions.gaps UNSET TBLPROPERTIES ('mirrorlake.lakeVersion')")
        lake = Lake(spark, CATALOG)
        for look in (
            lambda: lake.query("SELECT * FROM {gaps}"),
            lambda: lake.meta(GAPS),
            lambda: lake.missing(["east"]),
        ):
            with pytest.raises(SafetyError, match="versions is of another release: its version is none"):
                look()
    finally:
        spark.sql("DROP SCHEMA versions CASCADE")
