"""The records: JSON-like, seeded, by default 1 M of 1 KB and 2 M of 100 B in 8 partitions each, and how they get to the source.

The key of a record is its number in its topic, and its partition is that number modulo the partition count: a copy can
be proven complete and in order by its keys alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Producer

from mirrorlake.render import plural
from tests.bench.results import Say

# How many records of a size are the whole workload: about as many bytes of the largest as of all others.
RECORDS = {100: 2_000_000, 1_000: 1_000_000, 100_000: 12_000}
CODECS = ("lz4", "zstd", "snappy", "gzip", "none")
# Distinct values are used again after 8 MB: far outside the window of any compression at work here.
_POOL_BYTES = 8_000_000
_CHUNK = 200_000
# fmt: off
_WORDS = (
    "accepted", "address", "amount", "archive", "billing", "blocked", "cancelled", "carrier", "channel", "checkout",
    "closed", "confirmed", "country", "created", "credit", "currency", "customer", "declined", "delivery", "discount",
    "dispatch", "express", "failed", "fulfilment", "gateway", "holding", "invoice", "item", "location", "manual",
    "mobile", "notified", "online", "open", "order", "packed", "partner", "payment", "pending", "picked", "priority",
    "processed", "quantity", "received", "refund", "region", "rejected", "reserved", "retry", "returned", "shipped",
    "standard", "status", "stock", "store", "supplier", "ticket", "total", "transfer", "updated", "voucher",
    "warehouse", "website",
)
# fmt: on
_HEX = "0123456789abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the workload."""

    name: str
    records: int
    value_bytes: int
    partitions: int = 8
    codec: str = "lz4"

    @property
    def bytes(self) -> int:
        return self.records * (self.value_bytes + len(key_of(0)))

    def in_partition(self, partition: int) -> int:
        return len(range(partition, self.records, self.partitions))


def topics(
    scale: float = 1.0,
    *,
    sizes: Sequence[int] = (1_000, 100),
    partitions: int = 8,
    codec: str = "lz4",
    prefix: str = "bench.",
) -> tuple[Topic, ...]:
    """Return a topic for each size of value, in bytes; at scale 1 with as many records as `RECORDS` says."""
    found = tuple(
        Topic(
            name=f"{prefix}{size}",
            records=round(RECORDS[size] * scale),
            value_bytes=size,
            partitions=partitions,
            codec=codec,
        )
        for size in sizes
    )
    if any(topic.records < partitions for topic in found):
        raise ValueError(f"a scale of {scale} leaves partitions empty")
    return found


def described(topics: Sequence[Topic]) -> str:
    """Say what the records are.

    >>> described(topics(0.1))
    '100,000 records of 1,000 B and 200,000 of 100 B, 8 partitions, lz4'
    """
    parts = [f"{topic.records:,} of {topic.value_bytes:,} B" for topic in topics]
    parts[0] = parts[0].replace(" of ", " records of ")
    return f"{' and '.join(parts)}, {plural(topics[0].partitions, 'partition')}, {topics[0].codec}"


def key_of(number: int) -> bytes:
    """Return the key of the record with this number.

    >>> key_of(17)
    b'000000000017'
    """
    return b"%012d" % number


def values(size: int, seed: int) -> list[bytes]:
    """Return a pool of different JSON-like values of exactly `size` bytes, compressible by lz4 about 2 to 3 times."""
    random = Random(f"{seed}/{size}")
    return [_value(random, size) for _ in range(max(1, _POOL_BYTES // size))]


def _value(random: Random, size: int) -> bytes:
    text = f'{{"id":"{_hex(random, 12)}"'
    # The same names in the same order, as the records of one topic have them.
    for name in cycle(_WORDS):
        if len(text) >= size - 1:
            return (text[: size - 1] + "}").encode("ascii")
        text += f',"{name}":{_content(random)}'
    raise AssertionError("a cycle ends")


def _content(random: Random) -> str:
    kind = random.random()
    if kind < 0.25:
        return f'"{_hex(random, 8)}"'
    if kind < 0.6:
        return str(random.randrange(100_000) / 100)
    return f'"{random.choice(_WORDS)} {random.choice(_WORDS)}"'


def _hex(random: Random, length: int) -> str:
    return "".join(random.choices(_HEX, k=length))


def fill(bootstrap_servers: str, topic: Topic, *, seed: int, say: Say) -> None:
    """Write all records of a topic; the broker has confirmed every one of them when this returns."""
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": topic.codec,
            "enable.idempotence": True,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * _CHUNK,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            "log_level": 2,
            "on_delivery": lambda error, _: failures.append(error) if error else None,
        }
    )
    for chunk in _chunks(topic, seed):
        deque(map(producer.produce, repeat(topic.name), *chunk), maxlen=0)
        if producer.flush(120) or failures:
            raise RuntimeError(f"{topic.name} could not be written: {failures[:1] or 'the broker does not answer'}")
    say(f"wrote {topic.records:,} records of {topic.value_bytes} B to {topic.name}")


def _chunks(topic: Topic, seed: int) -> Iterator[tuple[list[bytes], list[bytes], list[int]]]:
    pool: Iterator[Any] = cycle(values(topic.value_bytes, seed))
    # A chunk is flushed as a whole, so it has to fit into the client's queue.
    chunk = min(_CHUNK, 500_000_000 // topic.value_bytes)
    for start in range(0, topic.records, chunk):
        numbers = range(start, min(start + chunk, topic.records))
        keys = [key_of(number) for number in numbers]
        yield list(islice(pool, len(numbers))), keys, [number % topic.partitions for number in numbers]
