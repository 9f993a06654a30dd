"""What sampling costs at 1 000 topics x 10 partitions x 200 groups, and how long questions about 30 days of samples take.

Brokers are played: their answers are there at once. The sampler and the tables are real; Spark answers the views alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from mirrorlake.kafka.groups import Committed
from mirrorlake.kafka.topic_metadata import TopicState
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.series import lag_points, rpo_points
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.rows import position_row
from mirrorlake.lake.schema import METADATA, OFFSET_MAP, POSITIONS, RELAY, SAMPLES, TableSchema
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from tests.bench.generated import EVERY_S, FLOW, append_looks, known_topics, play, played_mirror
from tests.bench.options import Options
from tests.bench.processes import ProcessTree, Stopwatch
from tests.bench.results import Book, Say

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

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
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
    for what, run in (("sampler", measure_sampler), ("questions", measure_questions)):
        with options.folder() as folder:
            book.attempt(what, partial(run, played_mirror(str(folder)), options, book, say))


def measure_sampler(mirror: Mirror, options: Options, book: Book, _: Say) -> None:
    """Keep seconds, CPU-seconds and rows of a look: the first, idle ones, and with a part of all positions moved."""
    topics, groups = round(TOPICS * options.scale), round(GROUPS * options.scale)
    played: Any = Played(topics, 10, groups, max(1, topics // 20))
    now = datetime.now(timezone.utc)
    lake = mirror.lake
    lake.append_rows(METADATA, known_topics({t.name: t.topic_id for t in played.known.values()}, 10, now))
    lake.append_rows(
        POSITIONS,
        [
            position_row("east", SourcePartition(name, 1, p), "landed", 1000, now - timedelta(days=1))
            for name in played.known
            for p in range(10)
        ],
    )
    play(mirror, played)
    sampler, tree = Sampler(mirror._context), ProcessTree(os.getpid())
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
    partitions = max(1, round(PARTITIONS * options.scale))
    end = datetime.now(timezone.utc).replace(microsecond=0)
    looks = DAYS * 86_400 // EVERY_S
    fill(mirror.lake, int(end.timestamp()) - looks * EVERY_S, looks, partitions)
    say(f"made {looks:,} looks at {partitions} partitions")
    lag, hour, month = mirror.lag, timedelta(hours=1), end - timedelta(days=DAYS)
    old = end - timedelta(days=20)
    questions: dict[str, Callable[[], Sequence[Any]]] = {
        "over the last hour": lambda: lag.query_over(end - hour, end).rows(),
        "over an hour 20 days ago": lambda: lag.query_over(old - hour, old).rows(),
        "lag of the last day, for a page": lambda: lag_points(lag.query_over, end - timedelta(days=1), end),
        "lag of 30 days, for a page": lambda: lag_points(lag.query_over, month, end),
        "rpo of 30 days, for a page": lambda: rpo_points(lag.query_rpo, month, end),
        "latency of the last day, by hour": lambda: lag.query_latency(end - timedelta(days=1), end, bucket=hour).rows(),
        "latency of 30 days, by hour": lambda: lag.query_latency(month, end, bucket=hour).rows(),
    }
    lag.query_over(end - hour / 6, end).rows()
    mode = f"{DAYS} days kept, {partitions} partitions"
    for what, ask in questions.items():
        book.attempt(what, partial(_asked, what, ask, book, mode))
    spark = mirror.spark
    mirror.create_views(days=DAYS)
    by_hour = "date_trunc('hour', observed_at) AS hour, hop, max(time_lag_ms)"
    views = {
        f"view lag, {DAYS} days by hour and hop": f"SELECT {by_hour} FROM lag GROUP BY ALL",  # noqa: S608  nothing of a user's
        f"view rpo, {DAYS} days": "SELECT max(records), max(data_ms) FROM rpo",
        f"view latency, {DAYS} days": "SELECT max(p99_ms) FROM latency",
    }
    for what, text in views.items():
        book.attempt(what, partial(_asked, what, partial(_collected, spark, text), book, mode))


def _collected(spark: Any, text: str) -> list[Any]:
    return spark.sql(text).collect()  # type: ignore[no-any-return]


def _asked(what: str, ask: Callable[[], Sequence[Any]], book: Book, mode: str) -> None:
    watch = Stopwatch(ProcessTree(os.getpid()), [])
    rows = len(ask())
    used = watch.read()
    book.keep("questions", what, {**used.cost, "rows": rows}, mode=mode, others_cores=used.strangers_cores)


def fill(lake: Lake, begin_s: int, looks: int, partitions: int) -> None:
    """Write the tables, a file for each day, as a night's tidying leaves them."""
    # Two records a look; republishing is one look late, a group 20 looks.
    kinds = (
        "(VALUES ('last_stable', 0, NULL), ('reached', 1, NULL), ('republished', 1, NULL), ('group', 20, 'billing'))"
    )
    subjects = f"(VALUES ('cluster', 'east'), ('cluster', 'central'), ('relay', 'east'), ('flow', '{FLOW}'))"
    held = f"range(0, {partitions}) AS p(p)"
    place = {"topic": "'t'", "generation": "1", "partition": "p"}
    tables: list[tuple[TableSchema, str, dict[str, str]]] = [
        (
            SAMPLES,
            f"{subjects} AS s(subject, name)",
            {"observed_at": "moment", "subject": "subject", "name": "name"}
            | {
                "complete": f"n % {6 * 3600 // EVERY_S} = 0",
                "positions": str(partitions),
                "changed": "0",
                "took_ms": "0",
            },
        ),
        (
            POSITIONS,
            f"{kinds} AS k(kind, late, group_id), {held}",
            {**place, "source": "'east'", "flow": f"IF(kind = 'republished', '{FLOW}', NULL)", "kind": "kind"}
            | {"group_id": "group_id", "position": "greatest(0, (n - late) * 2)", "observed_at": "moment"},
        ),
        (
            RELAY,
            f"{held}, range(0, 2) AS h(half)",
            {**place, "offset": "n * 2 + half", "timestamp_type": "0", "landed_at": "moment"}
            | {"timestamp": f"moment - INTERVAL 15 SECONDS + half * INTERVAL {EVERY_S // 3} SECONDS"},
        ),
        (
            OFFSET_MAP,
            held,
            {"flow": f"'{FLOW}'", "source_topic": "'t'", "generation": "1", "source_partition": "p", "holes": "[]"}
            | {"first_upstream": "n * 2", "last_upstream": "n * 2 + 1", "first_downstream": "n * 2", "epoch": "1"}
            | {"target_topic": "'east.t'", "target_partition": "p", "record_count": "2", "lane": "0"}
            | {"ledger_seq": "n", "committed_at": "moment"},
        ),
    ]
    a_day = 86_400 // EVERY_S
    for first in range(0, looks, a_day):
        append_looks(lake, tables, begin_s, range(first, min(looks, first + a_day)))
