"""Write sample traffic to a cluster: records of every shape, some in transactions, some of these aborted.

Binary, empty and null keys, headers with duplicates and null values, tombstones, binary and empty values, and offsets of
aborted transactions and control records.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPosition
from confluent_kafka.admin import AdminClient, NewTopic

from mirrorlake.errors import SandboxError
from mirrorlake.kafka import COORDINATOR_MOVING, retry_transient
from mirrorlake.model.flow import TopicPartition

if TYPE_CHECKING:
    from mirrorlake.config.schema import FlowConfig

# Partitions of each sample topic; every topic gets the same number of records.
SAMPLE_TOPICS: Mapping[str, int] = MappingProxyType(
    {"orders": 4, "payments.card": 2, "payments.invoice": 2, "clicks": 4}
)
# A topic's own settings are copied to its remote topic; a non-default setting shows that.
_TOPIC_CONFIGS = {"orders": {"max.message.bytes": "2097152"}}

_ROUNDS = 4
# Shares of a round: the committed transaction's, and the aborted one's, which is extra.
_IN_TRANSACTION = 0.4
_ABORTED = 0.05
_SPREAD_MS = 30_000
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTraffic:
    """The written traffic per partition: records that a `read_committed` reader sees, and aborted records.

    `after_abort` is the offset of the first record after the last aborted transaction that touched a partition.
    """

    committed: Counter[TopicPartition] = field(default_factory=Counter)
    aborted: Counter[TopicPartition] = field(default_factory=Counter)
    after_abort: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(self.committed.values())


@dataclass(frozen=True, slots=True)
class _Sample:
    place: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def sample_topics(flows: Iterable[FlowConfig]) -> dict[str, int]:
    several = list(flows)
    return {name: count for name, count in SAMPLE_TOPICS.items() if any(flow.carries(name) for flow in several)}


def write_sample_traffic(
    bootstrap_servers: str,
    *,
    region: str,
    records: int,
    topics: Mapping[str, int] = SAMPLE_TOPICS,
) -> SampleTraffic:
    """Create missing topics, and write records with timestamps of the last half minute.

    A group, `sample-reader`, commits half of each partition: sources without consumers are rare, and a mirror reads them
    differently (law H).

    Args:
        bootstrap_servers: the cluster; its topics should be empty or hold earlier sample traffic.
        region: a field of every record, so that records of two clusters differ.
        records: the number of records that a `read_committed` reader will see.
        topics: partitions by topic name.

    Raises:
        SandboxError: the cluster did not take the records.
    """
    create_topics(bootstrap_servers, topics)
    options = {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "compression.type": "lz4", "log_level": 0}
    plain = Producer(options)
    transactional = Producer({**options, "transactional.id": f"sample-traffic-{region}"})
    samples = _samples(region, list(topics.items()), records, int(time.time() * 1000))
    written = SampleTraffic()
    try:
        transactional.init_transactions(_TIMEOUT_S)
        for each in range(_ROUNDS):
            share = [next(samples) for _ in range(records * (each + 1) // _ROUNDS - records * each // _ROUNDS)]
            _write_round(plain, transactional, share, written)
            if plain.flush(_TIMEOUT_S):
                raise not_written(
                    bootstrap_servers, f"{len(plain)} records were not confirmed within {_TIMEOUT_S:.0f} s"
                )
        _read_half(bootstrap_servers, written.committed)
    except KafkaException as error:
        raise not_written(bootstrap_servers, str(error)) from error
    return written


def _read_half(bootstrap_servers: str, committed: Mapping[TopicPartition, int]) -> None:
    options = {"bootstrap.servers": bootstrap_servers, "group.id": "sample-reader", "log_level": 0}
    positions = [KafkaPosition(place.topic, place.partition, count // 2) for place, count in committed.items()]
    consumer = Consumer(options)
    try:
        # The first commit on a cluster creates its internal topic of group offsets.
        retry_transient(COORDINATOR_MOVING, timeout_s=_TIMEOUT_S)(
            consumer.commit, offsets=positions, asynchronous=False
        )
    finally:
        consumer.close()


def _write_round(plain: Producer, transactional: Producer, samples: Sequence[_Sample], written: SampleTraffic) -> None:
    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            raise KafkaException(error)
        written.after_abort[TopicPartition(message.topic(), message.partition())] = message.offset()

    inside = int(len(samples) * _IN_TRANSACTION)
    transactional.begin_transaction()
    for sample in samples[:inside]:
        _produce(transactional, sample)
    transactional.commit_transaction(_TIMEOUT_S)
    transactional.begin_transaction()
    dropped = samples[: max(1, int(len(samples) * _ABORTED))]
    for sample in dropped:
        _produce(transactional, sample)
    # Without the flush no aborted record would reach the broker, and no offset would be missing.
    transactional.flush(_TIMEOUT_S)
    transactional.abort_transaction(_TIMEOUT_S)
    awaited = {sample.place for sample in dropped}
    for sample in samples[inside:]:
        callback = {"on_delivery": delivered} if sample.place in awaited else {}
        awaited.discard(sample.place)
        _produce(plain, sample, **callback)
    written.committed.update(sample.place for sample in samples)
    written.aborted.update(sample.place for sample in dropped)


def _produce(producer: Producer, sample: _Sample, **options: Any) -> None:
    producer.produce(
        sample.place.topic,
        sample.value,
        sample.key,
        sample.place.partition,
        timestamp=sample.timestamp_ms,
        headers=sample.headers,
        **options,
    )
    producer.poll(0)


def _samples(region: str, topics: Sequence[tuple[str, int]], records: int, end_ms: int) -> Iterator[_Sample]:
    step = _SPREAD_MS / max(1, records)
    for number in range(records):
        topic, partitions = topics[number % len(topics)]
        customer = f"{region}-{number * 7919 % 997}"
        key, value = _content(number, region, topic, customer)
        yield _Sample(
            place=TopicPartition(topic, (crc32(key) if key else number // len(topics)) % partitions),
            key=key,
            value=value,
            headers=_headers(number, region),
            timestamp_ms=end_ms - int((records - 1 - number) * step),
        )


def _content(number: int, region: str, topic: str, customer: str) -> tuple[bytes | None, bytes | None]:
    document = {"region": region, "topic": topic, "number": number, "customer": customer, "amount": number * 13 % 5000}
    # The steps share no factor with the number of topics, so every topic gets every shape.
    if number % 97 == 0:
        return customer.encode(), None
    if number % 89 == 0:
        return customer.encode(), b""
    if number % 83 == 0:
        return customer.encode(), bytes(range(256))
    if number % 79 == 0:
        return b"", json.dumps(document).encode()
    if number % 73 == 0:
        return bytes([0, 255, number % 256]), json.dumps(document).encode()
    if number % 7 == 0:
        return None, json.dumps(document).encode()
    return customer.encode(), json.dumps(document).encode()


def _headers(number: int, region: str) -> list[tuple[str, bytes | None]]:
    if number % 5 == 0:
        return []
    headers: list[tuple[str, bytes | None]] = [("region", region.encode()), ("trace", str(number).encode())]
    if number % 11 == 0:
        headers += [("trace", b"again"), ("note", None), ("empty", b"")]
    return headers


def create_topics(bootstrap_servers: str, topics: Mapping[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wanted = [
        NewTopic(name, num_partitions=count, config=_TOPIC_CONFIGS.get(name, {})) for name, count in topics.items()
    ]
    for future in admin.create_topics(wanted, request_timeout=_TIMEOUT_S).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise not_written(bootstrap_servers, str(error)) from error


def not_written(bootstrap_servers: str, why: str) -> SandboxError:
    return SandboxError(
        f"the sample traffic could not be written to {bootstrap_servers}: {why}",
        consequence="its topics hold a part of it",
        remedy="look into the broker's log, then start again with empty topics",
    )
