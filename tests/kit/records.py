"""Topics, records and groups as any client writes and reads them: the data of tests, and an independent reader."""

from __future__ import annotations

import random
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from deltalake import DeltaTable
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from mirrorlake import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import beside, wait_until

_T = TypeVar("_T")
ABORTED = b"aborted:"
# Who commits is answered before the marker is in the log, which takes milliseconds; what is still open then stays open.
_MARKER_S = 2.0
# A cluster, or the address of one.
Where = KafkaCluster | str
# The arguments of `produce`: value, key, partition; or by name.
Sent = tuple[Any, ...] | dict[str, Any]
# Answers of a broker that has just started, or makes the topic of commits: a moment later it leads and has loaded.
_STARTING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


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


def address_of(where: Where) -> str:
    return where if isinstance(where, str) else where.bootstrap_servers


# Its futures die with it: whoever waits for one keeps the client.
def _admin(where: Where) -> AdminClient:
    return AdminClient({"bootstrap.servers": address_of(where)})


def _settle(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result()


def topic_name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def topics_of(where: Where) -> set[str]:
    return set(_admin(where).list_topics(timeout=60).topics)


def configs_of(where: Where, name: str) -> dict[str, str]:
    """Return what is set for a topic itself; brokers answer with their defaults, too."""
    asked = ConfigResource(ResourceType.TOPIC, name)
    admin = _admin(where)
    entries = admin.describe_configs([asked])[asked].result().values()
    return {one.name: one.value for one in entries if one.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}


def partitions_of(where: Where, name: str) -> int:
    return len(_admin(where).list_topics(name, timeout=60).topics[name].partitions)


def create_topic(where: Where, name: str, partitions: int = 2, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = _admin(where)
    _settle(admin.create_topics([NewTopic(name, partitions, 1, config=settings)]))
    wait_until(lambda: name in topics_of(where), f"{name} is in the metadata")


def new_topic(where: Where, records: int = 0, *, partitions: int = 2, prefix: str = "t", **config: str) -> str:
    """Create a topic that no other test has, with plain records; return its name."""
    name = topic_name(prefix)
    create_topic(where, name, partitions, **config)
    produce(where, name, records, partitions=partitions)
    return name


def delete_topic(where: Where, name: str, *, missing_ok: bool = False) -> None:
    if missing_ok and name not in topics_of(where):
        return
    admin = _admin(where)
    _settle(admin.delete_topics([name]))
    wait_until(lambda: name not in topics_of(where), f"{name} is gone")


def add_partitions(where: Where, name: str, count: int) -> None:
    admin = _admin(where)
    _settle(admin.create_partitions([NewPartitions(name, count)]))
    wait_until(
        lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == count, "partitions are there"
    )


def delete_records(where: Where, topic: str, partition: int, before: int) -> None:
    admin = _admin(where)
    _settle(admin.delete_records([TopicPartition(topic, partition, before)]))


def produce(where: Where, topic: str, count: int, *, partitions: int = 2, seed: int = 1, prefix: str = "v") -> None:
    """Write plain records, `count` in all, spread evenly."""
    records = (
        (f"{prefix}{seed}-{number}".encode(), str(number).encode(), number % partitions) for number in range(count)
    )
    send(where, topic, records, **{"enable.idempotence": True})


def _put(producer: Producer, topic: str, record: Sent) -> None:
    if isinstance(record, Mapping):
        producer.produce(topic, **record)
    else:
        producer.produce(topic, *record)


def send(where: Where, topic: str, records: Iterable[Sent], **options: Any) -> None:
    """Write records."""
    producer = Producer(
        {"bootstrap.servers": address_of(where), "linger.ms": 5, "message.max.bytes": 2_000_000, **options}
    )
    for number, record in enumerate(records):
        _put(producer, topic, record)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def send_transactions(
    where: Where, topic: str, transactions: Iterable[tuple[Iterable[Sent], bool]], **options: Any
) -> None:
    """Write transactions: the records of each, and whether it is committed or aborted; return when all have ended in the log."""
    options = {"transactional.id": f"app-{uuid.uuid4()}", "message.max.bytes": 2_000_000, **options}
    options["bootstrap.servers"] = address_of(where)
    producer = Producer(options)
    producer.init_transactions(60)
    for records, is_committed in transactions:
        producer.begin_transaction()
        for record in records:
            _put(producer, topic, record)
        assert producer.flush(60) == 0
        (producer.commit_transaction if is_committed else producer.abort_transaction)(60)
    # The last answer came before the marker of its transaction was written, which the next one with this id waits for.
    Producer(options).init_transactions(60)


@contextmanager
def open_transaction(
    where: Where, topic: str, value: bytes = b"never committed", *, commits: bool = False, **options: Any
) -> Iterator[None]:
    """Keep a transaction open that has written a record to partition 0; it is aborted, or committed, at the end of the block."""
    # Longer than any look at it takes: the broker ends a transaction that is open for more than this.
    own = {"transactional.id": topic_name("hung"), "transaction.timeout.ms": 900_000, **options}
    producer = Producer({"bootstrap.servers": address_of(where), **own})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value, b"k", partition=0)
    assert producer.flush(60) == 0
    try:
        yield
    finally:
        (producer.commit_transaction if commits else producer.abort_transaction)(60)


@contextmanager
def producing(
    where: Where, topics: Sequence[str], prefix: str, *, every_s: float = 0.05, patience_s: float = 30.0
) -> Iterator[dict[bytes, float]]:
    """Write to both partitions of topics until the block ends; gives what was confirmed, and when.

    What is under way at the end has the patience to be confirmed, none where the broker is dead by then.
    """
    confirmed = dict[bytes, float]()

    def note(error: object, message: Any) -> None:
        if error is None:
            confirmed[message.value()] = time.time()

    def write(stop: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": address_of(where), "enable.idempotence": True, "linger.ms": 0})
        number = 0
        while not stop.wait(every_s):
            for topic in topics:
                value = f"{prefix}-{topic}-{number}".encode()
                producer.produce(topic, value, partition=number % 2, on_delivery=note)
            number += 1
            producer.poll(0)
        producer.flush(patience_s)

    with beside(write):
        yield confirmed


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


def consume(where: Where, topic: str) -> dict[int, list[Record]]:
    """Read a topic to its end as a read_committed consumer of its own; the oracle of every comparison.

    A topic that is not there has no partitions.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address_of(where),
            "group.id": f"oracle-{random.random()}",
            "isolation.level": "read_committed",
            # What was deleted before the first record that is left.
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.max.bytes": 100_000_000,
            # The end of a partition is told by an answer without records, for which a broker waits half a second by default.
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[int, list[Record]] = {partition: [] for partition in partitions}
    open_partitions = set(partitions)
    # What had been written by the first end of a partition; a flow that goes on sending is not followed.
    written: dict[int, int] = {}
    waits: dict[int, float] = {}
    heard = time.monotonic()
    while open_partitions:
        # `consume` waits until it has as many messages as it was asked for, or for the whole of its time-out.
        messages = consumer.consume(10_000, timeout=0.1)
        heard = time.monotonic() if messages else heard
        assert time.monotonic() - heard < 60, f"{topic} did not come to its end"
        for message in messages:
            partition = message.partition()
            waits.pop(partition, None)
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
                if message.offset() < written.setdefault(partition, end):
                    waits[partition] = time.monotonic() + _MARKER_S
                else:
                    open_partitions.discard(partition)
                continue
            headers, (_, stamp) = tuple(message.headers() or ()), message.timestamp()
            record = Record(message.offset(), message.key(), message.value(), headers, stamp)
            found[partition].append(record)
        open_partitions -= {partition for partition, until in waits.items() if time.monotonic() > until}
    # For its first reader a broker makes the topic of groups, and lists it before it leads it.
    _answered(lambda: consumer.committed([TopicPartition(topic, 0)], timeout=60))
    consumer.close()
    return found


def count(where: Where, topic: str) -> int:
    """Count the committed records of a topic; 0 where there is no such topic."""
    return sum(map(len, consume(where, topic).values()))


def held(location: str | Path, topic: str) -> list[dict[str, Any]]:
    """Read the rows of a table about a topic with delta-rs, for tests that ask often: Spark takes a second of CPU each time."""
    return list(DeltaTable(location).to_pyarrow_table(filters=[("topic", "=", topic)]).to_pylist())


def rows_of(mirror: Mirror, table: str, topic: str) -> list[dict[str, Any]]:
    """Ask for the rows of a table about a topic, by the names of docs/sql.md."""
    return list(mirror.query(f"SELECT * FROM {table} WHERE topic = :topic", topic=topic).to_pylist())  # noqa: S608


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


@contextmanager
def member(where: Where, group: str, *topics: str) -> Iterator[None]:
    """Be a live member of a group, which commits nothing."""
    options = {"bootstrap.servers": address_of(where), "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**options, "auto.offset.reset": "earliest"})
    consumer.subscribe([*topics])
    try:
        # A poll lets it join, whether or not there is a record.
        wait_until(lambda: (consumer.poll(0.1), consumer.assignment())[1], f"{group} has a member")
        yield
    finally:
        consumer.close()


@contextmanager
def _consumer(where: Where, group: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": address_of(where), "group.id": group, "enable.auto.commit": False})
    yield consumer
    consumer.close()


def _answered(ask: Callable[[], _T]) -> _T:
    is_starting = retry_if_exception(
        lambda error: isinstance(error, KafkaException) and error.args[0].code() in _STARTING
    )
    return Retrying(retry=is_starting, stop=stop_after_delay(60), wait=wait_fixed(0.2), reraise=True)(ask)


def commit(
    where: Where, group: str, topics: str | Sequence[str], positions: dict[int, int], metadata: str = ""
) -> None:
    """Commit as a consumer that assigns its partitions itself does: a group without members."""
    names = [topics] if isinstance(topics, str) else topics
    offsets = [TopicPartition(name, p, at, metadata=metadata) for name in names for p, at in positions.items()]
    with _consumer(where, group) as consumer:
        _answered(lambda: consumer.commit(offsets=offsets, asynchronous=False))


def committed(where: Where, group: str, topic: str, partitions: int) -> dict[int, int]:
    asked = [TopicPartition(topic, p) for p in range(partitions)]
    with _consumer(where, group) as consumer:
        found = _answered(lambda: consumer.committed(asked, timeout=60))
    return {tp.partition: tp.offset for tp in found if tp.offset >= 0}


def end_of(where: Where, topic: str, partition: int) -> int:
    with _consumer(where, "ends") as consumer:
        _, end = _answered(lambda: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60))
    return int(end)


def set_configs(where: Where, topic: str, **config: str | None) -> None:
    """Set configurations of a topic, or take back what is None; returns when the cluster says so."""
    kind, names = ResourceType.TOPIC, {key.replace("_", "."): value for key, value in config.items()}
    entries = [
        ConfigEntry(name, value or "", incremental_operation=getattr(AlterConfigOpType, "SET" if value else "DELETE"))
        for name, value in names.items()
    ]
    admin = _admin(where)
    _settle(admin.incremental_alter_configs([ConfigResource(kind, topic, incremental_configs=entries)]))

    def is_set() -> bool:
        [future] = admin.describe_configs([ConfigResource(kind, topic)]).values()
        there = future.result()
        return all(value is None or there[name].value == value for name, value in names.items())

    wait_until(is_set, f"{config} of {topic}")


def members(where: Where, group: str) -> int:
    """Count the members of a group; 0 where there is no such group."""
    with warnings.catch_warnings():
        # Deprecated for consumer groups, but its replacement refuses those of Connect's workers (librdkafka 2.16).
        warnings.simplefilter("ignore", DeprecationWarning)
        return sum(len(one.members) for one in _admin(where).list_groups(group, timeout=60))
