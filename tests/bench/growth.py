"""What growth costs: by partitions and files of the relay, by days of map, and by the backlog; tables are generated.

python -m tests.bench.growth relay    # batches, looks, look-ups and plans; files are named by the log only
python -m tests.bench.growth turn     # turns of landing, by partitions: written, committed, listed and read
python -m tests.bench.growth map      # look-ups, 1 and 30 days; a file a day, sorted, as upkeep leaves them
python -m tests.bench.growth status   # status, sampler, lag, metrics and accounts, by partitions that all move
python -m tests.bench.growth drain    # the memory of a drain of 10 M records; starts brokers and Spark
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from prometheus_client import generate_latest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka.topic_metadata import TopicState
from mirrorlake.lake import (
    METADATA,
    OFFSET_MAP,
    POSITIONS,
    RELAY_ROWS,
    SAMPLES,
    Lake,
    LandingLog,
    OffsetAccounts,
    RelayClaim,
    RelayLog,
    SourceTopics,
    TableMaintenance,
    land_rows,
    landed_positions,
    position_row,
    proven_until,
    read_by_source,
    write_files,
)
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.lake.schema import RELAY
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.offset_map import NotYetRepublished
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.ranges import OffsetRange
from mirrorlake.offsets.translate import translate_back, translate_offset
from mirrorlake.records.passport import Registry
from mirrorlake.status import Lag, Monitor, PositionSnapshot
from mirrorlake.status.metrics import Metrics, measure
from mirrorlake.status.snapshot import scope_of
from tests.bench.contest import Contest
from tests.bench.generated import (
    EACH,
    EVERY_S,
    NOON,
    append_looks,
    cost,
    fetched,
    file_of,
    growth_folder,
    known_topics,
    least,
    new_lake,
    play,
    played_mirror,
    relay_rows,
    say,
    source_of,
)
from tests.bench.processes import ProcessTree, watch_to_end
from tests.bench.workload import Topic

# A lane that commits four times a second writes so many runs a day, of so many records each.
RUNS_A_DAY, RUN = 345_600, 250
FLOW = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)


def main(part: str, *about: str) -> None:
    """Print one line a measurement."""
    {
        "relay": relay,
        "turn": turn,
        "map": _map,
        "status": status,
        "drain": drain,
    }[part](*about)


def _runs(day: int, partitions: int) -> pa.Table:
    """Make the runs of a day, in turn of all partitions; sorted by partition, as upkeep leaves them."""
    each = RUNS_A_DAY // partitions
    numbers = pa.array(np.tile(np.arange(day * each, (day + 1) * each), partitions), pa.int64())
    partition = pa.array(np.repeat(np.arange(partitions), each), pa.int32())
    upstream = pc.multiply(numbers, RUN)
    values: dict[str, Any] = {
        "flow": FLOW.name,
        "kind": "sent",
        "source_topic": "orders",
        "generation": 1,
        "target_topic": "east.orders",
        "record_count": RUN,
        "holes": [],
        "lane": 0,
        "epoch": 1,
        "committed_at": NOON,
    }
    columns: dict[str, Any] = {
        "source_partition": partition,
        "target_partition": partition,
        "first_upstream": upstream,
        "last_upstream": pc.add(upstream, RUN - 1),
        "first_downstream": upstream,
        "ledger_seq": numbers,
    }
    types, count = arrow_types(OFFSET_MAP), len(numbers)
    arrays = [
        columns[name]
        if name in columns
        else pa.repeat(pa.scalar(values[name], kind), count)
        if name in values
        else pa.nulls(count, kind)
        for name, kind in types.items()
    ]
    return pa.table(arrays, schema=pa.schema(types))


def _map() -> None:
    for partitions in PARTITIONS:
        for days in (1, 30):
            with new_lake("orders") as (lake, registry):
                tables, place = FolderTables(), lake.meta_location(OFFSET_MAP)
                for day in range(days):
                    tables.append(place, _runs(day, partitions))
                lake.append(METADATA, known_topics({"orders": "id"}, partitions))
                end = RUNS_A_DAY // partitions * days * RUN
                asked, last = end // 2, partitions - 1

                def look_up() -> None:
                    found = translate_offset(lake, FLOW, topic="orders", partition=last, offset=asked)  # noqa: B023
                    assert getattr(found, "offset", None) == asked  # noqa: B023

                def look_back() -> None:
                    found = translate_back(lake, FLOW, topic="east.orders", partition=last, offset=asked)  # noqa: B023
                    assert getattr(found, "offset", None) == asked  # noqa: B023

                def look_past_the_end() -> None:
                    found = translate_offset(lake, FLOW, topic="orders", partition=last, offset=end + 5)  # noqa: B023
                    assert found == NotYetRepublished(end)  # noqa: B023

                def passport() -> None:
                    found = registry.passport("central", TopicPartition("east.orders", last), asked)  # noqa: B023
                    assert found.offset == asked  # noqa: B023

                files = list(Path(place).glob("*.parquet"))
                say(
                    partitions=partitions,
                    days=days,
                    runs=RUNS_A_DAY // partitions * partitions * days,
                    files=len(files),
                    mb=sum(path.stat().st_size for path in files) >> 20,
                    look_up=cost(look_up),
                    look_back=cost(look_back),
                    look_where_there_is_no_record=cost(look_past_the_end),
                    passport=cost(passport),
                )


PARTITIONS, FILES = (10, 100, 1_000), (1_000, 100_000)


def _generated(lake: Lake, partitions: int, files: int) -> int:
    """Fill a relay and what is accounted for of it; return how many files each partition has."""
    path, each = lake.relay_location("east"), files // partitions
    table = DeltaTable(path)
    made = [file_of(f"{n}.parquet", source_of(n % partitions), n // partitions * EACH) for n in range(files)]
    # The record that is asked for stands in a file that is there, in the middle of its partition.
    asked = each // 2 * EACH
    [real] = write_files(path, RELAY_ROWS, relay_rows({source_of(0): asked}, EACH))
    made[each // 2 * partitions] = real
    actions = [AddAction(file.path, file.size, {}, 0, True, file.stats) for file in made]
    table.create_write_transaction(actions, "append", table.schema())
    FolderTables().set_properties(path, {CHECKPOINT_PROPERTY: "1"})
    TableMaintenance(path).checkpoint(after=1)
    lake.append(
        POSITIONS,
        [position_row("east", source_of(p), "landed", each * EACH, NOON) for p in range(partitions)],
    )
    lake.append(METADATA, known_topics({source_of(p).topic: "id" for p in range(partitions)}, 10))
    run = {"flow": "east->central", "source_topic": "t0", "generation": 1, "source_partition": 0, "holes": []}
    run |= {"first_upstream": asked, "last_upstream": asked + EACH - 1, "target_topic": "east.t0", "lane": 0}
    run |= {"target_partition": 0, "first_downstream": asked, "record_count": EACH, "ledger_seq": 1, "epoch": 1}
    lake.append(OFFSET_MAP, [run | {"committed_at": NOON}])
    return each


def relay() -> None:
    """Measure starts, batches, looks and plans on relays of each size."""
    for partitions in PARTITIONS:
        for files in FILES:
            with new_lake("t.*") as (lake, registry):
                each = _generated(lake, partitions, files)
                say(partitions=partitions, files=files, **_costs(lake, registry, partitions, each))


def _costs(lake: Lake, registry: Registry, partitions: int, each: int) -> dict[str, Any]:
    path, sources = lake.relay_location("east"), [source_of(p) for p in range(partitions)]
    ends = dict.fromkeys(sources, each * EACH)
    seat, asked = RelayClaim("east", path, 1, "bench"), each // 2 * EACH
    landing, following = LandingLog(seat), RelayLog(FolderTables(), path)
    following.files(ends)
    [real] = Path(path).glob("*.parquet")
    batches = iter(range(1, 1_000_000))

    def land() -> None:
        number = next(batches)
        batch = [file_of(f"new-{number}-{n}.parquet", s, (each + number) * EACH) for n, s in enumerate(sources)]
        for file in batch:
            os.link(real, Path(path, file.path))
        landing.append(batch, number, NOON + timedelta(seconds=number))

    def follow() -> None:
        land()
        assert len(following.new_files(ends)) >= partitions

    def verify() -> None:
        held = lake.fixed_relay("east")
        assert len(held.landed) == partitions
        assert all(held.count(source, OffsetRange(asked, asked + EACH)) == EACH for source in sources)

    def passport() -> None:
        found = registry.passport("east", TopicPartition("t0", 0), asked)
        assert found.landed is not None
        assert found.landed.file

    def upkeep() -> None:
        compact_relay(
            TableMaintenance(path), "east", [], now=NOON + timedelta(days=9), max_wait=timedelta(days=1), plan=True
        )

    return {
        "start_of_landing": cost(lambda: LandingLog(seat)),
        "first_look_of_a_flow": cost(lambda: RelayLog(FolderTables(), path).files(ends)),
        "landed": cost(lambda: landed_positions(lake, "east")),
        "passport": cost(passport),
        "upkeep_plan": cost(upkeep, 1),
        "verify_plan": cost(verify, 1),
        "log_checkpoint": cost(lambda: TableMaintenance(path).checkpoint(after=0), 1),
        "batch": cost(land, 20),
        "batch_and_its_look": cost(follow, 20),
        "landed_since_the_account": cost(lambda: landed_positions(lake, "east"), 1),
    }


_SPREADS = ((8, 32), (100, 3), (1_000, 1))
# Other work on the machine only adds to the least of them.
_least = partial(least, times=30, digits=2)


def turn() -> None:
    """Measure turns of few partitions with many records, and of many with few."""
    for partitions, records in _SPREADS:
        with growth_folder() as folder:
            firsts = {SourcePartition(f"topic-{n // 20}", 1, n % 20): 1_000_000 + n for n in range(partitions)}
            tables, table, batches = FolderTables(), fetched(firsts, records), iter(range(1, 10_000))
            tables.create(folder, RELAY)
            tables.set_properties(folder, {CHECKPOINT_PROPERTY: "1"})
            landing, follower = LandingLog(RelayClaim("east", folder, 1, "me")), RelayLog(tables, folder)
            follower.files({})

            def write() -> list[Any]:
                rows = land_rows(RELAY_ROWS, [*firsts], [records] * partitions, table, NOON)  # noqa: B023
                return list(write_files(folder, RELAY_ROWS, rows, uncompressed=True))

            files = write()

            def commit() -> None:
                landing.append(files, next(batches), NOON)  # noqa: B023

            def read() -> None:
                count = sum(len(rows) for _, rows in read_by_source(found))  # noqa: B023
                assert count == partitions * records  # noqa: B023

            commit()
            found = follower.new_files({})
            look_ms = _least(lambda: RelayLog(tables, folder, follower.version - 1).new_files({}))  # noqa: B023
            say(
                partitions=partitions,
                records=records,
                files=len(files),
                bytes=Path(folder, files[0].path).stat().st_size,
                span_bytes=len(files[0].spans),
                write_ms=_least(write),
                commit_ms=_least(commit),
                look_ms=look_ms,
                read_ms=_least(read),
            )


def drain(records: int = 10_000_000) -> None:
    """Fill a source, drain it, and print the most memory that the driver, Spark's JVM and the workers held at once."""
    topic = Topic(name="bench.small", records=records, value_bytes=100)
    with (
        growth_folder() as folder,
        Contest([topic], seed=7, directory=Path(folder), say=lambda line: say(said=line)) as contest,
    ):
        contest.create([topic])
        contest.write([topic])
        conf = contest.write_settings([{"source": "east", "target": "central", "topics": topic.name}])
        command = [sys.executable, "-m", "mirrorlake", "run", "--once", "--conf", str(conf)]
        say(records=records, **_ran(command, contest.directory))
        [copy] = contest.copies(lambda name: f"east.{name}")
        copy.await_complete(lambda: None, patience_s=60.0)


