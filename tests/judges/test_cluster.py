"""A mirror on a standalone Spark cluster: a job is submitted with the package as a file, and machines die under it."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

import mirrorlake as ml
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import ports, write_conf
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import wait_until
from tests.kit.records import assert_equal_topics, commit, consume, count, create_topic, produce, topic_name, topics_of
from tests.servers.spark_cluster import SLOTS, WORKERS, SparkCluster

SCRIPT = Path(__file__).parents[2] / "jobs/cluster-demo"
PARTITIONS = 48
RECORDS = 480


@pytest.mark.law("C", "D", "F")
def test_law_f_records_arrive_once_whatever_dies_of_a_cluster(
    east: KafkaCluster, central: KafkaCluster, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Always on: one of two landing tasks, a lane, an executor, a worker with all it runs, then the driver; a drain does the rest."""
    seed = random.randrange(2**32)
    sys.stderr.write(f"seed {seed}\n")
    rng = random.Random(seed)
    topic = topic_name("cluster")
    remote = f"east.{topic}"
    create_topic(east, topic, PARTITIONS)
    produce(east, topic, RECORDS, partitions=PARTITIONS)
    # Somebody has read there with a group, so that a task may land a drain, too (law H).
    commit(east, "readers", topic, {0: 1})
    flow = f"cluster-{topic[-4:]}"
    addresses = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    flows = [{"name": flow, "source": "east", "target": "central", "topics": topic}]
    conf = write_conf(tmp_path, addresses, flows, east={"land": {"tasks": 2}})
    source, port = (int(cluster.bootstrap_servers.rpartition(":")[2]) for cluster in (east, central))
    log, sent = tmp_path / "driver.log", 1
    # Nothing is scheduled before both workers are there: whoever comes second would get no lane.
    whole = {"spark_cores_max": str(WORKERS * SLOTS), "spark_scheduler_minRegisteredResourcesRatio": "1.0"}
    whole["spark_scheduler_maxRegisteredResourcesWaitingTime"] = "300s"
    driver = spark_cluster.submit(log, "run", "--conf", str(conf), spark_mirrorlake_liveSlots="4", **whole)

    def more() -> None:
        nonlocal sent
        sent += 1
        produce(east, topic, RECORDS, partitions=PARTITIONS, seed=sent)

    def arrives(after: str) -> None:
        def all_is_there() -> bool:
            assert driver.poll() is None, log.read_text()[-3000:]
            return remote in topics_of(central) and count(central, remote) >= sent * RECORDS

        wait_until(all_is_there, f"everything arrives {after} (seed {seed})", timeout=400)

    try:
        arrives("at first")
        for to, what in ((port, "lanes"), (source, "landing groups")):
            tasks = [spark_cluster.senders(worker, to) for worker in range(WORKERS)]
            assert all(tasks), f"the {what} are spread over the workers: {tasks}"
        finders = {
            "lane": partial(spark_cluster.senders, port=port),
            "landing group": partial(spark_cluster.senders, port=source),
            "executor": spark_cluster.executors,
        }
        for what in rng.sample(sorted(finders), len(finders)):
            more()
            living = partial(lambda find: [one for worker in range(WORKERS) for one in find(worker)], finders[what])
            rng.choice(wait_until(living, f"some {what} runs")).kill()
            more()
            arrives(f"although one {what} died")
        more()
        spark_cluster.kill_worker(rng.randrange(WORKERS))
        more()
        arrives("although a worker died")
        more()
        # A scheduler's signal ends the JVM alone; an orphan that takes the flow back would park its successor.
        python = psutil.Process(driver.pid).children(recursive=True)
        assert python, "spark-submit has a Python process"
        driver.terminate()
        _, left = psutil.wait_procs(python, timeout=30)
        assert not left, f"the driver outlives its JVM: {log.read_text()[-3000:]}"
    finally:
        # The driver may have ended, which the assertion above tells.
        with suppress(psutil.NoSuchProcess):
            for process in [*psutil.Process(driver.pid).children(recursive=True), driver]:
                # One may end with the other.
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        driver.wait()
    more()
    drain = spark_cluster.submit(log, "run", "--conf", str(conf), "--once")
    assert drain.wait(400) == 0, log.read_text()[-3000:]
    found, arrived = consume(east, topic), consume(central, remote)
    assert_equal_topics(found, arrived)
    assert_map_is_exact(tmp_path / "lake", flow, topic, found, arrived)
    assert ml.load(conf).verify().equal


def test_the_demo_of_a_cluster_mirrors_every_record_and_leaves_nothing_running(tmp_path: Path) -> None:
    demo = subprocess.run(
        [SCRIPT, tmp_path / "demo", *ports(3)], capture_output=True, text=True, timeout=600, check=False
    )
    log = f"{demo.stdout[-3000:]}{demo.stderr[-3000:]}"
    assert demo.returncode == 0, log
    assert "2 000 records landed · 2 000 records republished" in demo.stdout, log
    assert "✓ equal · 2 flows · 2 000 records verified" in demo.stdout, log
    # As docs/logs.md says: spark-submit prints its driver's standard error on its own standard output.
    assert "settings: 2 flows of" in demo.stdout, log
    assert "log of clients:" in demo.stdout, log
    assert "settings: " not in demo.stderr, log
    left = [
        one.info
        for one in psutil.process_iter(["pid", "cmdline"])
        if str(tmp_path) in " ".join(one.info["cmdline"] or ())
    ]
    assert not left


def test_the_demo_leaves_a_folder_alone_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mirror.yml").write_text("mine")
    demo = subprocess.run([SCRIPT, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert (demo.returncode, demo.stderr) == (1, f"{tmp_path} is not empty; next: name a new folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mirror.yml"]
