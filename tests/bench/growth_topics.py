"""What the relay's log costs where a thousand topics of ten partitions have records in each turn."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable

from mirrorlake.lake import RelayLog, TableMaintenance
from mirrorlake.lake.delta_rs import FolderTables
from tests.bench.growth_cost import cost, say
from tests.bench.growth_relay import file_of, new_lake, source_of

_PARTITIONS = 10_000


def topics() -> None:
    """Commit one turn, and eight; look at the log as a flow does that has nothing left to send."""
    for turns in (1, 8):
        with new_lake("t.*") as (lake, _):
            folder, tables = lake.relay_location("east"), FolderTables()
            for turn in range(turns):
                files = [file_of(f"{uuid4()}.parquet", source_of(n), turn * 10) for n in range(_PARTITIONS)]
                began = time.process_time()
                tables.commit(folder, files, app_id="land", version=turn + 1, signature="{}")
                commit_s = time.process_time() - began
            TableMaintenance(folder).checkpoint(after=1)
            log = Path(folder, "_delta_log")
            ends = {source_of(n): turns * 10 for n in range(_PARTITIONS)}
            say(
                turns=turns,
                files=_PARTITIONS * turns,
                commit_mb=round(max(one.stat().st_size for one in log.glob("*.json")) / 1e6, 1),
                commit_cpu_s=round(commit_s, 2),
                log_checkpoint_mb=round(sum(one.stat().st_size for one in log.glob("*.parquet")) / 1e6, 1),
                open=cost(lambda: DeltaTable(folder)),  # noqa: B023
                start_of_a_flow=cost(lambda: RelayLog(FolderTables(), folder).files(ends)),  # noqa: B023
            )