def _ran(command: list[str], folder: Path) -> dict[str, float]:
    most = dict.fromkeys(("driver", "jvm", "workers", "all"), 0.0)

    def look() -> None:
        for name, held in _held(process.pid).items():
            most[name] = max(most[name], held)

    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        used = watch_to_end(process, ProcessTree(process.pid), look=look, every_s=0.5)
    if process.returncode:
        raise RuntimeError((folder / "run.log").read_text(errors="replace")[-1000:])
    sizes = {f"{name}_mb": float(round(held / 1e6)) for name, held in most.items()}
    return sizes | {"s": round(used.seconds, 1), "cpu_s": round(used.cpu_seconds, 1)}


def _held(pid: int) -> dict[str, float]:
    """Read proportional set sizes: a page that forked workers share counts once."""
    found = dict.fromkeys(("driver", "jvm", "workers"), 0.0)
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                kind = "driver" if process == root else "jvm" if process.name() == "java" else "workers"
                found[kind] += process.memory_full_info().pss
    return found | {"all": sum(found.values())}


_SIZES = (100, 1_000, 10_000)
# Two hours; a run without a complete look in between is the longest that a question reads.
_LOOKS = 240
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
        return [*sorted(self.known), "__consumer_offsets"]

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {
            name: self.known.get(name.removeprefix("east."), TopicState(name=name, topic_id="x", partitions=1))
            for name in names
        }

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def broker_count(self) -> int:
        return 1

    def states(self) -> dict[str, str]:
        return {}

    def committed_each(self, _: Any, **__: Any) -> dict[str, Any]:
        return {}

    def effective_configs_each(self, _: Any, **__: Any) -> dict[str, Any]:
        return {}

    def __enter__(self) -> Moving:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def last(self, lane: int) -> LedgerRecord:
        sources = [SourcePartition(name, 1, p) for name in self.known for p in range(_EACH)]
        claim = Claim(flow=FLOW.name, lane=lane, lanes=1, epoch=1)
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
    monitor: Monitor
    poll: Callable[[], PositionSnapshot]
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
        self.rows[name] = self.poll().changed

    @property
    def lag(self) -> Lag:
        return self.monitor.lag()


