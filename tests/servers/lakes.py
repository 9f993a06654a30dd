"""Mirrors for one test, or for one file: shared brokers and session, a lake of their own."""

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
from tests.flow.kit import delete_topic, write_conf

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


def mirror_maker(spark: SparkSession, empty_lake: Path, folder: Path) -> MakeMirror:
    """Return a factory of mirrors with one lake and one settings file in a folder; a later call uses the new settings."""
    forgotten: set[str] = set()

    def make(clusters: dict[str, KafkaCluster], flows: list[dict[str, Any]], **cluster_settings: Any) -> Mirror:
        if not (folder / "lake").exists():
            shutil.copytree(empty_lake, folder / "lake")
        addresses = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()}
        config = load(write_conf(folder, addresses, flows, **cluster_settings))
        # A new lake wants new ledgers: those of earlier tests name positions that this lake never had.
        for flow in config.flows:
            if flow.name not in forgotten:
                delete_topic(addresses[flow.target], flow.ledger_topic, missing_ok=True)
                forgotten.add(flow.name)
        return Mirror(config, spark=spark)

    return make


@pytest.fixture
def make_mirror(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> MakeMirror:
    """Make mirrors of one test, its lake and its `mirror.yml` in `tmp_path`."""
    return mirror_maker(spark, empty_lake, tmp_path)


@pytest.fixture(scope="module")
def make_shared_mirror(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeMirror:
    """Make mirrors that the tests of one file share: no other mirror of the file may use their flows' names."""
    return mirror_maker(spark, empty_lake, tmp_path_factory.mktemp("shared"))
