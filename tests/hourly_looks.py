"""A folder with an hourly look at one partition."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import OFFSET_MAP, POSITIONS, RELAY, SAMPLES, SIDE_TABLES
from mirrorlake.lake.table_schema import TableSchema

FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})
SUBJECTS = (("cluster", "east"), ("cluster", "central"), ("relay", "east"), ("flow", FLOW.name))
HOURS = 60


def create(lake: Lake) -> None:
    """Create the tables."""
    tables = FolderTables()
    tables.create(lake.relay_location("east"), RELAY)
    for table in SIDE_TABLES:
        tables.create(lake.meta_location(table), table)


def fill(lake: Lake, first: datetime) -> None:
    """Write an hourly look, complete every six hours, at a record a look that the flow sends one look late."""
    looks = [first + timedelta(hours=number) for number in range(HOURS)]
    place = {"topic": "t", "generation": 1, "partition": 0}
    kinds = (("last_stable", None, 1), ("reached", None, 1), ("republished", FLOW.name, 0))

    def write(location: str, table: TableSchema, rows: list[dict[str, Any]]) -> None:
        FolderTables().append(location, arrow_table(table, rows))

    write(
        lake.relay_location("east"),
        RELAY,
        [{**place, "offset": n, "timestamp": at, "landed_at": at} for n, at in enumerate(looks)],
    )
    write(
        lake.meta_location(POSITIONS),
        POSITIONS,
        [
            {**place, "source": "east", "flow": flow, "kind": kind, "position": n + ahead, "observed_at": at}
            for n, at in enumerate(looks)
            for kind, flow, ahead in kinds
        ],
    )
    write(
        lake.meta_location(SAMPLES),
        SAMPLES,
        [
            {"observed_at": at, "subject": subject, "name": name, "complete": n % 6 == 0, "positions": 1}
            for n, at in enumerate(looks)
            for subject, name in SUBJECTS
        ],
    )
    run = {"flow": FLOW.name, "source_topic": "t", "generation": 1, "source_partition": 0, "holes": []}
    run |= {"target_topic": "east.t", "target_partition": 0, "record_count": 1}
    write(
        lake.meta_location(OFFSET_MAP),
        OFFSET_MAP,
        [
            {
                **run,
                "first_upstream": n,
                "last_upstream": n,
                "first_downstream": n,
                "committed_at": at + timedelta(hours=1),
            }
            for n, at in enumerate(looks)
        ],
    )
