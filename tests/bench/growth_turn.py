"""What a turn of landing costs by its partitions: to write its file, to commit it, and to read it as a lane does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.lake import RELAY_ROWS, LandingLog, RelayClaim, RelayLog, land_rows, read_by_source, write_files
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.lake.schema import RELAY
from mirrorlake.model.flow import SourcePartition
from tests.bench.growth_cost import say

TURNS = ((8, 32), (100, 3), (1_000, 1))
_TIMES = 30
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def fetched(partitions: int, records: int) -> dict[SourcePartition, pa.Table]:
    """Return what a fetch brings: records of 100 B of each partition, twenty of a topic."""
    columns = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    schema = pa.schema([RELAY_ROWS.field(name) for name in columns])

    def table(number: int) -> pa.Table:
        first = 1_000_000 + number
        rows: dict[str, Any] = {
            "offset": range(first, first + records),
            "timestamp": [NOON] * records,
            "timestamp_type": [0] * records,
            "key": [b"%012d" % n for n in range(records)],
            "value": [b"%088d" % n for n in range(records)],
            "headers": [None] * records,
        }
        return pa.table(rows, schema=schema)

    return {SourcePartition(f"topic-{n // 20}", 1, n % 20): table(n) for n in range(partitions)}


def _least_ms(do: Callable[[], object]) -> float:
    """Measure the least CPU of several calls: other work on the machine only adds to it."""
    found = []
    for _ in range(_TIMES):
        began = time.process_time()
        do()
        found.append(time.process_time() - began)
    return round(min(found) * 1000, 2)


def turn() -> None:
    """Measure turns of few partitions with many records, and of many with few."""
    for partitions, records in TURNS:
        with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as folder:
            tables, landed, batches = FolderTables(), fetched(partitions, records), iter(range(1, 10_000))
            tables.create(folder, RELAY)
            tables.set_properties(folder, {CHECKPOINT_PROPERTY: "1"})
            landing, follower = LandingLog(RelayClaim("east", folder, 1, "me")), RelayLog(tables, folder)
            follower.files({})

            sources, counts, table = [*landed], [*map(len, landed.values())], pa.concat_tables(landed.values())

            def write() -> list[Any]:
                rows = land_rows(RELAY_ROWS, sources, counts, table, NOON)  # noqa: B023
                return list(write_files(folder, RELAY_ROWS, rows, uncompressed=True))

            files = write()

            def commit() -> None:
                landing.append(files, next(batches), NOON)  # noqa: B023

            def read() -> None:
                count = sum(len(rows) for _, rows in read_by_source(found))  # noqa: B023
                assert count == partitions * records  # noqa: B023

            commit()
            found = follower.new_files({})
            look_ms = _least_ms(lambda: RelayLog(tables, folder, follower.version - 1).new_files({}))  # noqa: B023
            say(
                partitions=partitions,
                records=records,
                files=len(files),
                bytes=Path(folder, files[0].path).stat().st_size,
                span_bytes=len(files[0].spans),
                write_ms=_least_ms(write),
                commit_ms=_least_ms(commit),
                look_ms=look_ms,
                read_ms=_least_ms(read),
            )
