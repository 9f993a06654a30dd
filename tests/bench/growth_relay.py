"""What a relay's size costs: each batch and look by partitions and files; the files but one are named by its log only."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from mirrorlake.config.loading import loads
from mirrorlake.errors import ClusterError
from mirrorlake.lake import (
    METADATA,
    OFFSET_MAP,
    POSITIONS,
    RELAY_ROWS,
    Lake,
    LandingLog,
    RelayClaim,
    RelayLog,
    TableMaintenance,
    WrittenFile,
    landed_positions,
    position_row,
    write_files,
)
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.lake.schema import RELAY, SIDE_TABLES
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.records.passport import Registry
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.relays import Relays
from tests.bench.growth_cost import cost, say

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
PARTITIONS, FILES = (10, 100, 1_000), (1_000, 100_000)
# Records of a file: what four batches a second bring of a partition with 40 records a second.
_EACH = 10


class Away:
    """Clusters that are not asked: what the lake knows has to do."""

    def __init__(self, root: str, topics: str) -> None:
        self.config = loads(
            f"""
            lake: {{root: {root}}}
            clusters: {{east: {{bootstrap_servers: "e:1"}}, central: {{bootstrap_servers: "c:1"}}}}
            flows: [{{source: east, target: central, topics: "{topics}"}}]
            """
        )

    def admin(self, alias: str) -> Any:
        raise ClusterError(f"{alias} was asked", alias=alias)


def no_spark() -> Any:
    raise AssertionError("Spark was started")


@contextmanager
def new_lake(topics: str) -> Iterator[tuple[Lake, Registry]]:
    """Lend an empty lake of the source east, and what gives passports from it."""
    with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as root:
        clusters: Any = Away(root, topics)
        lake, tables = Lake(no_spark, clusters.config.lake), FolderTables()
        tables.create(lake.relay_location("east"), RELAY)
        for table in SIDE_TABLES:
            tables.create(lake.meta_location(table), table)
        yield lake, Registry(lake, clusters)


def source_of(number: int) -> SourcePartition:
    """Name a partition by its number; a topic has ten."""
    return SourcePartition(f"t{number // 10}", 1, number % 10)


def known_topics(names: set[str], partitions: int) -> list[dict[str, Any]]:
    """Return rows of `metadata` that name topics of the source."""
    seen = {"cluster": "east", "role": "source", "kind": "topic", "generation": 1, "configs": {}, "present": True}
    seen |= {"topic_id": "id", "partitions": partitions, "observed_at": NOON}
    return [seen | {"topic": name} for name in sorted(names)]


def file_of(name: str, source: SourcePartition, first: int) -> WrittenFile:
    """Name a file of ten records from an offset on; it need not be there."""
    at = f"{NOON + timedelta(milliseconds=first):%Y-%m-%dT%H:%M:%S}.000Z"
    place = {"topic": source.topic, "generation": 1, "partition": source.partition, "timestamp": at, "landed_at": at}
    ends = [{**place, "offset": offset} for offset in (first, first + _EACH - 1)]
    counts = dict.fromkeys(ends[0], 0)
    stats = {"numRecords": _EACH, "minValues": ends[0], "maxValues": ends[1], "nullCount": counts}
    return WrittenFile(name, 3_000, _EACH, 300, json.dumps(stats))


def _rows(source: SourcePartition, first: int, records: int) -> pa.RecordBatch:
    columns = {
        "topic": [source.topic] * records,
        "generation": [1] * records,
        "partition": [source.partition] * records,
        "offset": range(first, first + records),
        "timestamp": [NOON + timedelta(milliseconds=first)] * records,
        "timestamp_type": [0] * records,
        "key": [b"%012d" % n for n in range(records)],
        "value": [b'{"id":%d,"amount":%d,"status":"open"}' % (n * 7919, n % 977) for n in range(records)],
        "landed_at": [NOON + timedelta(milliseconds=first)] * records,
    }
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(records, field.type)
        for field in RELAY_ROWS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RELAY_ROWS)


def _generated(lake: Lake, partitions: int, files: int) -> int:
    """Fill a relay and what is accounted for of it; return how many files each partition has."""
    path, each = lake.relay_location("east"), files // partitions
    table = DeltaTable(path)
    made = [file_of(f"{n}.parquet", source_of(n % partitions), n // partitions * _EACH) for n in range(files)]
    # The record that is asked for stands in a file that is there, in the middle of its partition.
    asked = each // 2 * _EACH
    [real] = write_files(path, RELAY_ROWS, iter([_rows(source_of(0), asked, _EACH)]))
    made[each // 2 * partitions] = real
    actions = [AddAction(file.path, file.size, {}, 0, True, file.stats) for file in made]
    table.create_write_transaction(actions, "append", table.schema())
    FolderTables().set_properties(path, {CHECKPOINT_PROPERTY: "1"})
    TableMaintenance(path).checkpoint(after=1)
    lake.append_rows(
        POSITIONS,
        [position_row("east", source_of(p), "landed", each * _EACH, NOON) for p in range(partitions)],
    )
    lake.append_rows(METADATA, known_topics({source_of(p).topic for p in range(partitions)}, 10))
    run = {"flow": "east->central", "source_topic": "t0", "generation": 1, "source_partition": 0, "holes": []}
    run |= {"first_upstream": asked, "last_upstream": asked + _EACH - 1, "target_topic": "east.t0", "lane": 0}
    run |= {"target_partition": 0, "first_downstream": asked, "record_count": _EACH, "ledger_seq": 1, "epoch": 1}
    lake.append_rows(OFFSET_MAP, [run | {"committed_at": NOON}])
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
    ends = dict.fromkeys(sources, each * _EACH)
    seat, asked = RelayClaim("east", path, 1, "bench"), each // 2 * _EACH
    landing, following = LandingLog(seat), RelayLog(FolderTables(), path)
    following.files(ends)
    [real] = Path(path).glob("*.parquet")
    batches = iter(range(1, 1_000_000))

    def land() -> None:
        number = next(batches)
        batch = [file_of(f"new-{number}-{n}.parquet", s, (each + number) * _EACH) for n, s in enumerate(sources)]
        landing.append(batch, number, NOON + timedelta(seconds=number))
        for file in batch:
            os.link(real, Path(path, file.path))

    def follow() -> None:
        land()
        assert len(following.new_files(ends)) >= partitions

    def verify() -> None:
        held = Relays(lake, ["east"])["east"]
        assert len(held.landed) == partitions
        assert all(held.files(source, OffsetRange(asked, asked + 1)) for source in sources)

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
