"""What sampling costs at 1 000 topics x 10 partitions x 200 groups, and how long questions about 30 days of samples take.

Brokers are played: their answers are there at once. The sampler, Spark and Delta are real.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from pyspark.sql import functions as F

import mirrorlake as ml
from mirrorlake.kafka.admin import TopicState
from mirrorlake.kafka.groups import Committed
from mirrorlake.lag.sampler import Sampler, SampleSites
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.rows import position_row
from mirrorlake.lake.schema import METADATA, OFFSET_MAP, POSITIONS, RELAY, SAMPLES, TableSchema
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from tests.bench.options import Options
from tests.bench.processes import ProcessTree, Stopwatch
from tests.bench.results import MIRRORLAKE, Book, Say

FLOW = "east->central"
EVERY_S = 30
DAYS = 30
TOPICS, GROUPS = 1_000, 200
# Of the 30 days; all of them busy.
PARTITIONS = 20


@dataclass
class Played:
    """A cluster, its groups and the flow's ledger, with positions that are set by hand."""

    topics: int
    partitions: int
    groups: int
    topics_of_a_group: int
    moved: int = 0
    rounds: int = 0
    known: dict[str, TopicState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = {
            f"t{n}": TopicState(name=f"t{n}", topic_id=str(n), partitions=self.partitions) for n in range(self.topics)
        }

    def offset(self, tp: TopicPartition) -> int:
        return 1000 + (self.rounds if int(tp.topic[1:]) < self.moved else 0)

    def topic_names(self) -> list[str]:
        return sorted(self.known)

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {
            name: self.known.get(name.removeprefix("east."), TopicState(name=name, topic_id="x", partitions=1))
            for name in names
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.offset(tp) for tp in partitions}

    def broker_count(self) -> int:
        return 1

    def states(self) -> dict[str, str]:
        return {f"g{n}": "stable" for n in range(self.groups)}

    def committed_each(
        self, asked: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        return {
            group: {tp: Committed(self.offset(tp)) for tp in wanted if self.reads(group, tp)}
            for group, wanted in asked.items()
        }

    def reads(self, group: str, tp: TopicPartition) -> bool:
        if tp.topic.startswith("east."):
            return False
        distance = (int(tp.topic[1:]) - int(group[1:]) * self.topics // max(1, self.groups)) % self.topics
        return distance < self.topics_of_a_group

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def last(self, lane: int) -> LedgerRecord:
        positions = {
            SourcePartition(name, 1, p): self.offset(TopicPartition(name, p))
            for name in self.known
            for p in range(self.partitions)
        }
        return LedgerRecord(claim=Claim(flow=FLOW, lane=lane, lanes=1, epoch=1), seq=1, positions=positions)


def measure(options: Options, book: Book, say: Say) -> None:
    """Measure the sampler, and questions about 30 days; each on a lake of its own."""
    if MIRRORLAKE not in options.subjects:
        return
    for what, run in (("sampler", measure_sampler), ("questions", measure_questions)):
        with options.folder() as folder:
            mirror = ml.from_settings(
                {
                    "lake": {"root": f"{folder}/lake"},
                    "clusters": {a: {"bootstrap_servers": "127.0.0.1:1"} for a in ("east", "central")},
                    "flows": [{"source": "east", "target": "central", "topics": "t.*"}],
                }
            )
            mirror.lake.create_all(["east"])
            book.attempt(what, partial(run, mirror, options, book, say))


def measure_sampler(mirror: Mirror, options: Options, book: Book, _: Say) -> None:
    """Keep seconds, CPU-seconds and rows of a look: the first, idle ones, and with a part of all positions moved."""
    topics, groups = round(TOPICS * options.scale), round(GROUPS * options.scale)
    played: Any = Played(topics, 10, groups, max(1, topics // 20))
    now = datetime.now(timezone.utc)
    lake = mirror.lake
    lake.append_rows(
        METADATA,
        [
            {
                "cluster": "east",
                "role": "source",
                "kind": "topic",
                "topic": t.name,
                "generation": 1,
                "topic_id": t.topic_id,
                "partitions": t.partitions,
                "configs": {},
                "present": True,
                "observed_at": now,
            }
            for t in played.known.values()
        ],
    )
    lake.append_rows(
        POSITIONS,
        [
            position_row("east", SourcePartition(name, 1, p), "landed", 1000, now - timedelta(days=1))
            for name in played.known
            for p in range(10)
        ],
    )

    def sites() -> SampleSites:
        both = {"east": played, "central": played}
        return SampleSites(
            flows=mirror.config.flows,
            sampling=mirror.config.sampling,
            sources={"east": played},
            admins=both,
            groups=both,
            ledger=lambda _: played,
        )

    sampler, tree = Sampler(lake, sites, now=lambda: datetime.now(timezone.utc)), ProcessTree(os.getpid())
    looks = [("the first of a process, everything written", 0), ("the second", 0), *[("nothing moved", 0)] * 3]
    looks += [*[("a tenth of the topics moved", topics // 10)] * 3, ("all topics moved", topics)]
    for what, moved in looks:
        played.moved, played.rounds = moved, played.rounds + 1
        watch = Stopwatch(tree, [])
        sample = sampler.once()
        used = watch.read()
        book.keep(
            "sampler",
            what,
            {**used.cost, "rows written": sample.changed},
            mode=f"one look at {topics:,} topics of 10 partitions and {groups} groups",
            others_cores=used.strangers_cores,
        )


def measure_questions(mirror: Mirror, options: Options, book: Book, say: Say) -> None:
    """Keep how long questions take after 30 days in which every partition moved between any two looks."""
    lake, spark = mirror.lake, mirror.spark
    partitions = max(1, round(PARTITIONS * options.scale))
    end = datetime.now(timezone.utc).replace(microsecond=0)
    looks = DAYS * 86_400 // EVERY_S
    begin = end - timedelta(seconds=looks * EVERY_S)
    moments = spark.range(looks).select(
        F.col("id").alias("n"), F.timestamp_seconds(F.lit(int(begin.timestamp())) + F.col("id") * EVERY_S).alias("at")
    )
    subjects = [("cluster", "east"), ("cluster", "central"), ("relay", "east"), ("flow", FLOW)]
    named = spark.createDataFrame(subjects, "subject string, name string")
    whole = {
        "observed_at": "at",
        "positions": "0",
        "changed": "0",
        "took_ms": "0",
        "subject": "subject",
        "name": "name",
    }
    _write(lake, SAMPLES, moments.crossJoin(named), complete=f"n % {6 * 3600 // EVERY_S} = 0", **whole)
    # Two records a look; republishing is one look late, a group 20 looks.
    kinds = [("last_stable", 0, None), ("reached", 1, None), ("republished", 1, None), ("group", 20, "billing")]
    each = spark.createDataFrame(kinds, "kind string, behind long, group_id string")
    held = spark.range(partitions).select(F.col("id").cast("int").alias("partition"))
    by_name = {name: name for name in ("partition", "kind", "group_id")}
    _write(
        lake,
        POSITIONS,
        moments.crossJoin(held).crossJoin(each),
        source="'east'",
        flow=f"IF(kind = 'republished', '{FLOW}', NULL)",
        topic="'t'",
        generation="1",
        position="greatest(0, (n - behind) * 2)",
        observed_at="at",
        **by_name,
    )
    records = moments.crossJoin(held).withColumn("half", F.expr("explode(array(0, 1))"))
    stamp = f"timestamp_seconds({int(begin.timestamp())} + n * {EVERY_S} - 15 + half * 10)"
    place = {"topic": "'t'", "generation": "1", "partition": "partition", "offset": "n * 2 + half"}
    _write(lake, RELAY, records, timestamp=stamp, timestamp_type="0", landed_at="at", **place)
    _write(
        lake,
        OFFSET_MAP,
        moments.crossJoin(held),
        flow=f"'{FLOW}'",
        source_topic="'t'",
        generation="1",
        source_partition="partition",
        target_topic="'east.t'",
        target_partition="partition",
        first_upstream="n * 2",
        last_upstream="n * 2 + 1",
        first_downstream="n * 2",
        record_count="2",
        holes="array()",
        lane="0",
        ledger_seq="n",
        epoch="1",
        committed_at="at",
    )
    lag = mirror.lag
    say(f"made {looks:,} looks at {partitions} partitions")
    mirror.create_views(days=DAYS)
    hour = "date_trunc('hour', observed_at) AS hour, hop, max(time_lag_ms)"
    questions: dict[str, Callable[[], list[Any]]] = {
        "over the last hour": lambda: lag.over("1h").collect(),
        "over the last day, worst by hop": lambda: lag.over("1d").groupBy("hop").agg(F.max("time_lag_ms")).collect(),
        "over an hour 20 days ago": lambda: lag.over(
            end - timedelta(days=20, hours=1), end - timedelta(days=20)
        ).collect(),
        "at: a group 20 days ago": lambda: lag.at("billing", "20d").collect(),
        "rpo of the last day": lambda: lag.rpo("1d").collect(),
        "latency of the last day, by hour": lambda: lag.latency("1d", bucket="1h").collect(),
        "view lag, 30 days by hour and hop": lambda: spark.sql(f"SELECT {hour} FROM lag GROUP BY ALL").collect(),  # noqa: S608
        "view rpo, 30 days": lambda: spark.sql("SELECT max(records), max(data_ms) FROM rpo").collect(),
        "view latency, 30 days": lambda: spark.sql("SELECT max(p99_ms) FROM latency").collect(),
    }
    lag.over("10m").collect()
    for what, ask in questions.items():
        book.attempt(what, partial(_asked, what, ask, book, f"{DAYS} days kept, {partitions} partitions"))


def _asked(what: str, ask: Callable[[], list[Any]], book: Book, mode: str) -> None:
    watch = Stopwatch(ProcessTree(os.getpid()), [])
    rows = len(ask())
    used = watch.read()
    book.keep("questions", what, {**used.cost, "rows": rows}, mode=mode, others_cores=used.strangers_cores)


def _write(lake: Lake, table: TableSchema, frame: Any, **columns: str) -> None:
    """Append a table in order of time, a file for each day or so, as after a night's tidying; `columns` are SQL."""
    cells = [F.expr(columns.get(name, "NULL")).cast(kind).alias(name) for name, (kind, _) in table.columns.items()]
    place = lake.relay_location("east") if table is RELAY else lake.meta_location(table)
    column = next(c for c in ("observed_at", "landed_at", "committed_at") if c in table.columns)
    lake.append(frame.select(*cells).repartitionByRange(DAYS, column).sortWithinPartitions(column), place)
