"""What flow tests share: settings files, sample records, an independent reader, and the command line as a process."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from mirrorlake.cli import main
from mirrorlake.mirror import Mirror

ABORTED = b"aborted:"
_LOADING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE)


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def content(self) -> tuple[Any, ...]:
        """Everything but the offset (law C)."""
        return self[1:]


def write_conf(
    folder: Path, clusters: Mapping[str, str], flows: list[dict[str, Any]], **cluster_settings: Mapping[str, Any]
) -> Path:
    """Write a settings file; JSON is YAML."""
    path = folder / "mirror.yml"
    entries = {
        alias: {"bootstrap_servers": address, **cluster_settings.get(alias, {})} for alias, address in clusters.items()
    }
    # To load mlflow and make its tables takes seconds, and what is tracked has its own test.
    settings = {"lake": {"root": str(folder / "lake")}, "clusters": entries, "flows": flows}
    path.write_text(json.dumps({**settings, "tracking": {"enabled": False}}))
    return path


def create_topic(address: str, name: str, partitions: int = 2, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
        future.result()
    wait_until(lambda: name in admin.list_topics(timeout=10).topics, f"{name} is in the metadata")


def delete_ledgers(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    ledgers = [name for name in admin.list_topics(timeout=10).topics if name.startswith("mirrorlake.")]
    for future in (admin.delete_topics(ledgers) if ledgers else {}).values():
        future.result()
    wait_until(lambda: not set(ledgers) & set(admin.list_topics(timeout=10).topics), "the ledgers are gone")


def delete_topic(address: str, name: str, *, missing_ok: bool = False) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    if missing_ok and name not in admin.list_topics(timeout=10).topics:
        return
    for future in admin.delete_topics([name]).values():
        future.result()
    wait_until(lambda: name not in admin.list_topics(timeout=10).topics, f"{name} is gone")


def add_partitions(address: str, name: str, count: int) -> None:
    from confluent_kafka.admin import NewPartitions

    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_partitions([NewPartitions(name, count)]).values():
        future.result()
    wait_until(
        lambda: len(admin.list_topics(name, timeout=10).topics[name].partitions) == count, "partitions are there"
    )


def delete_records(address: str, topic: str, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result()


def produce(address: str, topic: str, count: int, *, partitions: int = 2, seed: int = 1, prefix: str = "v") -> None:
    """Write plain records, `count` in all, spread evenly."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, f"{prefix}{seed}-{number}".encode(), str(number).encode(), number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def odd_record(rng: random.Random, number: int, *, large: bool = False) -> dict[str, Any]:
    """Return one record of every kind that law C names, by chance: nulls, empties, tombstones, headers, sizes."""
    key = rng.choice([None, b"", str(number).encode(), rng.randbytes(8)])
    kind = rng.random()
    value: bytes | None = rng.randbytes(rng.randint(1, 400))
    if large:
        value = rng.randbytes(rng.randint(100_000, 900_000))
    elif kind < 0.05:
        value = None
    elif kind < 0.10:
        value = b""
    headers: list[tuple[str, bytes | None]] = []
    if rng.random() < 0.3:
        names = ["a", "b", "trace-id", "ключ"]
        count = rng.choice([1, 2, 3, 50])
        headers = [(rng.choice(names), rng.choice([None, b"", b"1", rng.randbytes(5)])) for _ in range(count)]
    timestamp = int(time.time() * 1000) - rng.randint(0, 3_600_000)
    return {"key": key, "value": value, "headers": headers or None, "timestamp": timestamp}


def consume(address: str, topic: str) -> dict[int, list[Record]]:
    """Read a topic to its end as a read_committed consumer of its own; the oracle of every comparison."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"oracle-{random.random()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.max.bytes": 100_000_000,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[int, list[Record]] = {partition: [] for partition in partitions}
    open_partitions = set(partitions)
    heard = time.monotonic()
    while open_partitions:
        # `consume` waits until it has as many messages as it was asked for, or for the whole of its time-out.
        messages = consumer.consume(10_000, timeout=0.1)
        heard = time.monotonic() if messages else heard
        assert time.monotonic() - heard < 60, f"{topic} did not come to its end"
        for message in messages:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                open_partitions.discard(message.partition())
                continue
            found[message.partition()].append(
                Record(
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
    consumer.close()
    return found


def assert_equal_topics(source: Mapping[int, list[Record]], target: Mapping[int, list[Record]]) -> None:
    """Laws C, D and F: the same records in the same order, none lost, none twice, none aborted."""
    assert sorted(source) == sorted(target), "law D: the remote topic has other partitions"
    for partition, expected in source.items():
        actual = target[partition]
        assert not any((r.value or b"").startswith(ABORTED) for r in actual), "law F: an aborted record arrived"
        for position, (wanted, found) in enumerate(zip(expected, actual, strict=False)):
            assert wanted.content == found.content, f"laws C/D: partition {partition}, record {position}"
        assert len(expected) == len(actual), (
            f"law F: partition {partition}: {len(expected)} sent, {len(actual)} arrived"
        )


def commit(address: str, group: str, topic: str, positions: dict[int, int], metadata: str = "") -> None:
    """Commit as a consumer that assigns its partitions itself does: a group without members."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, p, offset, metadata=metadata) for p, offset in positions.items()]
    # The first commit of all makes the topic of commits, and its coordinator may still be loading.
    is_loading = retry_if_exception(lambda error: error.args[0].code() in _LOADING)
    for attempt in Retrying(retry=is_loading, stop=stop_after_delay(60), wait=wait_fixed(0.2), reraise=True):
        with attempt:
            consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def committed(address: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=20)
    consumer.close()
    return {tp.partition: tp.offset for tp in found if tp.offset >= 0}


def end_of(address: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    consumer.close()
    return int(end)


def wait_until(condition: Callable[[], Any], what: str, *, timeout: float = 400.0) -> Any:
    """Poll a condition; fails with its name when it does not come true."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"never came true: {what}")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mirrorlake", *arguments]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **extra}


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, on the Spark session that the tests share; `Process` is one of its own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


class Process:
    """A mirrorlake command that stays on; its output is kept for the failure message."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.arguments = arguments
        self._log = log
        self._open = log.open("ab")
        self.popen = subprocess.Popen(
            command(*arguments), stdout=self._open, stderr=subprocess.STDOUT, env=environment()
        )

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._open.close()

    def terminate(self, timeout: float = 60) -> int:
        if self.popen.poll() is None:
            self.popen.terminate()
        code = self.popen.wait(timeout)
        self._open.close()
        return code

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[Process]:
    process = Process(log, *arguments)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.kill()


@contextmanager
def staying_on(mirror: Mirror) -> Iterator[list[BaseException]]:
    """Run a mirror in this process until the block ends; gives the list into which its failure is put, if it fails."""
    stop, failures = threading.Event(), []

    def run() -> None:
        try:
            mirror.run(stop=stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
