"""Open a table by delta-rs, also one whose log a power cut has left half on the disk.

A log checkpoint repeats what the commits before it say, so a broken one is passed over: the one before it and the commits
after that tell the same. A commit that is cut says nothing any more; what it added is landed again (`landing/start.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from mirrorlake.runtime import Folder, find_store, flush_files

log = logging.getLogger(__name__)

_BROKEN = ".broken"


def store_options(path: str) -> dict[str, str] | None:
    """Return the storage options with which delta-rs reaches a table; None for a folder."""
    store = find_store(path)
    return None if store is None else dict(store.for_delta)


def open_table(path: str) -> DeltaTable:
    """Open the newest version of a table; what a power cut has left of a log checkpoint or a commit is put aside.

    Raises:
        DeltaError: there is no table (`TableNotFoundError`), or its log cannot be read all the same (delta-rs' own).
    """
    options = store_options(path)
    try:
        return DeltaTable(path, storage_options=options)
    except TableNotFoundError:
        raise
    except DeltaError:
        if options is not None or not _put_aside(Path(path, "_delta_log")):
            raise
    table = DeltaTable(path)
    # Or each reader would read all commits since the checkpoint before.
    table.create_checkpoint()
    return table


def commit_name(version: int) -> str:
    """Name the file of a log with the commit of a version."""
    return f"{version:020}.json"


def read_commit(log_folder: Folder, version: int) -> str | None:
    """Read a commit from the folder of a log; None where there is none, or none any more."""
    try:
        return log_folder.read(commit_name(version))
    except FileNotFoundError:
        return None


def flush_commits(path: str, versions: Iterable[int]) -> None:
    """Flush commits of a table in a folder to the disk; delta-rs does not."""
    for version in versions:
        # Upkeep may have taken any of them away by now.
        with suppress(FileNotFoundError):
            flush_files(f"{path}/_delta_log", [commit_name(version)])


def broken_checkpoints(folder: Path) -> Iterator[tuple[Path, str]]:
    """List the log checkpoints of a table that cannot be read, each with what is wrong with it."""
    for file in sorted(folder.glob("*.checkpoint*.parquet")):
        try:
            pq.read_metadata(file)
        except (OSError, pa.ArrowInvalid):
            yield file, "a log checkpoint that cannot be read"


def broken_commits(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """List the commits among files of a log that are empty or cut, each with what is wrong with it."""
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            is_whole = bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
        except ValueError:
            is_whole = False
        if not is_whole:
            yield file, "a commit without content" if not file.stat().st_size else "a commit that is cut"


def _put_aside(folder: Path) -> bool:
    """Put what is broken aside; tell whether there was anything."""
    # A commit without content changes nothing, and is left alone.
    commits = (one for one in broken_commits(sorted(folder.glob("*.json"))) if one[0].stat().st_size)
    found = [*broken_checkpoints(folder), *commits]
    for file, why in found:
        log.warning("lake.log_broken file=%s why=%s", file, why)
        file.replace(file.with_name(f"{file.name}{_BROKEN}"))
        if file.suffix == ".json":
            # The versions after it stand; an empty commit is one that changes nothing.
            file.touch()
    if found:
        # It names a checkpoint that may be gone; readers list the log without it.
        (folder / "_last_checkpoint").unlink(missing_ok=True)
    return bool(found)
