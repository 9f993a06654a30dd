"""Rewrite old small relay files into large files of one source partition each, in offset order, records unchanged.

Laws C, D and E: the relay's own writer rewrites a file record by record. Before the commit, count and first and last offset
are compared with those of the replaced files. A compactor that is killed leaves a file that no commit names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import StoreError
from mirrorlake.lake import (
    RELAY_ROWS,
    LiveFile,
    RelayFile,
    TableMaintenance,
    WrittenFile,
    from_micros,
    read_file,
    spans_from_text,
    write_files,
)
from mirrorlake.maintenance.results import Compacted
from mirrorlake.maintenance.splits import Split, splits
from mirrorlake.maintenance.tiers import KeptFile, due
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.timing import timing

log = logging.getLogger(__name__)

_ROWS = 10_000
# Readers of the newest commits (landing progress) skip these commits: with 10 000 partitions, 157 a pass.
_GROUPS_A_COMMIT = 64
_STATISTICS = {"max.landed_at", *(f"{end}.{key}" for key in (*SOURCE_KEY, "offset") for end in ("min", "max"))}
_NEWEST = "max.timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentUpTo:
    """The positions up to which a flow has sent, by its ledger; `positions` is None if the ledger cannot be read."""

    flow: FlowConfig
    positions: Mapping[SourcePartition, int] | None

    def is_past(self, file: KeptFile) -> bool:
        if not self.flow.carries(file.source.topic):
            return True
        return self.positions is not None and file.last_offset < self.positions.get(file.source, 0)


def compact_relay(
    table: TableMaintenance,
    alias: str,
    flows: Sequence[SentUpTo],
    *,
    now: datetime,
    max_wait: timedelta,
    plan: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Rewrite old small files that all flows of the source have sent.

    A live flow that has not sent a file for longer than `max_wait` is not waited for: it lists the files again when it resumes,
    and until then the removed files are on disk. With `plan` nothing is rewritten.

    Raises:
        StoreError: a file does not hold what its statistics say; it stays as it is, and the others were rewritten.
    """
    done = Compacted()
    kept = kept_files(table)
    cold = [file for file in kept if file.landed_by < now - timedelta(seconds=timing().hot_s)]
    held = {file.path for file in cold if not all(_lets(standing, file, now - max_wait) for standing in flows)}
    free = [file for file in cold if file.path not in held]
    unfit = []
    for several in _rewritings(kept, free):
        if is_stopped():
            break
        if plan:
            done = _with(done, several)
            continue
        written: list[tuple[Split, list[WrittenFile]]] = []
        for one in several:
            try:
                written.append((one, rewrite(table, alias, one)))
            except StoreError as error:
                unfit.append(error)
        if _replaced(table, written):
            done = _with(done, [one for one, _ in written])
    if unfit:
        raise unfit[0]
    return replace(done, waiting=len(held))


def _rewritings(kept: Sequence[KeptFile], free: Sequence[KeptFile]) -> Iterator[list[Split]]:
    """Yield the rewritings of each commit: first files of several source partitions, then small files of one."""
    names = {file.path for file in free}
    others = [file for file in kept if file.path not in names]
    found = splits(free, others)
    yield from ([one] for one in found)
    # The next pass merges the files that a split writes.
    moved = {part.source for one in found for output in one.outputs for part in output}
    lines = [file for file in (*free, *(file for file in others if file.part_of)) if file.source not in moved]
    groups = [Split(tuple((file,) for file in group), (tuple(group),), 0) for group in due(lines)]
    yield from (groups[first : first + _GROUPS_A_COMMIT] for first in range(0, len(groups), _GROUPS_A_COMMIT))


def _replaced(table: TableMaintenance, written: Sequence[tuple[Split, Sequence[WrittenFile]]]) -> bool:
    removed = [_live_file(parts[0]) for one, _ in written for parts in one.files]
    added = [file for _, files in written for file in files]
    if not added or table.replace(removed, added, why="compact"):
        return True
    # Another compactor, a repair or an erasure was faster. After an erasure, the written files hold erased records.
    for file in added:
        table.delete(file.path)
    return False


def _live_file(part: KeptFile) -> LiveFile:
    return LiveFile(part.path, part.part_of or part.size)


def _with(done: Compacted, several: Sequence[Split]) -> Compacted:
    files = [_live_file(parts[0]) for one in several for parts in one.files]
    return replace(
        done,
        files=done.files + len(files),
        bytes=done.bytes + sum(file.size for file in files),
        into=done.into + sum(len(one.outputs) for one in several),
    )


def _lets(standing: SentUpTo, file: KeptFile, before: datetime) -> bool:
    return standing.is_past(file) or (standing.flow.execution == "live" and file.landed_by < before)


