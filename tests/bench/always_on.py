"""A running mirror: what its start costs, latency and cores under a steady load and idle, and what bursts cost.

Latency is that of a `read_committed` consumer on the target, from produce to visible, by a clock that both ends share; cores
and memory are those of the mirror's whole process tree. Each subject has brokers of its own. Latency is
measured with the smallest number of targets only, bursts with each.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
from confluent_kafka import Consumer, Producer

from tests.bench import mm2
from tests.bench.contest import Contest
from tests.bench.copies import IncompleteCopy
from tests.bench.options import Options
from tests.bench.processes import ProcessTree, Stopwatch
from tests.bench.results import MIRRORLAKE_STREAMING, MM2, Book, Say
from tests.bench.workload import Topic

LIVE = Topic(name="bench.live", records=0, value_bytes=100, partitions=4)
# What was made last arrives within the next batches.
_LAST_S = 15.0
START_S = 300.0
_COMPLETE_S = 600.0
_TICKS = 100


class Watcher:
    """Read a remote topic as applications do, and keep how long each record took; a `with` block starts and ends it."""

    def __init__(self, servers: str, *topics: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"bench-{topics[0]}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": "false",
                "topic.metadata.refresh.interval.ms": "500",
                "log_level": "2",
            }
        )
        self._consumer.subscribe([*topics])
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
            # Without the first, `consume` waits its whole time: that would be half of 0.1 s on top of each latency.
            messages = self._consumer.consume(1, 0.1)
            messages += self._consumer.consume(999, 0.0) if messages else []
            now = time.time()
            for message in messages:
                if not message.error():
                    made = int(message.value()[:20]) / 1e9
                    self.latencies.append((made, now - made))


def spread(partitions: int) -> tuple[Topic, ...]:
    """Return the topics that a rate is spread over: one of four partitions, or topics of twenty with so many in all."""
    if not partitions:
        return (LIVE,)
    return tuple(replace(LIVE, name=f"{LIVE.name}.{number}", partitions=20) for number in range(-(-partitions // 20)))


def load(producer: Producer, rate: int, seconds: float, topics: Sequence[Topic] = (LIVE,)) -> None:
    """Send at a steady rate, in ticks of 10 ms, over all partitions; each value begins with the time."""
    places = [(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        due = int(elapsed * rate)
        for number in range(sent, due):
            value = f"{time.time_ns():020}".ljust(LIVE.value_bytes, "x").encode()
            name, partition = places[number % len(places)]
            producer.produce(name, value, partition=partition)
        sent = due
        producer.poll(0)
        time.sleep(1 / _TICKS)
    producer.flush(30)


@contextmanager
def mirrorlake(contest: Contest, *, execution: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the mirror as an operator does, with a flow to each target."""
    flows = [
        {"source": contest.source.alias, "target": target.alias, "topics": r"bench\..*", "execution": execution}
        for target in contest.targets
    ]
    conf = contest.write_settings(flows, source={"land": {"execution": execution}})
    log = contest.directory / "mirror.log"
    command = [sys.executable, "-m", "mirrorlake", "run", "--conf", str(conf)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        except IncompleteCopy as error:
            raise IncompleteCopy(f"{error}; its last words:\n{log.read_text(errors='replace')[-2000:]}") from error
        finally:
            process.terminate()
            process.wait(60)


class Subject:
    """A running mirror that is watched, whoever it is."""

    def __init__(
        self,
        name: str,
        alias: str,
        process: subprocess.Popen[bytes],
        contest: Contest,
        options: Options,
        book: Book,
        *,
        live: Sequence[Topic],
    ) -> None:
        self.name = name
        self._alias = alias
        self._process = process
        self._contest = contest
        self._options = options
        self._book = book
        self._tree = ProcessTree(process.pid)
        self._live = live
        self._watch = Stopwatch(self._tree, contest.brokers)
        servers = contest.source.bootstrap_servers
        options = {"linger.ms": "5", "compression.type": "lz4", "log_level": "2"}
        self._producer = Producer({"bootstrap.servers": servers, **options})

    def start(self, watcher: Watcher) -> None:
        """Wait for the first record; its time and cost count from the start of the process."""
        deadline = time.monotonic() + START_S
        while not watcher.latencies:
            self._alive()
            if time.monotonic() > deadline:
                raise IncompleteCopy(f"{self.name} mirrored nothing within {START_S:.0f} s")
            load(self._producer, 10, 1, self._live)
        used = self._watch.read()
        count = len(self._contest.targets)
        case = f"{count} target{'s' if count > 1 else ''}"
        self._keep("start", case, used.cost, mode="cold", others_cores=used.strangers_cores)

    def steady(self, watcher: Watcher, rate: int) -> None:
        """Watch one rate; 0 is an idle mirror."""
        # The first batches of a JVM are dearer, whoever runs it: of the mirror and of the brokers.
        load(self._producer, rate, self._options.warm_up, self._live)
        self._watch.restart()
        first = time.time()
        load(self._producer, rate, self._options.seconds, self._live)
        last, used = time.time(), self._watch.read()
        time.sleep(_LAST_S)
        took = watcher.between(first, last)
        values = {f"p{share} ms": float(np.percentile(took, share)) for share in (50, 99) if len(took)}
        values |= {"cores": used.cpu_seconds / used.seconds, "memory GB": self._tree.memory_gb()}
        case = f"{rate:,} records/s" if rate else "idle"
        if self._options.spread:
            case += f" over {self._options.spread:,} partitions"
        self._keep("always-on", case, values, others_cores=used.strangers_cores)

    def burst(self, number: int) -> None:
        """Write a whole workload at once, and wait until every target holds it; the first burst only warms up."""
        topics = bursts(self._options, number)
        copies = self._contest.copies(lambda name: f"{self._alias}.{name}", topics)
        self._watch.restart()
        self._contest.write(topics)
        for copy in copies:
            copy.await_complete(self._alive, patience_s=_COMPLETE_S)
        used = self._watch.read()
        for copy in copies:
            copy.prove()
        if number:
            count, records = len(copies), sum(topic.records for topic in topics)
            self._keep(
                "bursts",
                f"{records:,} records, {count} target{'s' if count > 1 else ''}",
                used.values(records) | {"memory GB": self._tree.memory_gb()},
                others_cores=used.strangers_cores,
            )

    def _keep(
        self, suite: str, case: str, values: dict[str, float], *, mode: str = "warm", others_cores: float
    ) -> None:
        self._book.keep(
            suite,
            case,
            values,
            mode=f"always on, {mode}",
            subject=self.name,
            workload=self._contest.workload if suite == "bursts" else "",
            others_cores=others_cores,
        )

    def _alive(self) -> None:
        if self._process.poll() is not None:
            raise IncompleteCopy(f"{self.name} ended with {self._process.returncode}")


def bursts(options: Options, number: int) -> tuple[Topic, ...]:
    """Return the topics of a burst: there from the start, so that making them is in no figure."""
    return options.topics(f"bench.burst{number}.")


def measure(options: Options, book: Book, say: Say) -> None:
    """Run each subject with each number of targets, on brokers of its own."""
    for count in options.targets:
        for name in options.subjects:
            book.attempt(f"always on, {count} targets, {name}", partial(_one, name, count, options, book, say))


def _one(name: str, count: int, options: Options, book: Book, say: Say) -> None:
    with options.contest(say, targets=count) as contest:
        numbers = range(options.bursts + 1 if options.bursts else 0)
        live = spread(options.spread)
        contest.create([*live, *(topic for number in numbers for topic in bursts(options, number))])
        alias = "mm2live" if name == MM2 else contest.source.alias
        how = "streaming" if name == MIRRORLAKE_STREAMING else "live"
        with (
            mm2.running(alias, contest) if name == MM2 else mirrorlake(contest, execution=how) as process,
            Watcher(contest.targets[0].bootstrap_servers, *(f"{alias}.{topic.name}" for topic in live)) as watcher,
        ):
            subject = Subject(name, alias, process, contest, options, book, live=live)
            subject.start(watcher)
            if count == min(options.targets):
                for rate in options.rates:
                    subject.steady(watcher, rate)
            for number in numbers:
                subject.burst(number)
