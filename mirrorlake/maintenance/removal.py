"""Take records out of a relay: announced, removed by a commit, confirmed.

    1  a row of `removed` announces the records
    2  one or several commits take them out, each the very next version after the snapshot that lists its files
    3  an erasure deletes every file on disk with one of the records, and their rows in typed tables
    4  a second row of `removed` names the first version without them

Law E: no record is ever missing without a reason. A death between two steps leaves an announced act, which the next pass
finishes (`finish`). Doing it twice takes nothing else out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import StoreError
from mirrorlake.lake import (
    BAD_RECORDS,
    RELAY_ROWS,
    REMOVABLE,
    Lake,
    Leaves,
    LiveFile,
    TableMaintenance,
    WrittenFile,
    delete_rows,
    folder_values,
    read_rows,
    unfinished,
    write_files,
    write_removed,
)
from mirrorlake.maintenance.retention import ExpiringFiles
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import ERASED, EXPIRED, Removed

# An append-only table refuses to lose a record (docs/design.md).
_FILES_A_COMMIT = 64
# Another maintenance pass may rewrite the same files meanwhile.
_ATTEMPTS = 10
_ROWS = 10_000
_PLACE = (*SOURCE_KEY, "offset")
OutOfTables = Callable[[str, Sequence[Removed]], Mapping[str, int]]
"""Erase the rows of a source's erased records from typed tables, and return their numbers by table."""


@dataclass(eq=False, repr=False)
class Removals:
    """Take records out of the relay of one source; several processes may do so at once."""

    lake: Lake
    alias: str
    table: TableMaintenance
    out_of_tables: OutOfTables = lambda _alias, _removed: {}

    def expire(self, expiries: Sequence[ExpiringFiles], now: datetime) -> list[Removed]:
        removal = str(uuid.uuid4())
        return self.take_out([_announced(one, removal, now) for one in expiries])

    def finish(self) -> list[Removed]:
        """Finish announced removals whose process died; return them."""
        return self._done(unfinished(self.lake, self.alias))

    def take_out(self, removals: Sequence[Removed]) -> list[Removed]:
        """Announce removals, carry them out, confirm them; return the confirmed."""
        if not removals:
            return []
        crash_point("remove.announcing")
        write_removed(self.lake, self.alias, removals)
        crash_point("remove.announced")
        return self._done(removals)

    def _done(self, removals: Sequence[Removed]) -> list[Removed]:
        if not removals:
            return []
        # Not at the table's creation: most relays never lose a record, and the property shows that.
        self.table.ensure_properties(REMOVABLE)
        version = self._commit(_Gone(removals), f"{removals[0].kind} {removals[0].removal}")
        crash_point("remove.committed")
        evidence: dict[str, Any] = {}
        erased = _Gone(one for one in removals if one.kind == ERASED)
        if erased:
            evidence["deleted_files"] = purge(self.table, partial(erased.are_in, self.table))
            crash_point("remove.purged")
            evidence["tables"] = self._out_of_typed_tables(erased, removals)
            # After the tables: a batch that these dropped has recorded its bad records.
            table = self.lake.open_maintenance(self.lake.meta_location(BAD_RECORDS))
            copies = partial(erased.copied, alias=self.alias)
            evidence["bad_records"] = 0 if table is None else out_of_side_table(table, copies)
        done = [
            replace(one, relay_version=version, evidence={**one.evidence, **(evidence if one.kind == ERASED else {})})
            for one in removals
        ]
        crash_point("remove.confirming")
        write_removed(self.lake, self.alias, done)
        crash_point("remove.confirmed")
        return done

    def _out_of_typed_tables(self, gone: _Gone, removals: Sequence[Removed]) -> Mapping[str, int]:
        """Erase the rows of typed tables, and the files on disk that held them; return their number by table."""
        done = self.out_of_tables(self.alias, [one for one in removals if one.kind == ERASED])
        for name in done:
            table = self.lake.open_maintenance(self.lake.typed_location(name))
            if table is not None:
                purge(table, partial(gone.are_rows_in, table, alias=self.alias))
        return done

    def _commit(self, gone: _Gone, why: str) -> int:
        """Take the records out of every live file; return the first version without them."""
        for _ in range(_ATTEMPTS):
            touched = list(gone.files(self.table))
            parts = [touched[at : at + _FILES_A_COMMIT] for at in range(0, len(touched), _FILES_A_COMMIT)]
            whole = [file for file in touched if file.is_whole]
            if len(whole) == len(touched):
                # Nothing is read or written: one commit for any number of files.
                parts = [whole] if whole else []
            if all([self._replaced(part, gone, why) for part in parts]):  # noqa: C419  each is tried
                return self.table.version()
        raise StoreError(
            f"another process kept rewriting files of the relay of {self.alias} while records were removed from them",
            consequence="some records remain; the table removed announces them, and the next maintenance removes them",
            remedy="run only one mirrorlake maintain on a lake at a time",
            alias=self.alias,
        )

    def _replaced(self, files: Sequence[_Touched], gone: _Gone, why: str) -> bool:
        folder = self.table.path
        removed: list[LiveFile] = []
        written: list[WrittenFile] = []
        for file in files:
            if file.is_whole:
                removed.append(LiveFile(file.path, file.size))
                continue
            try:
                rows, left = gone.left_of(self.table, file.path)
            except FileNotFoundError:
                # The file was rewritten since it was listed.
                return False
            if left is not None:
                removed.append(LiveFile(file.path, file.size))
                new = list(write_files(folder, RELAY_ROWS, left, apart=True))
                written += new
                self._check(file, rows, new)
        if not removed or self.table.replace(removed, written, data_change=True, why=why):
            return True
        for one in written:
            self.table.delete(one.path)
        return False

    def _check(self, file: _Touched, expected: int, written: Sequence[WrittenFile]) -> None:
        if sum(one.records for one in written) == expected:
            return
        for one in written:
            self.table.delete(one.path)
        raise StoreError(
            f"{file.path} in the relay of {self.alias} was rewritten with the wrong number of records",
            consequence="the file stays as it is; nothing was replaced",
            remedy=f"mirrorlake repair --source {self.alias} --check",
            alias=self.alias,
        )


