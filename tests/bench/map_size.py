"""How many rows and bytes the offset map takes per million records: plain, with a marker every few records, and by key."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import functions as F

import mirrorlake as ml
from mirrorlake.lake.schema import OFFSET_MAP
from mirrorlake.model.plan import TopicSpec
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.bench.options import Options
from tests.bench.results import MIRRORLAKE, Book, Say

PARTITIONS = 8
PLAIN = 1_000_000
KEYED, KEYS, TARGETS = 200_000, 10_000, 12
TRANSACTIONS, EACH = 12_000, 5
_WRITERS = 8
CASES = {
    "plain": "plain",
    "marked": f"a commit marker after every {EACH} records",
    "keyed": f"by key, {KEYS:,} keys, {PARTITIONS} to {TARGETS} partitions",
}


def measure(options: Options, book: Book, _: Say) -> None:
    """Mirror each kind of topic once."""
    if MIRRORLAKE not in options.subjects:
        return
    with options.folder() as folder:
        clusters = {alias: KafkaCluster(alias, directory=folder / alias) for alias in ("east", "central")}
        start_all(list(clusters.values()))
        try:
            address = clusters["east"].bootstrap_servers
            admin = ml.from_settings(_settings(folder, clusters, "unused")).admin("east")
            for topic in CASES:
                admin.create(TopicSpec(name=topic, partitions=PARTITIONS))
            _write_plain(address, "plain", round(PLAIN * options.scale), keys=0)
            _write_plain(address, "keyed", round(KEYED * options.scale), keys=KEYS)
            transactions = round(TRANSACTIONS * options.scale)
            with ThreadPoolExecutor(_WRITERS) as pool:
                list(pool.map(lambda partition: _write_marked(address, partition, transactions), range(PARTITIONS)))
            for topic, case in CASES.items():
                book.keep("map", case, _measure(folder, clusters, topic), mode="one `run --once`")
        finally:
            for cluster in clusters.values():
                cluster.kill()


def _settings(folder: Path, clusters: dict[str, KafkaCluster], topic: str) -> dict[str, object]:
    placement: object = {"by": "key", "count": TARGETS} if topic == "keyed" else "keep"
    flow = {"name": topic, "source": "east", "target": "central", "topics": topic, "placement": placement}
    return {
        "lake": {"root": f"{folder}/lake-{topic}"},
        "clusters": {alias: {"bootstrap_servers": cluster.bootstrap_servers} for alias, cluster in clusters.items()},
        "flows": [{**flow, "sync": {"groups": False}}],
    }


def _measure(folder: Path, clusters: dict[str, KafkaCluster], topic: str) -> dict[str, float]:
    mirror = ml.from_settings(_settings(folder, clusters, topic))
    mirror.run(once=True)
    runs = mirror.lake.meta(OFFSET_MAP)
    [row] = runs.agg(
        F.count("*").alias("rows"), F.sum("record_count").alias("records"), F.sum(F.size("holes")).alias("holes")
    ).collect()
    _, size = mirror.lake.size(mirror.lake.meta_location(OFFSET_MAP))
    per = 1_000_000 / row.records
    return {
        "records": row.records,
        "rows per M": row.rows * per,
        "holes per M": row.holes * per,
        "bytes per M": size * per,
    }


def _write_plain(address: str, topic: str, count: int, *, keys: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    for number in range(count):
        # Keys in a fixed, scattered order; each stays in one source partition.
        key = number * 7919 % keys if keys else None
        where = (number if key is None else key) % PARTITIONS
        producer.produce(topic, b"%d" % number, None if key is None else b"%d" % key, where)
        if number % 50_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"topic {topic} could not be written")


def _write_marked(address: str, partition: int, transactions: int) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"map-{uuid.uuid4()}", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(transactions // PARTITIONS):
        producer.begin_transaction()
        for _ in range(EACH):
            producer.produce("marked", b"%d" % number, partition=partition)
        producer.commit_transaction(30)
