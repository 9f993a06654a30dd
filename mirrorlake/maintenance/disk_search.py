"""Search the disk or store for erased records once the tables are rid of them: the evidence of an erasure.

The erasure itself searches live files. This module searches the files that no commit names: older versions, files of dead
writers, copies that somebody made below the lake, and the folders of replays into Parquet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.lake import DIVERGENT, QUARANTINE, Lake, TableMaintenance
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

Matches = Callable[[pa.RecordBatch], int]
"""Return how many rows of a batch are to be erased."""

_ROWS = 10_000
# A writer finishes a file within seconds of its last record.
_WRITTEN_WITHIN_S, _LOOKS, _PAUSE_S = 600.0, 3, 0.2
_STRAY = "stray"
_COPY = "a copy that belongs to no table: delete it"
_UNNAMED = "no commit names it: the same command deletes it once it is ten minutes old"
_SENT = """
    SELECT DISTINCT m.flow, m.target_topic FROM {offset_map} AS m JOIN {erased} AS e
    ON m.source_topic = e.topic AND m.generation = e.generation AND m.source_partition = e.partition
        AND m.first_upstream <= e.last AND m.last_upstream >= e.first
    ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """A file that still holds erased records; `records` is None if the file cannot be read."""

    path: str
    records: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The result of a search: files read, files deleted, remaining files, and topics that got the records."""

    files: int = 0
    deleted: tuple[str, ...] = ()
    remains: tuple[Remains, ...] = ()
    sent_to: tuple[str, ...] = ()

    def evidence(self) -> dict[str, Any]:
        """Return the names of files and topics for the tables `removed` and `audit`; never a key."""
        return {
            "searched_files": self.files,
            "still_in": [one.path for one in self.remains],
            "sent_to": list(self.sent_to),
        }


class DiskSearch:
    """Search a source's files in the lake for erased records.

    Args:
        lake: the lake.
        alias: the source.
        table: its relay.
        foreign_flows: flows of other sources; their rows in `quarantine` are copies of other records.
        exports: folders that replays into Parquet wrote.
    """

    def __init__(
        self, lake: Lake, alias: str, table: TableMaintenance, *, foreign_flows: Sequence[str], exports: Sequence[str]
    ) -> None:
        self._lake = lake
        self._alias = alias
        self._foreign_flows = foreign_flows
        self._exports = exports
        side = {schema.name: lake.open_maintenance(lake.meta_location(schema)) for schema in (QUARANTINE, DIVERGENT)}
        self._tables = {"relay": table, **{name: found for name, found in side.items() if found is not None}}

    def run(
        self, columns: Sequence[str], matches: Matches, erased: Sequence[tuple[SourcePartition, int, int]]
    ) -> Searched:
        """Search every file that no commit names: delete mirrorlake's own files with a match, report the others.

        `columns` are the columns that `matches` reads beside partition and offset; `erased` are first and last erased offsets.
        """
        searched, deleted, remains = 0, list[str](), list[Remains]()
        for kind, table in self._tables.items():
            for name in unnamed_files(table):
                filesystem, path = table.locate(name)
                searched += 1
                found = list(self._look(filesystem, path, columns, matches, kind=kind))
                if found and _is_settled(filesystem, path):
                    # The file is past its retention, or a repair took it out.
                    table.delete(name)
                    deleted.append(unquote(name))
                else:
                    remains += found
        for place in self._strays():
            searched += 1
            remains += self._look(fs.LocalFileSystem(), str(place), columns, matches, kind=_STRAY)
        return Searched(files=searched, deleted=tuple(deleted), remains=tuple(remains), sent_to=self._sent_to(erased))

    def _sent_to(self, erased: Sequence[tuple[SourcePartition, int, int]]) -> tuple[str, ...]:
        """Return the topics that got erased records, each with its flow; also renamed and retired flows, and replays."""
        rows = [
            {"topic": s.topic, "generation": s.generation, "partition": s.partition, "first": first, "last": last}
            for s, first, last in erased
        ]
        if not rows:
            return ()
        found = self._lake.query_rows(_SENT, tables={"erased": pa.Table.from_pylist(rows)}, missing_ok=True)
        return tuple(f"{row.target_topic} by {row.flow}" for row in found if row.flow not in self._foreign_flows)

    def _look(
        self, filesystem: fs.FileSystem, path: str, columns: Sequence[str], matches: Matches, *, kind: str
    ) -> Iterator[Remains]:
        why = _COPY if kind == _STRAY else _UNNAMED
        for _ in range(_LOOKS):
            try:
                count = self._count(filesystem, path, columns, matches, kind=kind)
            except FileNotFoundError:
                # The file's writer, or maintenance, has deleted it.
                return
            except (pa.ArrowInvalid, OSError):
                # A writer may be writing the file just now.
                time.sleep(_PAUSE_S)
                continue
            if count:
                yield Remains(path=path, records=count, why=why)
            return
        yield Remains(path=path, records=None, why=f"cannot be read; {why}")

    def _count(
        self, filesystem: fs.FileSystem, path: str, columns: Sequence[str], matches: Matches, *, kind: str
    ) -> int:
        also = {QUARANTINE.name: ["flow"], DIVERGENT.name: ["source"]}.get(kind, [])
        wanted = list(dict.fromkeys([*SOURCE_KEY, "offset", *columns, *also]))
        with (
            filesystem.open_input_file(path) as file,
            pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet,
        ):
            if not set(wanted) <= set(parquet.schema_arrow.names):
                return 0
            return sum(
                matches(self._mine(batch, kind)) for batch in parquet.iter_batches(batch_size=_ROWS, columns=wanted)
            )

    def _mine(self, batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
        if kind == QUARANTINE.name:
            foreign = pa.array(self._foreign_flows, pa.string())
            return batch.filter(pc.invert(pc.is_in(batch.column("flow"), foreign)))
        return batch.filter(pc.equal(batch.column("source"), self._alias)) if kind == DIVERGENT.name else batch

    def _strays(self) -> Iterator[Path]:
        """Yield the Parquet files below the lake's folder that lie in no table, and those of replays into folders."""
        root = Path(self._lake.address)
        tables = [*root.glob("relay/*"), *root.glob("meta/*")] if root.is_dir() else []
        for path in sorted(root.rglob("*.parquet*")) if root.is_dir() else ():
            is_plain = path.parent in tables and path.suffix == ".parquet"
            if not is_plain and path.parent.name != "_delta_log" and path.suffix != ".crc":
                yield path
        for folder in self._exports:
            yield from sorted(Path(folder).glob("*.parquet*"))


def unnamed_files(table: TableMaintenance) -> list[str]:
    """List the table's files on disk that its log does not name."""
    held = table.list_files()
    live = {unquote(path) for path in table.live().column("path").to_pylist()}
    return [name for name in held if unquote(name) not in live]


def _is_settled(filesystem: fs.FileSystem, path: str) -> bool:
    """Return whether a file is too old to belong to a commit in progress."""
    info = filesystem.get_file_info(path)
    return bool(info.mtime is not None and time.time() - info.mtime.timestamp() > _WRITTEN_WITHIN_S)
