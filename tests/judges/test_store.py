"""The main job on a lake that a server of the S3 API holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from mirrorlake import Mirror, load
from mirrorlake.errors import StoreError
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, write_conf
from tests.kit.processes import running, staying_on, wait_until
from tests.kit.records import (
    assert_equal_topics,
    commit,
    consume,
    count,
    create_topic,
    produce,
    send_transactions,
    topic_name,
    topics_of,
)
from tests.servers.store import SECRET_KEY, StoreServer


class World:
    """A flow of one topic between two clusters, its lake on the server, and its settings file."""

    def __init__(self, server: StoreServer, east: KafkaCluster, central: KafkaCluster, folder: Path) -> None:
        self.east, self.central = east, central
        root = f"s3a://{server.make_bucket(f'flow-{uuid4().hex[:8]}')}/mirror"
        self.topic = topic_name("store")
        self.remote = f"east.{self.topic}"
        create_topic(east, self.topic, 2)
        # A flow of its own name, so that its ledger is its own.
        self.flow = f"store-{uuid4().hex[:6]}"
        self.conf = write_conf(
            folder,
            {"east": east.bootstrap_servers, "central": central.bootstrap_servers},
            [{"name": self.flow, "source": "east", "target": "central", "topics": self.topic}],
            lake={"root": root, "storage": server.settings},
        )

    def mirror(self, spark: SparkSession | None) -> Mirror:
        return load(self.conf, spark=spark)

    def check(self) -> None:
        assert_equal_topics(consume(self.east, self.topic), consume(self.central, self.remote))


@pytest.fixture
def world(
    store_server: StoreServer, store_keys: None, east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> Iterator[World]:
    return World(store_server, east, central, tmp_path)


@pytest.mark.law("A", "B", "C", "D", "E", "F")
def test_a_mirror_runs_on_a_store_and_spark_only_runs_its_tasks(
    world: World, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark of this session has no file system for S3: what asked it to read would fail."""
    produce(world.east, world.topic, 800)
    send_transactions(world.east, world.topic, [([(b"kept", None, 0)], True), ([(b"aborted:", None, 0)], False)])
    # Somebody has read there with a group, so that a task may land (law H).
    commit(world.east, "readers", world.topic, {0: 10, 1: 20})
    mirror = world.mirror(spark)
    mirror.apply()
    mirror.run(once=True)
    world.check()
    assert all(row.state == "caught_up" for row in mirror.status()[world.flow])
    with staying_on(mirror) as failures:
        produce(world.east, world.topic, 700, seed=3)
        wait_until(lambda: failures or count(world.central, world.remote) == 1501, "it is mirrored while running")
        other = world.mirror(spark)
        wait_until(
            lambda: failures or all(row.state == "caught_up" for row in other.status()[world.flow]), "questions see it"
        )
        # Another lander takes the relay over, and the one that runs stops.
        produce(world.east, world.topic, 100, seed=5)
        other.land("east", once=True, rebuild_checkpoint=True)
        wait_until(lambda: failures or mirror.parked(), "the older lander has stopped")
    produce(world.east, world.topic, 200, seed=4)
    again = world.mirror(spark)
    again.run(once=True)
    world.check()
    verified = again.verify()
    assert verified.equal, str(verified)
    assert "5" in str(again.translate(world.flow, topic=world.topic, partition=0, offset=5))
    for command in ("status", "lag", "doctor", "maintain"):
        done = run_cli(command, "--conf", str(world.conf), "--json")
        assert done.returncode in (0, 1), done.stderr
        assert json.loads(done.stdout) is not None
        assert SECRET_KEY not in done.stdout + done.stderr
    with pytest.raises(StoreError, match="hadoop-aws"):
        again.sql("SELECT count(*) FROM relay_east")
    told = capfd.readouterr()
    assert SECRET_KEY not in told.out + told.err


@pytest.mark.law("C", "D", "F")
def test_a_mirror_of_its_own_process_is_killed_and_goes_on(world: World, tmp_path: Path) -> None:
    produce(world.east, world.topic, 2000)
    with running(tmp_path / "run.log", "run", "--conf", str(world.conf), host="elsewhere") as process:
        wait_until(lambda: world.remote in topics_of(world.central) or not process.is_running, "something is mirrored")
        produce(world.east, world.topic, 2000, seed=2)
        refused = run_cli("land", "--source", "east", "--once", "--conf", str(world.conf))
        said = f"landing of east is carried by process {process.popen.pid} on elsewhere"
        assert (refused.returncode, said in refused.stderr) == (3, True), refused.stderr
        process.kill()
    with running(tmp_path / "again.log", "run", "--once", "--conf", str(world.conf), "--json") as process:
        wait_until(lambda: not process.is_running, "the drain ends")
    assert SECRET_KEY not in (tmp_path / "run.log").read_text() + (tmp_path / "again.log").read_text()
    world.check()
    verified = world.mirror(None).verify()
    assert verified.equal, str(verified)
