"""What a relay becomes in a day of a trickle at the default pace, with upkeep each five minutes: files, log, memory, starts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from mirrorlake.config.schema import MaintenanceConfig
from mirrorlake.lake import RELAY_ROWS, LandingLog, RelayClaim, RelayLog, TableMaintenance, write_files
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.lake.schema import RELAY
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.model.flow import SourcePartition
from tests.bench.generated import growth_folder, relay_rows
from tests.bench.growth_cost import least, say

_PARTITIONS = (8, 100, 1_000)
# Upkeep's passes, and the turns between two of them: 3 000 where a turn comes each 100 ms.
_PASSES, _TURNS = 4, 300
_EVERY = timedelta(minutes=5)
# Rewritten files stay on disk, and in each log checkpoint, for six hours: those of ten turns a second.
_REMOVED = 216_000


def day(turns: str = str(_TURNS), passes: str = str(_PASSES), only: str = "") -> None:
    """Land turns and do upkeep on them as it comes in a day; each partition has a record in every tenth turn."""
    for partitions in (int(only),) if only else _PARTITIONS:
        with growth_folder() as folder:
            _of(folder, partitions, int(turns), int(passes))


def _of(folder: str, partitions: int, turns: int, passes: int) -> None:
    tables = FolderTables()
    sources = [SourcePartition(f"topic-{n // 20}", 1, n % 20) for n in range(partitions)]
    ends = dict.fromkeys(sources, 0)
    tables.create(folder, RELAY)
    kept = MaintenanceConfig()
    tables.set_properties(
        folder,
        {
            CHECKPOINT_PROPERTY: "1",
            "delta.enableExpiredLogCleanup": "false",
            "delta.logRetentionDuration": f"interval {kept.keep_log // timedelta(minutes=1)} minutes",
            "delta.deletedFileRetentionDuration": "interval 6 hours",
        },
    )
    landing, upkeep = LandingLog(RelayClaim("east", folder, 1, "me")), TableMaintenance(folder)
    now, batch = datetime.now(timezone.utc) - passes * _EVERY, 0
    for number in range(1, passes + 1):
        cpu = time.process_time()
        for _ in range(turns):
            batch, now = batch + 1, now + _EVERY / turns
            # Eight partitions have a record one after another.
            some = sources[batch % 10 :: 10] if partitions > 10 else [sources[batch % partitions]]
            rows = relay_rows({source: ends[source] for source in some}, 1, now)
            files = list(write_files(folder, RELAY_ROWS, rows, uncompressed=True))
            ends |= {source: ends[source] + 1 for source in some}
            landing.append(files, batch, now, is_whole=batch % 100 == 0)
        landing_s = time.process_time() - cpu
        _age(folder, _EVERY)
        before = _standing(folder)
        cpu = time.process_time()
        upkeep.checkpoint(after=300)
        upkeep.clean_log(keep=kept.keep_log, now=datetime.now(timezone.utc), is_signed=False)
        compact_relay(upkeep, "east", [], now=now + timedelta(minutes=3), max_wait=timedelta(days=1))
        spent = time.process_time() - cpu
        say(
            partitions=partitions,
            upkeep=number,
            turns=batch,
            turn_cpu_ms=round(landing_s / turns * 1000, 2),
            upkeep_cpu_s=round(spent, 2),
            **{f"before_{key}": value for key, value in before.items()},
            **{f"after_{key}": value for key, value in _standing(folder).items()},
        )


def _age(folder: str, by: timedelta) -> None:
    """Make the log older, by what its files' times say: a pass of upkeep comes sooner here than in a day."""
    for file in Path(folder, "_delta_log").iterdir():
        seen = file.stat().st_mtime - by.total_seconds()
        os.utime(file, (seen, seen))


def _standing(folder: str) -> dict[str, object]:
    log = list(Path(folder, "_delta_log").iterdir())
    return {
        "files": len(DeltaTable(folder).file_uris()),
        "log_files": len(log),
        "log_mb": round(sum(one.stat().st_size for one in log) / 1e6, 1),
        "reader_cpu_ms": least(lambda: RelayLog(FolderTables(), folder).files({})),
        "checkpoint_cpu_ms": least(DeltaTable(folder).create_checkpoint),
        "follower_mb": int(
            subprocess.run([sys.executable, "-c", _FOLLOWER, folder], check=True, capture_output=True, text=True).stdout
        ),
    }


_FOLLOWER = """
import sys
from tests.bench.growth_day import follower_mb
print(follower_mb(sys.argv[1]))
"""


def follower_mb(folder: str) -> int:
    """Return by how much a process grows that begins to follow a relay, in MB."""
    before, relay = _resident(), RelayLog(FolderTables(), folder)
    held = relay.files({})
    assert held
    return (_resident() - before) >> 20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def removed() -> None:
    """Measure a log checkpoint by the files that were rewritten in the last six hours, which it names until they are deleted."""
    for count in (0, _REMOVED // 6, _REMOVED):
        with growth_folder() as folder:
            FolderTables().create(folder, RELAY)
            table, now_ms = DeltaTable(folder), time.time_ns() // 1_000_000
            for first in range(0, count, 12_000):
                names = [f"{uuid4()}.fresh.parquet" for _ in range(first, min(first + 12_000, count))]
                gone: list[AddAction | RemoveAction] = [RemoveAction(name, False, now_ms, 5_000, {}) for name in names]
                gone.append(AddAction(f"{first}.zstd.parquet", 1, {}, now_ms, False, "{}"))
                table.create_write_transaction(gone, "append", table.schema())
                table.update_incremental()
            table.create_checkpoint()

            def checkpoint() -> None:
                DeltaTable(folder).create_checkpoint()

            say(
                removed=count,
                checkpoint_cpu_ms=least(checkpoint),
                open_cpu_ms=least(lambda: DeltaTable(folder)),
                mb=round(sum(one.stat().st_size for one in Path(folder, "_delta_log").glob("*.parquet")) / 1e6, 1),
            )
