"""Find the record files of a relay that a power cut, or a disk, has left empty or cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from pyarrow import fs

from mirrorlake.lake.upkeep import LiveFile, TableUpkeep
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

# How a Parquet file begins and ends.
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A file that the relay's log names and that does not hold what the log says: `records` of a source partition."""

    file: LiveFile
    source: SourcePartition
    first_offset: int
    last_offset: int
    records: int
    landed_at: datetime


def broken_files(table: TableUpkeep) -> Iterator[BrokenFile]:
    """Find the broken files of a relay by their sizes and last bytes; no record is read.

    A file that holds several source partitions, which Spark's own `OPTIMIZE` makes, is not judged.
    """
    live = table.live()
    wanted = ["path", "size_bytes", "num_records", *(f"{end}.{key}" for end in ("min", "max") for key in SOURCE_KEY)]
    wanted += ["min.offset", "max.offset", "min.landed_at"]
    if not set(wanted) <= set(live.column_names):
        return
    for row in live.select(wanted).to_pylist():
        least, most = ([row[f"{end}.{key}"] for key in SOURCE_KEY] for end in ("min", "max"))
        if None in least or least != most:
            continue
        source = SourcePartition(*least)
        if _is_broken(table, row["path"], row["size_bytes"]):
            at = row["min.landed_at"]
            yield BrokenFile(
                LiveFile(row["path"], row["size_bytes"]),
                source,
                int(row["min.offset"]),
                int(row["max.offset"]),
                int(row["num_records"]),
                at.replace(tzinfo=at.tzinfo or timezone.utc),
            )


def _is_broken(table: TableUpkeep, name: str, size: int) -> bool:
    filesystem, path = table.place(name)
    found = filesystem.get_file_info(path)
    if found.type != fs.FileType.File:
        # Upkeep has rewritten and deleted it meanwhile, or somebody has taken it away: questions say so.
        return False
    if found.size != size:
        return True
    if not isinstance(filesystem, fs.LocalFileSystem):
        return False
    with filesystem.open_input_file(path) as opened:
        return bytes(opened.read_at(len(_MAGIC), size - len(_MAGIC))) != _MAGIC