def rewrite(table: TableMaintenance, alias: str, split: Split) -> list[WrittenFile]:
    """Write the records of each output into one file, in offset order."""
    files: list[WrittenFile] = []
    for rows in _outputs(table, split):
        files += write_files(table.path, RELAY_ROWS, rows, apart=True)
    expected = [
        (output[0].source, output[0].first_offset, output[-1].last_offset, sum(part.records for part in output))
        for output in split.outputs
    ]
    if sorted(map(_held, files)) != sorted(expected):
        for file in files:
            table.delete(file.path)
        raise StoreError(
            f"files of {expected[0][0]} in the relay of {alias} do not hold what their statistics say",
            consequence="the files stay as they are; nothing was replaced",
            remedy=f"mirrorlake repair --source {alias} --check",
            alias=alias,
        )
    return files


def _held(file: WrittenFile) -> tuple[SourcePartition, int, int, int]:
    [span] = spans_from_text(file.spans)
    return span.source, span.first_offset, span.last_offset, span.records


def _outputs(table: TableMaintenance, split: Split) -> Iterator[Iterable[pa.RecordBatch]]:
    """Read the rows of each output; the outputs come in any order."""
    if len(split.outputs) == 1:
        return iter([_records(table, split.outputs[0])])
    if len(split.files) == 1 and len(split.outputs) == len(split.files[0]):
        # The file may be larger than memory.
        return _parts(table, split.files[0])
    return _sorted_together(table, split)


def _parts(table: TableMaintenance, parts: Sequence[KeptFile]) -> Iterator[Iterable[pa.RecordBatch]]:
    uri = table.uri(parts[0].path)
    files = [RelayFile(one.source, one.first_offset, one.last_offset, one.records, uri, shared=True) for one in parts]
    for _, several in groupby(read_file(files, columns=RELAY_ROWS.names), key=itemgetter(0)):
        yield map(itemgetter(1), several)


def _sorted_together(table: TableMaintenance, split: Split) -> Iterator[Iterable[pa.RecordBatch]]:
    read = []
    for several in split.files:
        with pq.ParquetFile(table.open(several[0].path), coerce_int96_timestamp_unit="us") as parquet:
            read.append(parquet.read(RELAY_ROWS.names, use_threads=False).cast(RELAY_ROWS))
    rows = pa.concat_tables(read).sort_by([(name, "ascending") for name in (*SOURCE_KEY, "offset")])
    first = 0
    for output in split.outputs:
        count = sum(part.records for part in output)
        yield rows.slice(first, count).to_batches()
        first += count


def _records(table: TableMaintenance, group: Sequence[KeptFile]) -> Iterator[pa.RecordBatch]:
    for file in group:
        filesystem, path = table.locate(file.path)
        with pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us") as parquet:
            offsets = parquet.read(["offset"], use_threads=False).column("offset").to_numpy()
            if np.all(np.diff(offsets) >= 0):
                yield from parquet.iter_batches(batch_size=_ROWS, columns=RELAY_ROWS.names, use_threads=False)
            else:
                # Another tool rewrote the file. It has at most 64 MiB: larger files are not rewritten.
                rows = parquet.read(RELAY_ROWS.names, use_threads=False)
                yield from rows.sort_by("offset").to_batches(max_chunksize=_ROWS)


def kept_files(table: TableMaintenance) -> list[KeptFile]:
    """List the relay's files by source partition; omit files of other writers without recorded spans."""
    live = table.live()
    if not set(live.column_names) >= _STATISTICS:
        return []
    columns = [
        *("path", "size_bytes", "num_records", "max.landed_at"),
        *(f"{end}.{key}" for end in ("min", "max") for key in (*SOURCE_KEY, "offset")),
    ]
    newest = live[_NEWEST].to_pylist() if _NEWEST in live.column_names else [None] * len(live)
    sources: dict[tuple[Any, ...], SourcePartition] = {}
    found, several = [], {}
    # By column, and only these columns: all statistics of 200 000 files as rows take 3.5 CPU-s.
    for row in zip(*(live[name].to_pylist() for name in columns), newest, strict=True):
        path, size, records, landed_by, *ends, stamp = row
        place, first, last_place, last = tuple(ends[:3]), ends[3], tuple(ends[4:7]), ends[7]
        if None in row[:-1]:
            continue
        if place != last_place:
            several[path] = size, records, landed_by
            continue
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
    for path, spans in table.spans(several).items():
        size, records, landed_by = several[path]
        found += [
            KeptFile(
                path=path,
                size=size * span.records // records,
                records=span.records,
                source=span.source,
                first_offset=span.first_offset,
                last_offset=span.last_offset,
                landed_by=landed_by,
                newest=from_micros(span.newest_ms * 1000),
                part_of=size,
            )
            for span in spans
        ]
    return found
