"""The two loops that touch every record, each alone: a fetch from a broker into Arrow columns, and a lane that sends them.

CPU-seconds are those of this process, librdkafka's threads included; `Python` is the share of the thread that calls. Least of
`--repeat` passes, for whoever else is busy on the machine only adds to them. A turn is 1 000 records of 100 B, spread over
few partitions and over many: its cost has to follow the records.
"""

from __future__ import annotations

import resource
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from mirrorlake.config.loading import loads
from mirrorlake.kafka import ClusterAdmin, Fetcher
from mirrorlake.kafka.lane import Batch, LaneSender, LaneSpec, ledger_spec
from mirrorlake.kafka.options import librdkafka_options
from mirrorlake.kafka.remotes import describe_with_retry
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.ledger import Claim
from mirrorlake.model.plan import TopicSpec
from mirrorlake.model.remotes import Remote
from tests.bench.options import Options
from tests.bench.results import Book, Say, per_million
from tests.bench.workload import Topic

TURN, SPREADS, TURNS = 1_000, (8, 100, 1_000), 10
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FETCH_S = 60.0
_BOUNDS: dict[str, Any] = {"max_s": 2.0, "max_bytes": 64 << 20, "max_records": 2_000_000}

Rows = Mapping[TopicPartition, pa.Table]


@dataclass(slots=True)
class Cost:
    """CPU-seconds of the process and of the calling thread, and wall time, of what ran within `measured` blocks."""

    cpu: float = 0.0
    python: float = 0.0
    seconds: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        before = _now()
        yield
        cpu, python, seconds = (after - start for after, start in zip(_now(), before, strict=True))
        self.cpu, self.python, self.seconds = self.cpu + cpu, self.python + python, self.seconds + seconds

    def values(self, records: int) -> dict[str, float]:
        return {
            "CPU-s per M": per_million(self.cpu, records),
            "Python": per_million(self.python, records),
            "records/s": records / self.seconds,
        }


