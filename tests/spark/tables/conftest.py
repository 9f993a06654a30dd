"""The mirror of a lake with typed tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.mirror import Mirror, from_settings
from tests.spark.tables.kit import Make


@pytest.fixture
def make(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> Make:
    """Return a function that makes the mirror of one lake with these typed tables."""
    shutil.copytree(empty_lake, tmp_path / "lake")
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "west", "central")}
    flows = [{"source": alias, "target": "central", "topics": ".*"} for alias in ("east", "west")]

    def make(*tables: dict[str, Any]) -> Mirror:
        settings = {"lake": {"root": str(tmp_path / "lake")}, "clusters": clusters, "flows": flows, "tables": [*tables]}
        return from_settings(settings, spark=spark)

    return make