@dataclass(frozen=True, slots=True)
class _Touched:
    """A live file that may hold leaving records; `is_whole` if its statistics show that all of them leave."""

    path: str
    size: int
    is_whole: bool


class _Gone:
    """The leaving offsets by source partition: all up to the last expired one, and the erased ones."""

    def __init__(self, removals: Iterable[Removed]) -> None:
        ranges: dict[SourcePartition, list[Ranges]] = {}
        for one in removals:
            leaving = Ranges([(0, one.ranges.end)]) if one.kind == EXPIRED else one.ranges
            ranges.setdefault(one.source, []).append(leaving)
        self._ranges = {source: Ranges.union(several) for source, several in ranges.items()}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def copied(self, rows: pa.Table, *, alias: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        mine = pc.equal(rows.column("source"), alias).to_numpy()
        found: np.ndarray[Any, np.dtype[np.bool_]] = self._leave(rows) & mine
        return found

    def are_rows_in(self, table: TableMaintenance, name: str, *, alias: str) -> bool:
        columns = [f"_{column}" for column in ("source", *_PLACE)]
        with table.open(name) as file, pq.ParquetFile(file) as parquet:
            rows = parquet.read([one for one in columns if one in parquet.schema_arrow.names], use_threads=False)
        for column in set(columns) - set(rows.column_names):
            value = pa.scalar(folder_values(name)[column]).cast(table.schema.field(column).type)
            rows = rows.append_column(column, pa.repeat(value, len(rows)))
        rows = rows.rename_columns([column[1:] for column in rows.column_names])
        return bool(self.copied(rows, alias=alias).any())

    def are_in(self, table: TableMaintenance, name: str) -> bool:
        """Return whether a file holds one of the records; mostly its footer suffices."""
        with table.open(name) as file, pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            names = parquet.schema.names
            groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
            ends = [_ends(group.column(names.index(name)).statistics) for group in groups for name in _PLACE]
            if None not in ends and len(ends) == len(_PLACE):
                least, most = ([end[at] for end in ends if end is not None] for at in (0, 1))
                if least[:3] == most[:3] and not self._overlap(SourcePartition(*least[:3]), least[3], most[3]):
                    return False
            return bool(self._leave(parquet.read(list(_PLACE), use_threads=False)).any())

    def files(self, table: TableMaintenance) -> Iterator[_Touched]:
        live = table.live()
        named = [f"{end}.{key}" for key in _PLACE for end in ("min", "max")]
        held = [name for name in named if name in live.column_names]
        parts: dict[str, list[tuple[SourcePartition, int, int]]] = {}
        sizes: dict[str, int] = {}
        for row in live.select(["path", "size_bytes", *held]).to_pylist():
            least, most = ([row.get(f"{end}.{key}") for key in _PLACE] for end in ("min", "max"))
            is_one = None not in (*least, *most) and least[:3] == most[:3]
            parts[row["path"]] = [(SourcePartition(*least[:3]), least[3], most[3])] if is_one else []
            sizes[row["path"]] = row["size_bytes"]
        spans = table.spans([path for path, known in parts.items() if not known])
        for path, known in parts.items():
            known = known or [(span.source, span.first_offset, span.last_offset) for span in spans.get(path, ())]
            if not known:
                # Another tool wrote the file: only its rows show its records.
                yield _Touched(path, sizes[path], False)
            elif any(self._overlap(*part) for part in known):
                yield _Touched(path, sizes[path], all(self._covers(*part) for part in known))

    def left_of(self, table: TableMaintenance, name: str) -> tuple[int, list[pa.RecordBatch] | None]:
        """Return number and rows, in order, of a file's remaining records; None if no record leaves."""
        with table.open(name) as file, pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            places = parquet.read(list(_PLACE), use_threads=False)
            leaves = self._leave(places)
            if not leaves.any():
                return len(leaves), None
            # A relay file has at most 128 MiB, one of another tool perhaps more; erasures are rare.
            rows = parquet.read(RELAY_ROWS.names, use_threads=False).filter(pa.array(~leaves))
        rows = rows.sort_by([(name, "ascending") for name in _PLACE])
        return len(rows), rows.combine_chunks().to_batches(max_chunksize=_ROWS)

    def _leave(self, places: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        offsets = places.column("offset").to_numpy()
        leaves = np.zeros(len(offsets), bool)
        for source in self._sources(places):
            mine = np.ones(len(offsets), bool)
            for key in SOURCE_KEY:
                mine &= pc.equal(places.column(key), getattr(source, key)).to_numpy()
            leaves |= mine & self._ranges[source].contains(offsets)
        return leaves

    def _sources(self, places: pa.Table) -> set[SourcePartition]:
        held = places.group_by(list(SOURCE_KEY)).aggregate([]).to_pylist()
        return {SourcePartition(**one) for one in held} & self._ranges.keys()

    def _overlap(self, source: SourcePartition, first: int, last: int) -> bool:
        return source in self._ranges and self._ranges[source].overlaps(first, last + 1)

    def _covers(self, source: SourcePartition, first: int, last: int) -> bool:
        return source in self._ranges and not Ranges([(first, last + 1)]) - self._ranges[source]


def _ends(statistics: Any) -> tuple[Any, Any] | None:
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None


def purge(table: TableMaintenance, holds: Callable[[str], bool]) -> list[str]:
    """Delete files on disk that hold one of the records and that the table no longer names; return their names.

    They are files of older versions, of a rewriting, and of dead writers. A commit in progress adds none of these records: its
    offsets are newer, or it replaces files that are no longer live, and is refused.
    """
    deleted, held = [], table.list_files()
    live = {unquote(path) for path in table.live().column("path").to_pylist()}
    for name in (name for name in held if unquote(name) not in live):
        with suppress(FileNotFoundError, pa.ArrowInvalid):
            # An unreadable file is being written, or was never finished.
            if holds(name):
                table.delete(name)
                deleted.append(unquote(name))
    return deleted


def out_of_side_table(table: TableMaintenance, leaves: Leaves) -> int:
    """Delete rows from a side table, and the files that held them; return the number of rows."""
    taken = delete_rows(table, leaves, why="erase")
    purge(table, lambda name: bool(leaves(read_rows(table, [name])).any()))
    return taken


def _announced(expiry: ExpiringFiles, removal: str, now: datetime) -> Removed:
    newest = max((file.newest for file in expiry.files if file.newest), default=None)
    evidence: Mapping[str, Any] = {
        "files": len(expiry.files),
        "bytes": expiry.bytes,
        "newest_timestamp": None if newest is None else newest.isoformat(),
    }
    return Removed(
        removal=removal,
        source=expiry.source,
        ranges=Ranges([(expiry.files[0].first_offset, expiry.files[-1].last_offset + 1)]),
        kind=EXPIRED,
        records=expiry.records,
        removed_at=now,
        reason=expiry.reason,
        evidence=evidence,
    )
