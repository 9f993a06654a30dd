"""How many rows and bytes the offset map takes per million records: plain, with a marker every few records, and by key."""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import functions as F

import mirrorlake as ml
from mirrorlake.lake.schema import OFFSET_MAP
from mirrorlake.model.plan import TopicSpec
from mirrorlake.sandbox import KafkaCluster, start_all

PARTITIONS = 8
PLAIN = 1_000_000
KEYED, KEYS, TARGETS = 200_000, 10_000, 12
TRANSACTIONS, EACH = 12_000, 5
_WRITERS = 8


def main() -> None:
    """Mirror both topics and print one JSON document."""
    with tempfile.TemporaryDirectory(prefix="mirrorlake-map-") as folder:
        clusters = {alias: KafkaCluster(alias, directory=Path(folder) / alias) for alias in ("east", "central")}
        start_all(list(clusters.values()))
        try:
            address = clusters["east"].bootstrap_servers
            admin = ml.from_settings(_settings(folder, clusters, "unused")).admin("east")
            for topic in ("plain", "marked", "keyed"):
                admin.create(TopicSpec(name=topic, partitions=PARTITIONS))
            _write_plain(address, "plain", PLAIN, keys=0)
            _write_plain(address, "keyed", KEYED, keys=KEYS)
            with ThreadPoolExecutor(_WRITERS) as pool:
                list(pool.map(lambda partition: _write_marked(address, partition), range(PARTITIONS)))
            found = {topic: _measure(folder, clusters, topic) for topic in ("plain", "marked", "keyed")}
            sys.stdout.write(json.dumps(found, indent=2) + "\n")
        finally:
            for cluster in clusters.values():
                cluster.kill()


def _settings(folder: str, clusters: dict[str, KafkaCluster], topic: str) -> dict[str, object]:
    placement: object = {"by": "key", "count": TARGETS} if topic == "keyed" else "keep"
    flow = {"name": topic, "source": "east", "target": "central", "topics": topic, "placement": placement}
    return {
        "lake": {"root": f"{folder}/lake-{topic}"},
        "clusters": {alias: {"bootstrap_servers": cluster.bootstrap_servers} for alias, cluster in clusters.items()},
        "flows": [{**flow, "sync": {"groups": False}}],
    }


def _measure(folder: str, clusters: dict[str, KafkaCluster], topic: str) -> dict[str, float]:
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
        "rows per million": round(row.rows * per, 1),
        "holes per million": round(row.holes * per),
        "bytes per million": round(size * per),
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


def _write_marked(address: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"map-{uuid.uuid4()}", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(TRANSACTIONS // PARTITIONS):
        producer.begin_transaction()
        for _ in range(EACH):
            producer.produce("marked", b"%d" % number, partition=partition)
        producer.commit_transaction(30)


if __name__ == "__main__":
    main()
