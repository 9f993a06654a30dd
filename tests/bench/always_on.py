"""A running mirror under a steady load: latency from produce to visible, cores, memory, and what its start costs.

`python -m tests.bench.always_on --help`. MirrorMaker 2 (tuned, exactly-once) runs on the same brokers in the same invocation.
Latency is that of a `read_committed` consumer on the target, by a clock that both ends share; cores are those of the mirror's
whole process tree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirrorlake.sandbox import KafkaCluster, MirrorMaker, start_all
from mirrorlake.sandbox.ports import free_ports
from tests.bench import mm2
from tests.bench.figures import MM2_EXACTLY_ONCE
from tests.bench.harness import teller
from tests.bench.processes import ProcessTree, Stopwatch, this_machine

MIRRORLAKE = "mirrorlake"
TOPIC = "bench.live"
PARTITIONS = 4
VALUE_BYTES = 100
# The first batches of a JVM are dearer, whoever runs it.
WARM_UP_S = 30.0
START_S = 300.0
_TICKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was seen of one subject at one rate; the rate 0 is an idle mirror."""

    subject: str
    rate: int
    p50_ms: float | None
    p99_ms: float | None
    cores: float
    strangers_cores: float
    memory_gb: float


class Watcher:
    """Read a remote topic as applications do, and keep how long each record took; a `with` block starts and ends it."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"bench-{topic}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": "false",
                "topic.metadata.refresh.interval.ms": "500",
            }
        )
        self._consumer.subscribe([topic])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.latencies: list[tuple[float, float]] = []
        """When each record was made, and how many seconds it took."""

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def between(self, start: float, end: float) -> np.ndarray:  # type: ignore[type-arg]
        """Return the latencies, in milliseconds, of the records made in a stretch of time."""
        return np.array([1000 * took for made, took in self.latencies if start <= made < end])

    def _work(self) -> None:
        while not self._ended.is_set():
            messages = self._consumer.consume(1000, 0.1)
            now = time.time()
            for message in messages:
                if not message.error():
                    made = int(message.value()[:20]) / 1e9
                    self.latencies.append((made, now - made))


def load(producer: Producer, rate: int, seconds: float) -> None:
    """Send at a steady rate, in ticks of 10 ms; each value begins with the time."""
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        due = int(elapsed * rate)
        for number in range(sent, due):
            value = f"{time.time_ns():020}".ljust(VALUE_BYTES, "x").encode()
            producer.produce(TOPIC, value, partition=number % PARTITIONS)
        sent = due
        producer.poll(0)
        time.sleep(1 / _TICKS)
    producer.flush(30)


@contextmanager
def mirrorlake(folder: Path, servers: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Run the mirror as an operator does; yield its process and the remote topic."""
    conf, log = folder / "mirror.yml", folder / "mirror.log"
    flow = {"source": "east", "target": "central", "topics": TOPIC}
    clusters = {alias: {"bootstrap_servers": address} for alias, address in servers.items()}
    conf.write_text(json.dumps({"lake": {"root": str(folder / "lake")}, "clusters": clusters, "flows": [flow]}))
    command = [sys.executable, "-m", "mirrorlake", "run", "--conf", str(conf)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process.pid, f"east.{TOPIC}"
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def mirror_maker(folder: Path, servers: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Run MM2, tuned and exactly-once."""
    (rest_port,) = free_ports(1)
    known = {"mm2east": servers["east"], "central": servers["central"]}
    settings = mm2.fan_out(MM2_EXACTLY_ONCE, "mm2east", ["central"], known, rest_port=rest_port)
    mirror = MirrorMaker(folder / "mm2", settings, java_options=("-Xms1g", "-Xmx1g"))
    try:
        yield mirror.process.pid, f"mm2east.{TOPIC}"
    finally:
        mirror.stop()


SUBJECTS = {MIRRORLAKE: mirrorlake, MM2_EXACTLY_ONCE: mirror_maker}


def measure(subject: str, folder: Path, clusters: Sequence[KafkaCluster], options: argparse.Namespace) -> list[Window]:
    """Start one mirror, and watch it at each rate."""
    say, servers = teller(), {cluster.alias: cluster.bootstrap_servers for cluster in clusters}
    producer = Producer({"bootstrap.servers": servers["east"], "linger.ms": "5", "compression.type": "lz4"})
    brokers = [ProcessTree(cluster.pid) for cluster in clusters if cluster.pid is not None]
    found = []
    with SUBJECTS[subject](folder, servers) as (pid, remote), Watcher(servers["central"], remote) as watcher:
        watch = Stopwatch(ProcessTree(pid), brokers)
        began = time.time()
        while not watcher.latencies:
            if time.time() - began > START_S:
                raise RuntimeError(f"{subject} mirrored nothing within {START_S:.0f} s")
            load(producer, 10, 1)
        start = watch.read()
        say(f"{subject}: first record after {start.seconds:.1f} s, {start.cpu_seconds:.1f} CPU-s")
        for rate in options.rates:
            load(producer, rate, WARM_UP_S)
            watch.restart()
            first = time.time()
            load(producer, rate, options.seconds)
            last, used = time.time(), watch.read()
            # What was made last arrives within the next batches.
            time.sleep(WARM_UP_S / 2)
            took = watcher.between(first, last)
            found.append(
                Window(
                    subject=subject,
                    rate=rate,
                    p50_ms=float(np.percentile(took, 50)) if len(took) else None,
                    p99_ms=float(np.percentile(took, 99)) if len(took) else None,
                    cores=used.cpu_seconds / used.seconds,
                    strangers_cores=used.strangers_cores,
                    memory_gb=_memory(pid),
                )
            )
            say(f"{found[-1]}")
    return found


def table(windows: Sequence[Window]) -> str:
    """Return the windows as Markdown.

    >>> print(table([Window(subject="a", rate=10, p50_ms=1.2, p99_ms=None, cores=0.5, strangers_cores=0, memory_gb=1)]))
    |  | records/s | p50 ms | p99 ms | cores | memory GB | others' cores |
    | --- | ---: | ---: | ---: | ---: | ---: | ---: |
    | a | 10 | 1 | – | 0.50 | 1.0 | 0.0 |
    """
    lines = ["|  | records/s | p50 ms | p99 ms | cores | memory GB | others' cores |", f"| --- |{' ---: |' * 6}"]
    for one in windows:
        p50, p99 = ("–" if value is None else f"{value:,.0f}" for value in (one.p50_ms, one.p99_ms))
        lines.append(
            f"| {one.subject} | {one.rate:,} | {p50} | {p99} | {one.cores:.2f} | {one.memory_gb:.1f} | {one.strangers_cores:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure and print the table."""
    options = _parser().parse_args(arguments)
    windows: list[Window] = []
    with tempfile.TemporaryDirectory(prefix="mirrorlake-bench-", dir=options.directory) as directory:
        folder = Path(directory)
        clusters = [KafkaCluster(alias, directory=folder / alias) for alias in ("east", "central")]
        try:
            start_all(clusters)
            client = AdminClient({"bootstrap.servers": clusters[0].bootstrap_servers})
            client.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result(60)
            for subject in options.only:
                windows += measure(subject, folder, clusters, options)
        finally:
            for cluster in clusters:
                cluster.stop()
    sys.stdout.write(f"{this_machine()}\n\n{table(windows)}\n")
    return 0


def _memory(pid: int) -> float:
    root = psutil.Process(pid)
    return float(sum(one.memory_info().rss for one in (root, *root.children(recursive=True))) / 1e9)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.always_on", description=__doc__)
    add = parser.add_argument
    add("--rates", type=lambda text: [int(rate) for rate in text.split(",")], default=[1000, 5000, 0], metavar="A,B")
    add("--seconds", type=float, default=60.0, help="of each window (60)")
    add("--only", type=lambda text: text.split(","), default=list(SUBJECTS), help=", ".join(SUBJECTS))
    add("--directory", type=Path, help="where data is put while it runs (the system's temporary folder)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
