"""Law F: records in transactions arrive once each, whatever is killed whenever; and a polite end is a clean one."""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from pyspark.sql import SparkSession

from mirrorlake import load
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.kit.commands import run_cli, write_conf
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import Process, running, wait_until
from tests.kit.records import ABORTED, assert_equal_topics, consume, create_topic, end_of, odd_record, topics_of
from tests.servers.lakes import Pair

RECORDS = 10_000
PER_TRANSACTION = 75
# Between two transactions, so that there is traffic for as long as the kills take.
PAUSE_S = 0.1
PARTITIONS = 4
# Each entry is one SIGKILL; the moment within the run is drawn from the seed. A step is killed at work, or while it starts,
# and goes on by the other execution: sending by tasks that live on and by a query, and landing by both.
VICTIMS = ["republish", "land", "target", "republish starting", "source", "land starting"]


class Writer(threading.Thread):
    """Write transactions until `stop` is set and enough are committed, through every crash of the source; aborts every seventh."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._rng = random.Random(seed)
        self.stop = threading.Event()
        self.committed = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            producer = self._producer()
            number = 0
            while self.committed < RECORDS or not self.stop.is_set():
                number += 1
                try:
                    self._transaction(producer, number)
                except KafkaException:
                    producer = self._producer()
                self.stop.wait(PAUSE_S)
        except BaseException as error:
            self.failure = error

    def _producer(self) -> Producer:
        while True:
            options = {"transactional.id": "writer", "linger.ms": 5, "message.max.bytes": 2_000_000}
            producer = Producer({"bootstrap.servers": self._address, **options})
            try:
                producer.init_transactions(10)
                return producer
            except KafkaException:
                continue

    def _transaction(self, producer: Producer, number: int) -> None:
        aborts = number % 7 == 0
        producer.begin_transaction()
        for position in range(PER_TRANSACTION):
            record = odd_record(self._rng, position, large=position == 0 and number % 10 == 1)
            if aborts:
                record["value"] = ABORTED + (record["value"] or b"")[:100]
            producer.produce("orders", partition=self._rng.randrange(PARTITIONS), **record)
        producer.flush(30)
        if aborts:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
            self.committed += PER_TRANSACTION


@pytest.mark.law("C", "D", "F")
@pytest.mark.parametrize("seed", [20261121])
def test_law_f_kills_of_everything_between_live_and_streaming_lose_and_repeat_nothing(
    make_cluster: Callable[..., KafkaCluster], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    east, central = start_all([make_cluster("east"), make_cluster("central")])
    processes: dict[str, Process] = {}
    begun: dict[str, int] = {}
    relay = tmp_path / "lake" / "relay" / "east" / "_delta_log"
    # How far each step has come, seen without asking it.
    reached = {
        # Upkeep takes old commits away, so they are not counted.
        "land": lambda: max((int(commit.name.partition(".")[0]) for commit in relay.glob("*.json")), default=-1),
        "republish": lambda: sum(end_of(central, "east.orders", partition) for partition in range(PARTITIONS)),
    }

    def write_settings(execution: str) -> Path:
        flow = {"source": "east", "target": "central", "topics": "orders", "chunk_records": 3_000}
        written = write_conf(
            tmp_path,
            {"east": east.bootstrap_servers, "central": central.bootstrap_servers},
            [{**flow, "execution": execution}],
            east={"land": {"max_records_per_batch": 6_000, "execution": execution}},
        )
        return written.rename(tmp_path / f"{execution}.yml")

    try:
        create_topic(east, "orders", PARTITIONS, max_message_bytes="2000000")
        confs = {execution: write_settings(execution) for execution in ("live", "streaming")}
        executions = {step: cycle(confs.values()) for step in ("land", "republish")}
        writer = Writer(east.bootstrap_servers, seed)
        writer.start()
        steps = {"land": ("land", "--source", "east"), "republish": ("republish", "--flow", "east->central")}

        def start(step: str) -> None:
            begun[step] = reached[step]() if processes.keys() == steps.keys() else 0
            # Each start goes on by the other execution.
            conf = next(executions[step])
            processes[step] = Process(tmp_path / f"{step}.log", *steps[step], "--conf", str(conf))

        def revive() -> None:
            """Start what gave up on a dead broker again, as a scheduler would."""
            for step, process in processes.items():
                if not process.is_running:
                    assert process.popen.returncode in (0, 4), process.output
                    start(step)

        def is_at_work(step: str) -> bool:
            revive()
            return reached[step]() > begun[step]

        for step in steps:
            start(step)
        wait_until(lambda: "east.orders" in topics_of(central), "the first records are on the target")
        for victim in VICTIMS:
            step, _, is_starting = victim.partition(" ")
            if step in steps:
                if not is_starting:
                    wait_until(partial(is_at_work, step), f"{step} has come further")
                threading.Event().wait(rng.uniform(0.5, 4.0))
                processes[step].kill()
                start(step)
            else:
                threading.Event().wait(rng.uniform(0.5, 4.0))
                cluster = east if step == "source" else central
                cluster.kill()
                threading.Event().wait(rng.uniform(0.0, 1.0))
                cluster.start()
            revive()
        writer.stop.set()
        writer.join(900)
        assert writer.failure is None, writer.failure
        assert not writer.is_alive()
        # Side by side: each may take a batch to its end.
        with ThreadPoolExecutor() as pool:
            list(pool.map(Process.terminate, processes.values()))
        for process in processes.values():
            lines = [line for line in process.output.splitlines() if "rdkafka#" in line or "[thrd:" in line]
            assert not lines, "what Kafka's clients say while a cluster is away belongs into the log file"
        conf = confs["live"]
        drained = run_cli("run", "--once", "--conf", str(conf))
        assert drained.returncode == 0, drained.stderr
        source, target = consume(east, "orders"), consume(central, "east.orders")
        assert sum(map(len, source.values())) >= RECORDS
        assert_equal_topics(source, target)
        verified = run_cli("verify", "--conf", str(conf), "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        asked = load(conf)["east->central"]
        assert_map_is_exact(tmp_path / "lake", "east->central", "orders", source, target, asked=asked)
    except BaseException:
        for process in processes.values():
            sys.stderr.write(f"--- {process.arguments}\n{process.output[-4000:]}\n")
        raise
    finally:
        for process in processes.values():
            if process.is_running:
                process.kill()


@pytest.mark.law("C", "D", "F")
def test_sigterm_ends_a_run_cleanly_and_the_next_one_goes_on(pair: Pair, tmp_path: Path) -> None:
    pair.create(1000)
    pair.mirror()
    with running(tmp_path / "run.log", "run", "--conf", pair.conf) as process:

        def is_under_way() -> bool:
            # The remote topic is made beside the records, and perhaps before a stream has begun to read.
            is_there = pair.remote in topics_of(pair.central) and "  ready: " in process.output
            return is_there or not process.is_running

        wait_until(is_under_way, "something is mirrored")
        assert process.terminate() == 0, process.output
        # What Spark, its workers and Kafka's clients said is in the log file that one of the first lines names.
        said = [line.partition("  ")[2].partition(":")[0] for line in process.output.splitlines()]
        assert {"run", "settings", "spark", "clusters", "lake", "ready", "stop"} <= {*said}, process.output
        for noise in ("WARNING:", "Setting default log level", "SLF4J", "Exception", "Traceback", "rdkafka"):
            assert noise not in process.output
        named = re.search(r"log of Spark and clients: (\S+)", process.output)
        assert named is not None
        assert "incubator" in Path(named[1]).read_text()
        assert re.search(r"^run: .* records landed · .* records republished$", process.output, re.MULTILINE)
        assert "Traceback" not in process.output
    done = pair.cli("run", "--once", "--json")
    assert done.returncode == 0, done.stderr
    pair.check()