def scene(folder: str, partitions: int) -> Scene:
    """Fill a lake, and look at it."""
    mirror = played_mirror(folder)
    lake, now = mirror.lake, datetime.now(timezone.utc).replace(microsecond=0)
    played: Any = Moving(topics=max(1, partitions // _EACH), moved=_START + _LOOKS - 1)
    _fill_relay(lake, partitions, played.moved)
    _fill_samples(lake, partitions, now)
    lake.append(METADATA, known_topics({t.name: t.topic_id for t in played.known.values()}, 10, now))
    play(mirror, played)
    monitor = mirror._context.shared(Monitor)
    made = Scene(
        mirror=mirror, played=played, monitor=monitor, poll=monitor.make_poll(), partitions=partitions, now=now
    )
    made.poll()
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
    lake.append(
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
    subjects = f"(VALUES ('cluster', 'east'), ('cluster', 'central'), ('relay', 'east'), ('flow', '{FLOW.name}')) AS s(subject, name)"
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
            | {"scope": f"'{scope_of([FLOW])}'"}
            | {"positions": str(partitions), "changed": str(partitions), "took_ms": "0"},
        ),
        (
            POSITIONS,
            f"{kinds}, {held}",
            {**place, "source": "'east'", "flow": f"IF(of = 1, '{FLOW.name}', NULL)", "kind": "kind"} | positions,
        ),
    )
    append_looks(lake, tables, int(now.timestamp()) - _LOOKS * EVERY_S, range(_LOOKS))


def status(partitions: str = "") -> None:
    """Measure each size, or one."""
    # As the commands do.
    gc.set_threshold(50_000)
    for size in (int(partitions),) if partitions else _SIZES:
        with growth_folder() as folder:
            made = scene(folder, size)
            for name, ask in _asked(made).items():
                prepare = made.turn if name.startswith("a turn") else lambda: None
                say(partitions=size, what=name, cpu_ms=least(ask, before=prepare), rows=made.rows.pop(name, None))


def _asked(made: Scene) -> dict[str, Callable[[], object]]:
    """List what is measured, by name; what is read once is read before."""
    lake, flow = made.mirror.lake, made.mirror.config.flow(FLOW.name)
    read = made.monitor.status()
    assert len(read[FLOW.name]) == made.partitions
    assert sum(row.offset_lag for row in read[FLOW.name]) == made.partitions // 10
    verdict, metrics = made.lag.verdict(), Metrics(now=lambda: made.now)
    values = measure(lake, made.lag, at=made.now)
    metrics.show(verdict, values)
    topics = SourceTopics(lake, "east")
    topics.load()
    accounts = OffsetAccounts(lake, topics, alias="east", now=lambda: made.now)
    accounts.resume(landed_positions(lake, "east"), [])
    return {
        "status": made.monitor.status,
        "status, shown": lambda: str(read),
        "status by partition, shown": lambda: str(read.by("partition")),
        "status, whole text": lambda: read.by("partition").to_text(rows=None),
        "status, json": lambda: dumps(read.as_dict()),
        "newest samples": lambda: made.lag.recent([hop.key for hop in verdict.hops if hop.last.waiting]),
        "newest samples, a cluster away": lambda: made.lag.recent(None),
        "a look, nothing moved": partial(made.look, "a look, nothing moved"),
        "lag of ten minutes": lambda: made.lag.over(timedelta(minutes=10)).table(),
        "rpo of ten minutes": lambda: made.lag.rpo(timedelta(minutes=10)).table(),
        "loss five minutes ago": lambda: made.lag.loss_at(made.now - timedelta(minutes=5)).rows(),
        "verdict": made.lag.verdict,
        "metrics, read": lambda: measure(lake, made.lag, at=made.now),
        "metrics, shown": lambda: metrics.show(verdict, values),
        "metrics, a scrape": lambda: generate_latest(metrics),
        "landed": lambda: landed_positions(lake, "east"),
        "proven": lambda: proven_until(lake, flow),
        "landing starts": lambda: OffsetAccounts(lake, topics, alias="east", now=lambda: made.now).resume(
            landed_positions(lake, "east"), []
        ),
        "a turn is looked at": partial(made.look, "a turn is looked at"),
        "a turn is accounted for": lambda: accounts.flush_accounts(datetime.now(timezone.utc)),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
