"""Mirrors for one test each: shared brokers and session, a lake of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.load import load
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import delete_ledgers, write_conf

MakeMirror = Callable[..., Mirror]


@pytest.fixture(scope="session")
def empty_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the tables once; a Delta log holds no absolute path, so a copy of the folder is a lake of its own."""
    folder = tmp_path_factory.mktemp("template")
    clusters = dict.fromkeys(("east", "west", "central"), "127.0.0.1:1")
    flows = [{"source": alias, "target": "central", "topics": "unused"} for alias in ("east", "west")]
    mirror = Mirror(load(write_conf(folder, clusters, flows)), spark=spark)
    mirror.lake.create_all(["east", "west"])
    return folder / "lake"


@pytest.fixture
def make_mirror(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> MakeMirror:
    """Make a mirror from clusters and flows; a second call keeps the lake and takes the new settings."""
    forgotten: set[str] = set()

    def make(clusters: dict[str, KafkaCluster], flows: list[dict[str, Any]], **cluster_settings: Any) -> Mirror:
        if not (tmp_path / "lake").exists():
            shutil.copytree(empty_lake, tmp_path / "lake")
        addresses = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()}
        for alias in set(addresses) - forgotten:
            # A new lake wants new ledgers: those of earlier tests name positions that this lake never had.
            delete_ledgers(addresses[alias])
            forgotten.add(alias)
        return Mirror(load(write_conf(tmp_path, addresses, flows, **cluster_settings)), spark=spark)

    return make
