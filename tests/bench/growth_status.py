"""What looks at all partitions cost: status, sampler, lag, metrics and accounts by the partitions of a flow, every one moving.

Brokers are played: their answers are there at once. Tables are generated as the sampler leaves them.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from json import dumps
from typing import Any

from deltalake import DeltaTable
from deltalake.transaction import AddAction
from prometheus_client import generate_latest

from mirrorlake.kafka.topic_metadata import TopicState
from mirrorlake.lag import Lag, Status, measure
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.status_reader import read_status
from mirrorlake.lake import (
    METADATA,
    POSITIONS,
    RELAY_ROWS,
    SAMPLES,
    Lake,
    OffsetAccounts,
    SourceTopics,
    TableMaintenance,
    landed_positions,
    position_row,
    proven_until,
    write_files,
)
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.metrics import Metrics
from mirrorlake.mirror import Mirror
from mirrorlake.model.control import NOTHING_ASKED
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from tests.bench.generated import (
    EVERY_S,
    FLOW,
    append_looks,
    file_of,
    growth_folder,
    known_topics,
    play,
    played_mirror,
    relay_rows,
    source_of,
)
from tests.bench.growth_cost import least, say

PARTITIONS = (100, 1_000, 10_000)
# Two hours; a run without a complete look in between is the longest that a question reads.
LOOKS = 240
_START = 1_000
# Partitions of a topic.
_EACH = 10


@dataclass
class Moving:
    """A cluster and the flow's ledger, with positions that are set by hand; the source is a record ahead in one partition of ten."""

    topics: int
    moved: int
    alias: str = "east"
    turns: int = 1
    known: dict[str, TopicState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = {f"t{n}": TopicState(name=f"t{n}", topic_id=str(n), partitions=_EACH) for n in range(self.topics)}

    def topic_names(self) -> list[str]:
        return sorted(self.known)

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {
            name: self.known.get(name.removeprefix("east."), TopicState(name=name, topic_id="x", partitions=1))
            for name in names
        }

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def broker_count(self) -> int:
        return 1

    def __enter__(self) -> Moving:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def last(self, lane: int) -> LedgerRecord:
        sources = [SourcePartition(name, 1, p) for name in self.known for p in range(_EACH)]
        claim = Claim(flow=FLOW, lane=lane, lanes=1, epoch=1)
        return LedgerRecord(claim=claim, seq=1, positions=dict.fromkeys(sources, self.moved))

    def high_watermarks(self, partitions: Any) -> dict[TopicPartition, int]:
        return self.last_stable_offsets(partitions)

    def last_stable_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return {tp: self.moved + (tp.partition == 0) for tp in partitions}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A mirror whose lake is filled, and what looks at it."""

    mirror: Mirror
    played: Any
    sampler: Sampler
    lag: Lag
    partitions: int
    now: datetime
    rows: dict[str, int] = field(default_factory=dict)

    def turn(self) -> None:
        """Land and send a record of every partition."""
        self.played.moved += 1
        self.played.turns += 1
        sources = [source_of(p) for p in range(self.partitions)]
        _land(self.mirror.lake.relay_location("east"), sources, self.played.moved, self.played.turns)

    def look(self, name: str) -> None:
        """Let the sampler look once."""
        self.rows[name] = self.sampler.once().changed

    def status(self) -> Status:
        """Read the status as `mirrorlake status` does."""
        return read_status(
            self.mirror.config.flows,
            self.sampler.read_positions(),
            lake=self.mirror.lake,
            target=lambda _: self.played,
            readers=lambda _: self.played,
            state=NOTHING_ASKED,
            windows=self.lag.windows,
        )


def scene(folder: str, partitions: int) -> Scene:
    """Fill a lake, and look at it."""
    mirror = played_mirror(folder)
    lake, now = mirror.lake, datetime.now(timezone.utc).replace(microsecond=0)
    played: Any = Moving(topics=max(1, partitions // _EACH), moved=_START + LOOKS - 1)
    _fill_relay(lake, partitions, played.moved)
    _fill_samples(lake, partitions, now)
    lake.append_rows(METADATA, known_topics({t.name: t.topic_id for t in played.known.values()}, 10, now))
    play(mirror, played)
    sampler = Sampler(mirror._context, mirror.config.flows, now=lambda: now)
    unused: Any = None
    flows = mirror.config.flows
    lag = Lag(lake, flows, look=sampler.read_positions, runs=unused, readers=lambda _: played, now=lambda: now)
    made = Scene(mirror=mirror, played=played, sampler=sampler, lag=lag, partitions=partitions, now=now)
    made.lag._status = made.status
    sampler.once()
    return made


def _fill_relay(lake: Lake, partitions: int, end: int) -> None:
    """Name a large file of each partition, as upkeep leaves them, and write the last turn of all of them."""
    path, sources = lake.relay_location("east"), [source_of(p) for p in range(partitions)]
    named = [file_of(f"{n}.parquet", source, end - 10) for n, source in enumerate(sources)]
    table = DeltaTable(path)
    actions = [AddAction(file.path, file.size, {}, 0, True, file.stats) for file in named]
    table.create_write_transaction(actions, "append", table.schema())
    TableMaintenance(path).checkpoint(after=1)
    _land(path, [source for source in sources if source.partition == 0], end)
    lake.append_rows(
        POSITIONS,
        [position_row("east", s, "landed", end + (s.partition == 0), datetime.now(timezone.utc)) for s in sources],
    )


def _land(path: str, sources: list[SourcePartition], offset: int, version: int = 1) -> None:
    """Commit a turn with one record of each of these partitions, in one file."""
    at = datetime.now(timezone.utc) - timedelta(minutes=10)
    written = list(write_files(path, RELAY_ROWS, relay_rows(dict.fromkeys(sources, offset), 1, at)))
    FolderTables().commit(path, written, app_id="land", version=version, signature="{}")


def _fill_samples(lake: Lake, partitions: int, now: datetime) -> None:
    """Write the looks of two hours, between which every partition moved by one record."""
    held = f"range(0, {partitions}) AS p(p)"
    kinds = "(VALUES ('last_stable', NULL), ('reached', NULL), ('republished', 1)) AS k(kind, of)"
    subjects = f"(VALUES ('cluster', 'east'), ('cluster', 'central'), ('relay', 'east'), ('flow', '{FLOW}')) AS s(subject, name)"
    place = {"topic": "'t' || (p // 10)", "generation": "1", "partition": "p % 10"}
    # As `LastSamples.choose_rows` decides: a look of each position is written after ten in which it moved.
    every = max(10_000 // partitions, 10) + 1
    complete = f"n % {every} = 0"
    positions = {"position": f"{_START} + n", "observed_at": "moment"}
    tables = (
        (
            SAMPLES,
            subjects,
            {"observed_at": "moment", "subject": "subject", "name": "name", "complete": complete}
            | {"positions": str(partitions), "changed": str(partitions), "took_ms": "0"},
        ),
        (
            POSITIONS,
            f"{kinds}, {held}",
            {**place, "source": "'east'", "flow": f"IF(of = 1, '{FLOW}', NULL)", "kind": "kind"} | positions,
        ),
    )
    append_looks(lake, tables, int(now.timestamp()) - LOOKS * EVERY_S, range(LOOKS))


def status(partitions: str = "", profiled: str = "") -> None:
    """Measure each size; with `profiled`, the functions that a measurement of this name spends its time in."""
    # As the commands do.
    gc.set_threshold(50_000)
    for size in (int(partitions),) if partitions else PARTITIONS:
        with growth_folder() as folder:
            made = scene(folder, size)
            asked = _asked(made)
            if profiled:
                asked[profiled]()
                with cProfile.Profile() as profile:
                    asked[profiled]()
                pstats.Stats(profile, stream=sys.stdout).sort_stats("cumulative").print_stats(45)
                continue
            for name, ask in asked.items():
                prepare = made.turn if name.startswith("a turn") else lambda: None
                say(partitions=size, what=name, cpu_ms=least(ask, before=prepare), rows=made.rows.pop(name, None))


def _asked(made: Scene) -> dict[str, Callable[[], object]]:
    """List what is measured, by name; what is read once is read before."""
    lake, flow = made.mirror.lake, made.mirror.config.flow(FLOW)
    read = made.status()
    assert len(read[FLOW]) == made.partitions
    assert sum(row.offset_lag for row in read[FLOW]) == made.partitions // 10
    figures, metrics = measure(lake, made.lag, now=lambda: made.now), Metrics()
    metrics.show(figures)
    topics = SourceTopics(lake, "east")
    topics.load()
    accounts = OffsetAccounts(lake, topics, alias="east", now=lambda: made.now)
    accounts.resume(landed_positions(lake, "east"), [])
    return {
        "status": made.status,
        "status, shown": lambda: str(read),
        "status by partition, shown": lambda: str(read.by("partition")),
        "status, whole text": lambda: read.by("partition").to_text(rows=None),
        "status, json": lambda: dumps(read.as_dict()),
        "newest samples": made.lag.windows,
        "a look, nothing moved": partial(made.look, "a look, nothing moved"),
        "lag of ten minutes": lambda: made.lag.query_over(timedelta(minutes=10)).table(),
        "rpo of ten minutes": lambda: made.lag.query_rpo(timedelta(minutes=10)).table(),
        "loss five minutes ago": lambda: made.lag.loss_at(made.now - timedelta(minutes=5)),
        "verdict": made.lag.verdict,
        "metrics, read": lambda: measure(lake, made.lag, now=lambda: made.now),
        "metrics, shown": lambda: metrics.show(figures),
        "metrics, a scrape": lambda: generate_latest(metrics.registry),
        "landed": lambda: landed_positions(lake, "east"),
        "proven": lambda: proven_until(lake, flow),
        "landing starts": lambda: OffsetAccounts(lake, topics, alias="east", now=lambda: made.now).resume(
            landed_positions(lake, "east"), []
        ),
        "a turn is looked at": partial(made.look, "a turn is looked at"),
        "a turn is accounted for": lambda: accounts.flush_accounts(datetime.now(timezone.utc)),
    }
