"""What a turn of landing costs by its partitions: to write its file, to commit it, and to read it as a lane does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from mirrorlake.lake import RELAY_ROWS, LandingLog, RelayClaim, RelayLog, land_rows, read_by_source, write_files
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.lake.schema import RELAY
from mirrorlake.model.flow import SourcePartition
from tests.bench.generated import NOON, fetched, growth_folder
from tests.bench.growth_cost import least, say

TURNS = ((8, 32), (100, 3), (1_000, 1))
# Other work on the machine only adds to the least of them.
_least = partial(least, times=30, digits=2)


def turn() -> None:
    """Measure turns of few partitions with many records, and of many with few."""
    for partitions, records in TURNS:
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
