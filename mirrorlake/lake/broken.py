"""Find the files of a relay or side table that a power cut, or a disk, has left empty, truncated or missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from pyarrow import fs

from mirrorlake.errors import StoreError
from mirrorlake.lake.file_spans import FileSpan
from mirrorlake.lake.log_commits import LiveFile
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

# How a Parquet file begins and ends.
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A file in the relay's log that lacks its records, the `spans` of its source partitions."""

    file: LiveFile
    spans: tuple[FileSpan, ...]
    landed_at: datetime

    @property
    def records(self) -> int:
        return sum(span.records for span in self.spans)


def broken_files(table: TableMaintenance) -> Iterator[BrokenFile]:
    """Find the broken files of a relay by their sizes and last bytes, without reading records.

    A broken file of several source partitions without spans in the log, as Spark's own `OPTIMIZE` writes, is omitted.
    """
    live = table.live()
    wanted = ["path", "size_bytes", "num_records", *(f"{end}.{key}" for end in ("min", "max") for key in SOURCE_KEY)]
    wanted += ["min.offset", "max.offset", "min.landed_at"]
    if not set(wanted) <= set(live.column_names):
        return
    broken = [row for row in live.select(wanted).to_pylist() if _is_broken(table, row["path"], row["size_bytes"])]
    spans = table.spans([row["path"] for row in broken])
    for row in broken:
        least, most = ([row[f"{end}.{key}"] for key in SOURCE_KEY] for end in ("min", "max"))
        if None not in least and least == most:
            first, last, records = (int(row[name]) for name in ("min.offset", "max.offset", "num_records"))
            held = [FileSpan(SourcePartition(*least), first, last, 0, records, 0)]
        else:
            by_source: dict[SourcePartition, FileSpan] = {}
            for span in spans.get(row["path"], ()):
                by_source[span.source] = by_source[span.source].joined(span) if span.source in by_source else span
            held = list(by_source.values())
        if held:
            at = row["min.landed_at"]
            file = LiveFile(row["path"], row["size_bytes"])
            yield BrokenFile(file, tuple(held), at.replace(tzinfo=at.tzinfo or timezone.utc))


def broken_rows(table: TableMaintenance) -> list[tuple[LiveFile, int]]:
    named = ["path", "size_bytes", "num_records"]
    rows = table.live().select(named).to_pylist()
    found = [row for row in rows if _is_gone(table, row["path"]) or _is_broken(table, row["path"], row["size_bytes"])]
    # Maintenance may have rewritten and deleted a file since it was listed.
    live = set(table.live().column("path").to_pylist()) if found else ()
    return [(LiveFile(row["path"], row["size_bytes"]), row["num_records"] or 0) for row in found if row["path"] in live]


def broken_table(paths: Iterable[str]) -> StoreError | None:
    """Return an error that names the first side table with broken files, or None if all are whole."""
    for path in paths:
        if broken := broken_rows(TableMaintenance(path)):
            names = ", ".join(file.path for file, _ in broken[:3])
            return StoreError(
                f"the table {path.rpartition('/')[2]} has files that cannot be read: {names}",
                consequence="nothing was changed; no command can read this table",
                remedy="mirrorlake repair --source A (A: any source) removes these files and lists the rows that it writes again",
            )
    return None


def _is_gone(table: TableMaintenance, name: str) -> bool:
    filesystem, path = table.locate(name)
    return bool(filesystem.get_file_info(path).type != fs.FileType.File)


def _is_broken(table: TableMaintenance, name: str, size: int) -> bool:
    filesystem, path = table.locate(name)
    found = filesystem.get_file_info(path)
    if found.type != fs.FileType.File:
        # Maintenance may have rewritten and deleted the file meanwhile; if the newest version names it, it is lost.
        return name in table.live()["path"].to_pylist()
    if found.size != size:
        return True
    if not isinstance(filesystem, fs.LocalFileSystem):
        return False
    with filesystem.open_input_file(path) as opened:
        return bytes(opened.read_at(len(_MAGIC), size - len(_MAGIC))) != _MAGIC