def _now() -> tuple[float, float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, time.thread_time(), time.monotonic()


@dataclass(slots=True)
class Loops:
    """Fetch from one cluster and send to one, with the options of a mirror."""

    source: str
    target: str
    codec: str = "lz4"
    _options: dict[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = loads(
            f"lake: {{root: ./unused}}\nclusters:\n  east: {{bootstrap_servers: '{self.source}'}}\n"
            f"  central: {{bootstrap_servers: '{self.target}'}}\n"
            "flows: [{source: east, target: central, topics: bench}]\n"
        )
        producer = {"compression.type": self.codec}
        self._options = {
            "source": librdkafka_options(config.clusters["east"], role="consumer"),
            "target": librdkafka_options(config.clusters["central"], role="producer", extra=producer),
            "reader": librdkafka_options(config.clusters["central"], role="consumer"),
        }

    def fetch(self, ends: Mapping[TopicPartition, int]) -> tuple[Cost, Rows]:
        """Read partitions from their beginnings to these offsets; their records are returned."""
        cost, parts = Cost(), dict[TopicPartition, list[pa.Table]]()
        left, until = dict(ends), time.monotonic() + _FETCH_S
        with cost.measured(), Fetcher("east", self._options["source"], dict.fromkeys(ends, 0)) as fetcher:
            while left:
                found = fetcher.fetch(0.25, **_BOUNDS)
                for tp, table in found.rows.items():
                    parts.setdefault(tp, []).append(table)
                left = {tp: end for tp, end in left.items() if found.read_to.get(tp, 0) < end}
                if time.monotonic() > until:
                    raise AssertionError(f"{len(left)} partitions were not read within {_FETCH_S:.0f} s")
        return cost, {tp: pa.concat_tables(several) for tp, several in parts.items()}

    def send(self, rows: Rows, *, topic: str, turns: int = 1) -> Cost:
        """Send each partition's records, or so many equal parts of them one after another, into a new topic."""
        with self.sender(topic, rows) as sender:
            cost = Cost()
            for turn in range(turns):
                batches = _batches(rows, topic, turn, turns)
                with cost.measured():
                    sent = sum(run.count for record in sender.send(batches) for run in record.runs)
                if sent != sum(len(batch.records) for batch in batches):
                    raise AssertionError(f"{sent} records were sent")
        return cost

    @contextmanager
    def sender(self, topic: str, rows: Rows) -> Iterator[LaneSender]:
        """Lend an open lane that sends these partitions into a new topic."""
        flow, admin = f"bench-{uuid.uuid4()}", ClusterAdmin("central", self._options["target"])
        admin.create(ledger_spec(ledger_topic(flow), 1))
        admin.create(TopicSpec(name=topic, partitions=1 + max(tp.partition for tp in rows)))
        while not (states := describe_with_retry(admin, [topic])):
            time.sleep(0.1)
        remote = Remote(topic, states[topic].topic_id)
        sender = LaneSender(
            LaneSpec(
                claim=Claim(flow=flow, lanes=1, epoch=1, owner="bench", checkpoint_location=1),
                target="central",
                options=self._options["target"],
                reader_options=self._options["reader"],
                remotes=dict.fromkeys({tp.topic for tp in rows}, remote),
            )
        )
        try:
            sender.open()
            yield sender
        finally:
            sender.close()
            # A broker that holds ten thousand empty partitions is another one.
            for name in (topic, ledger_topic(flow)):
                admin.delete(name)

    def fetch_turns(self, rows: Rows, *, topic: str, turns: int) -> Cost:
        """Send so many turns into a new topic, and measure the fetch of each right after it."""
        cost, starts = Cost(), dict.fromkeys((TopicPartition(topic, tp.partition) for tp in rows), 0)
        with self.sender(topic, rows) as sender, Fetcher("east", self._options["reader"], starts) as fetcher:
            for turn in range(turns):
                batches = _batches(rows, topic, turn, turns)
                list(sender.send(batches))
                left = sum(len(batch.records) for batch in batches)
                with cost.measured():
                    while left > 0:
                        left -= sum(map(len, fetcher.fetch(0.25, **_BOUNDS).rows.values()))
        return cost


def _batches(rows: Rows, topic: str, turn: int, turns: int) -> list[Batch]:
    found = []
    for tp, table in sorted(rows.items()):
        size = len(table) // turns
        source, target = SourcePartition(tp.topic, 1, tp.partition), TopicPartition(topic, tp.partition)
        part = table.slice(turn * size, size if turn < turns - 1 else None)
        found += [Batch(source, target, records) for records in part.to_batches() if len(records)]
    return found


def with_headers(rows: Rows) -> Rows:
    """Return the records with two headers each."""
    pair = pa.scalar([{"key": "tenant", "value": b"live"}, {"key": "trace", "value": b"0af7651916cd43dd"}], _HEADERS)
    found = {}
    for tp, table in rows.items():
        at = table.schema.get_field_index("headers")
        found[tp] = table.set_column(at, "headers", pa.array([pair.as_py()] * len(table), _HEADERS))
    return found


def spread(rows: Rows, partitions: int, records: int) -> Rows:
    """Return so many records, each partition a share of them, as batches of a partition each."""
    whole = pa.concat_tables(rows.values()).slice(0, records)
    each = records // partitions
    offsets = pa.array(range(each), pa.int64())
    return {
        TopicPartition("spread", number): whole.slice(number * each, each)
        .combine_chunks()
        .set_column(0, "offset", offsets)
        for number in range(partitions)
    }


def measure(options: Options, book: Book, say: Say) -> None:
    """Measure each size with and without headers, and turns over few partitions and many."""
    with options.contest(say) as contest:
        contest.fill()
        loops = Loops(contest.source.bootstrap_servers, contest.targets[0].bootstrap_servers, options.codec)
        for topic in contest.topics:
            book.attempt(topic.name, partial(_sizes, loops, topic, options.repeat, book))
        smallest = min(contest.topics, key=lambda topic: topic.value_bytes)
        _, rows = loops.fetch(_ends(smallest))
        for partitions in SPREADS:
            spread_rows = spread(rows, partitions, TURN * TURNS)
            book.attempt(f"{partitions} partitions", partial(_turns, loops, spread_rows, options.repeat, book))


def _ends(topic: Topic) -> dict[TopicPartition, int]:
    return {TopicPartition(topic.name, number): topic.in_partition(number) for number in range(topic.partitions)}


def _sizes(loops: Loops, topic: Topic, passes: int, book: Book) -> None:
    ends = _ends(topic)
    costs: dict[str, list[Cost]] = {"fetch": [], "send": [], "send, 2 headers": [], "fetch, 2 headers": []}
    for _ in range(passes):
        cost, rows = loops.fetch(ends)
        costs["fetch"].append(cost)
        costs["send"].append(loops.send(rows, topic=_new_topic()))
        rows = with_headers(rows)
        costs["send, 2 headers"].append(loops.send(rows, topic=_new_topic()))
        costs["fetch, 2 headers"].append(loops.fetch_turns(rows, topic=_new_topic(), turns=1))
    for what, several in costs.items():
        values = _least(several).values(topic.records)
        book.keep("loops", f"{what}, {topic.value_bytes:,} B", values, mode=f"least of {passes}", workload=loops.codec)


def _turns(loops: Loops, rows: Rows, passes: int, book: Book) -> None:
    for what, run in (("send", loops.send), ("fetch", loops.fetch_turns)):
        cost = _least([run(rows, topic=_new_topic(), turns=TURNS) for _ in range(passes)])
        values = {"CPU ms a turn": cost.cpu * 1000 / TURNS, "Python ms": cost.python * 1000 / TURNS}
        case = f"{what}, {TURN:,} records over {len(rows):,} partitions"
        book.keep("loops, turns", case, values, mode=f"least of {passes}")


def _least(costs: Sequence[Cost]) -> Cost:
    return min(costs, key=lambda cost: cost.cpu)


def _new_topic() -> str:
    return f"loops.{uuid.uuid4()}"
