"""What a relay's size costs: each batch and look by partitions and files; the files but one are named by its log only."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.transaction import AddAction

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
    landed_positions,
    position_row,
    write_files,
)
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.model.flow import TopicPartition
from mirrorlake.records.passport import Registry
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.relays import open_relay
from tests.bench.generated import EACH, NOON, file_of, known_topics, new_lake, relay_rows, source_of
from tests.bench.growth_cost import cost, say

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
    lake.append_rows(
        POSITIONS,
        [position_row("east", source_of(p), "landed", each * EACH, NOON) for p in range(partitions)],
    )
    lake.append_rows(METADATA, known_topics({source_of(p).topic: "id" for p in range(partitions)}, 10))
    run = {"flow": "east->central", "source_topic": "t0", "generation": 1, "source_partition": 0, "holes": []}
    run |= {"first_upstream": asked, "last_upstream": asked + EACH - 1, "target_topic": "east.t0", "lane": 0}
    run |= {"target_partition": 0, "first_downstream": asked, "record_count": EACH, "ledger_seq": 1, "epoch": 1}
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
        held = open_relay(lake, "east")
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
