"""Mirrors for one test, or for one file: shared brokers and session, a lake of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake import Mirror, load
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.map_check import assert_map_is_exact
from tests.kit.records import (
    Record,
    assert_equal_topics,
    consume,
    create_topic,
    delete_topic,
    held,
    produce,
    topic_name,
)

MakeMirror = Callable[..., Mirror]


@pytest.fixture(scope="session")
def empty_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the tables once; a Delta log holds no absolute path, so a copy of the folder is a lake of its own."""
    folder = tmp_path_factory.mktemp("template")
    clusters = dict.fromkeys(("east", "west", "central"), "127.0.0.1:1")
    flows = [{"source": alias, "target": "central", "topics": "unused"} for alias in ("east", "west")]
    mirror = load(write_conf(folder, clusters, flows), spark=spark)
    mirror.lake.create_all(["east", "west"])
    return folder / "lake"


def mirror_maker(spark: SparkSession, empty_lake: Path, folder: Path) -> MakeMirror:
    """Return a factory of mirrors with one lake and one settings file in a folder; a later call uses the new settings."""
    forgotten: set[str] = set()

    def make(clusters: dict[str, KafkaCluster], flows: list[dict[str, Any]], **cluster_settings: Any) -> Mirror:
        if not (folder / "lake").exists():
            shutil.copytree(empty_lake, folder / "lake")
        addresses = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()}
        mirror = load(write_conf(folder, addresses, flows, **cluster_settings), spark=spark)
        # A new lake wants new ledgers: those of earlier tests name positions that this lake never had.
        for flow in mirror.config.flows:
            if flow.name not in forgotten:
                delete_topic(addresses[flow.target], flow.ledger_topic, missing_ok=True)
                forgotten.add(flow.name)
        return mirror

    return make


@pytest.fixture
def make_mirror(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> MakeMirror:
    """Make mirrors of one test, its lake and its `mirror.yml` in `tmp_path`."""
    return mirror_maker(spark, empty_lake, tmp_path)


@pytest.fixture(scope="module")
def make_shared_mirror(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeMirror:
    """Make mirrors that the tests of one file share: no other mirror of the file may use their flows' names."""
    return mirror_maker(spark, empty_lake, tmp_path_factory.mktemp("shared"))


class Pair:
    """East and central, a topic of one test, and mirrors between them on a lake of its own.

    `lake` and `conf` are where the lake and the settings file of the newest mirror are.
    """

    def __init__(self, east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, folder: Path) -> None:
        self.east, self.central = east, central
        self.lake, self.conf = folder / "lake", str(folder / "mirror.yml")
        self.topic = topic_name()
        self.remote = f"east.{self.topic}"
        self.partitions = 2
        self._make = make_mirror

    def create(self, records: int = 0, *, partitions: int = 2, **config: str) -> None:
        self.partitions = partitions
        create_topic(self.east, self.topic, partitions, **config)
        self.produce(records)

    def produce(self, records: int, *, partitions: int | None = None, **options: Any) -> None:
        produce(self.east, self.topic, records, partitions=partitions or self.partitions, **options)

    def flow(self, **settings: Any) -> dict[str, Any]:
        return {"source": "east", "target": "central", "topics": self.topic, **settings}

    def mirror(self, *flows: dict[str, Any], east: Mapping[str, Any] | None = None, **settings: Any) -> Mirror:
        """Make a mirror of the given flows; of the topic's own flow with these settings where none is given."""
        clusters = {"east": self.east, "central": self.central}
        return self._make(clusters, list(flows) or [self.flow(**settings)], east=east or {})

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_cli(*arguments, "--conf", self.conf)

    def told(self, *arguments: str, code: int = 0) -> Any:
        """Run a command that ends with this code, and return the JSON document that it prints."""
        return told(*arguments, "--conf", self.conf, code=code)

    def landed(self, topic: str = "") -> list[dict[str, Any]]:
        """Return the rows of the relay about a topic; of the test's own where none is given."""
        return held(self.lake / "relay" / "east", topic or self.topic)

    def gaps(self, topic: str = "") -> list[dict[str, Any]]:
        return held(self.lake / "meta" / "gaps", topic or self.topic)

    def source(self) -> dict[int, list[Record]]:
        return consume(self.east, self.topic)

    def target(self, remote: str | None = None) -> dict[int, list[Record]]:
        return consume(self.central, remote or self.remote)

    def check(self, *, with_map: bool = False, by: Mirror | None = None) -> None:
        """Laws C, D and F for the topic and its remote topic; with the offset map also laws A, B and E.

        The offsets are asked of the newest settings file, or `by` a mirror of other settings.
        """
        source, target = self.source(), self.target()
        assert_equal_topics(source, target)
        if with_map:
            asked = (by or load(self.conf))["east->central"]
            assert_map_is_exact(self.lake, "east->central", self.topic, source, target, asked=asked)


@pytest.fixture
def pair(east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path) -> Pair:
    return Pair(east, central, make_mirror, tmp_path)
