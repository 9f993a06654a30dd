"""How many rows and bytes the offset map takes per million records: plain, with a marker every few records, and by key."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import functions as F

import mirrorlake as ml
from mirrorlake.lake.schema import OFFSET_MAP
from tests.bench.contest import Contest
from tests.bench.options import Options
from tests.bench.results import Book, Say
from tests.bench.workload import Topic
from tests.flow.kit import send, send_transactions

PARTITIONS = 8
PLAIN = 1_000_000
KEYED, KEYS, TARGETS = 200_000, 10_000, 12
TRANSACTIONS, EACH = 12_000, 5
_QUEUE = {"linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
CASES = {
    "plain": "plain",
    "marked": f"a commit marker after every {EACH} records",
    "keyed": f"by key, {KEYS:,} keys, {PARTITIONS} to {TARGETS} partitions",
}


def measure(options: Options, book: Book, say: Say) -> None:
    """Mirror each kind of topic once."""
    with options.contest(say) as contest:
        contest.create([Topic(name=topic, records=0, value_bytes=0, partitions=PARTITIONS) for topic in CASES])
        address = contest.source.bootstrap_servers
        for topic, count, keys in (("plain", PLAIN, 0), ("keyed", KEYED, KEYS)):
            send(address, topic, _records(round(count * options.scale), keys=keys), **_QUEUE)
        each = round(TRANSACTIONS * options.scale) // PARTITIONS
        with ThreadPoolExecutor(PARTITIONS) as pool:
            list(pool.map(lambda partition: _write_marked(address, partition, each), range(PARTITIONS)))
        for topic, case in CASES.items():
            book.keep("map", case, _measure(contest, topic), mode="one `run --once`")


def _measure(contest: Contest, topic: str) -> dict[str, float]:
    placement: object = {"by": "key", "count": TARGETS} if topic == "keyed" else "keep"
    flow = {"name": topic, "source": "east", "target": "central", "topics": topic, "placement": placement}
    mirror = ml.load(str(contest.write_settings([{**flow, "sync": {"groups": False}}], name=topic)))
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


def _records(count: int, *, keys: int) -> Iterator[tuple[bytes, bytes | None, int]]:
    for number in range(count):
        # Keys in a fixed, scattered order; each stays in one source partition.
        key = number * 7919 % keys if keys else None
        where = (number if key is None else key) % PARTITIONS
        yield b"%d" % number, None if key is None else b"%d" % key, where


def _write_marked(address: str, partition: int, transactions: int) -> None:
    values = (([(b"%d" % number, None, partition)] * EACH, True) for number in range(transactions))
    send_transactions(address, "marked", values, **{"linger.ms": 0})
