"""Rewrite old small files of a relay into large ones, in offset order, with the records as they are.

Laws C, D and E hold across it: a file is rewritten by the relay's own writer, record by record, and before the commit its
count and its first and last offset are compared with those of the files in whose place it comes. A compactor that is
killed leaves a file that no commit names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import StoreError
from mirrorlake.lake import RELAY_ROWS, LiveFile, TableUpkeep, WrittenFile, write_files
from mirrorlake.maintenance.results import Compacted
from mirrorlake.maintenance.tiers import KeptFile, due
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

log = logging.getLogger(__name__)

# What is newer may still be asked for by its landing time, batch by batch (accounts, lag): small files are right for that.
HOT = timedelta(minutes=2)
_ROWS = 10_000
# Who asks the newest commits how far landing is reads past these: with 10 000 partitions, 157 a pass.
_GROUPS_A_COMMIT = 64
_STATISTICS = {"max.landed_at", *(f"{end}.{key}" for key in (*SOURCE_KEY, "offset") for end in ("min", "max"))}
_NEWEST = "max.timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentUpTo:
    """How far a flow has sent of each source partition by its ledger; `positions` is None where that cannot be read."""

    flow: FlowConfig
    positions: Mapping[SourcePartition, int] | None

    def is_past(self, file: KeptFile) -> bool:
        """Tell whether the flow will not read a file again."""
        if not self.flow.carries(file.source.topic):
            return True
        return self.positions is not None and file.last_offset < self.positions.get(file.source, 0)


def compact_relay(
    table: TableUpkeep,
    alias: str,
    flows: Sequence[SentUpTo],
    *,
    now: datetime,
    patience: timedelta,
    plan: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Rewrite what is old, small and sent by all flows of the source.

    A flow that follows the relay's log and has stood still for longer than `patience` is not waited for: it lists the files
    again when it goes on, and until then those that it held are on disk. With `plan` nothing is done.

    Raises:
        StoreError: a file does not hold what its statistics say; it stays as it is, and the others were rewritten.
    """
    done = Compacted()
    cold = [file for file in kept_files(table.live()) if file.landed_by < now - HOT]
    free = [file for file in cold if all(_lets(standing, file, now - patience) for standing in flows)]
    groups, unfit = due(free), []
    for first in range(0, len(groups), _GROUPS_A_COMMIT):
        several = groups[first : first + _GROUPS_A_COMMIT]
        if is_stopped():
            break
        if plan:
            done = _with(done, several)
            continue
        written: list[tuple[Sequence[KeptFile], WrittenFile]] = []
        for group in several:
            try:
                written.append((group, rewrite(table, alias, group)))
            except StoreError as error:
                unfit.append(error)
        if _replaced(table, written):
            done = _with(done, [group for group, _ in written])
    if unfit:
        raise unfit[0]
    return replace(done, waiting=len(cold) - len(free))


def _replaced(table: TableUpkeep, written: Sequence[tuple[Sequence[KeptFile], WrittenFile]]) -> bool:
    removed = [LiveFile(file.path, file.size) for group, _ in written for file in group]
    if not written or table.replace(removed, [file for _, file in written], why="compact"):
        return True
    # Another compactor, a repair or an erasure was faster; the last deletes what holds what was erased.
    for _, file in written:
        table.delete(file.path)
    return False


def _with(done: Compacted, groups: Sequence[Sequence[KeptFile]]) -> Compacted:
    files = [file for group in groups for file in group]
    size = done.bytes + sum(file.size for file in files)
    return replace(done, files=done.files + len(files), bytes=size, into=done.into + len(groups))


def _lets(standing: SentUpTo, file: KeptFile, before: datetime) -> bool:
    return standing.is_past(file) or (standing.flow.execution == "live" and file.landed_by < before)


def rewrite(table: TableUpkeep, alias: str, group: Sequence[KeptFile]) -> WrittenFile:
    """Write the records of files of one source partition, which come one after another, into one file."""
    files = list(write_files(table.path, RELAY_ROWS, _records(table, group)))
    expected = (sum(file.records for file in group), group[0].first_offset, group[-1].last_offset)
    if len(files) != 1 or _held(files[0], group[0].source) != expected:
        for file in files:
            table.delete(file.path)
        raise StoreError(
            f"files of {group[0].source} in the relay of {alias} do not hold what their statistics say",
            consequence="they stay as they are; nothing was replaced",
            remedy=f"mirrorlake repair --source {alias} --check",
            alias=alias,
        )
    return files[0]


def _held(file: WrittenFile, source: SourcePartition) -> tuple[int, int, int] | None:
    stats = json.loads(file.stats)
    least, most = stats["minValues"], stats["maxValues"]
    if any(least[key] != getattr(source, key) for key in SOURCE_KEY):
        return None
    return file.records, least["offset"], most["offset"]


def _records(table: TableUpkeep, group: Sequence[KeptFile]) -> Iterator[pa.RecordBatch]:
    for file in group:
        filesystem, path = table.place(file.path)
        with pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us") as parquet:
            if _is_ordered(parquet.read(["offset"], use_threads=False)):
                yield from parquet.iter_batches(batch_size=_ROWS, columns=RELAY_ROWS.names, use_threads=False)
            else:
                # Rewritten by a stranger: at most 64 MiB, or it would not be here.
                rows = parquet.read(RELAY_ROWS.names, use_threads=False)
                yield from rows.sort_by("offset").to_batches(max_chunksize=_ROWS)


def _is_ordered(rows: pa.Table) -> bool:
    return bool(np.all(np.diff(rows.column("offset").to_numpy()) >= 0))


def kept_files(live: pa.Table) -> list[KeptFile]:
    """List the files whose statistics say that they hold one source partition; a stranger's may hold several, and are left out."""
    if not set(live.column_names) >= _STATISTICS:
        return []
    columns = [
        *("path", "size_bytes", "num_records", "max.landed_at"),
        *(f"{end}.{key}" for end in ("min", "max") for key in (*SOURCE_KEY, "offset")),
    ]
    newest = live[_NEWEST].to_pylist() if _NEWEST in live.column_names else [None] * len(live)
    sources: dict[tuple[Any, ...], SourcePartition] = {}
    found = []
    # By column, and only these: all statistics of 200 000 files as rows would take 3.5 CPU-s to look at.
    for row in zip(*(live[name].to_pylist() for name in columns), newest, strict=True):
        path, size, records, landed_by, *ends, stamp = row
        place, first, last_place, last = tuple(ends[:3]), ends[3], tuple(ends[4:7]), ends[7]
        if None not in row[:-1] and place == last_place:
            found.append(
                KeptFile(
                    path=path,
                    size=size,
                    records=records,
                    source=sources.get(place) or sources.setdefault(place, SourcePartition(*place)),
                    first_offset=first,
                    last_offset=last,
                    landed_by=landed_by,
                    newest=stamp,
                )
            )
    return found
