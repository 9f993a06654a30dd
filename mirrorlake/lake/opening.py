"""Open a table by delta-rs, even if a power cut has left its log partly written.

A log checkpoint repeats the commits before it, so a broken one is skipped: the one before it and the commits after that have
the same content. The content of a truncated commit is lost; its records are landed again (`landing/start.py`).
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
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from mirrorlake.runtime import Folder, find_store, flush_files

log = logging.getLogger(__name__)

_BROKEN = ".broken"


def store_options(path: str) -> dict[str, str] | None:
    """Return delta-rs' storage options for a table, or None for a folder."""
    store = find_store(path)
    return None if store is None else dict(store.for_delta)


def _is_torn_listing(error: BaseException) -> bool:
    return isinstance(error, DeltaError) and "found gap" in str(error)


# A folder is not listed at one moment: the commit that comes meanwhile may be missing and the one after it be there. With 15 000
# commits and five more each second this happened every few minutes (delta-rs 1.x, 2026-11-26).
_with_whole_listing = retry(
    retry=retry_if_exception(_is_torn_listing),
    stop=stop_after_attempt(6),
    wait=wait_random_exponential(multiplier=0.02, max=0.3),
    reraise=True,
)


@_with_whole_listing
def _load(path: str, options: dict[str, str] | None) -> DeltaTable:
    return DeltaTable(path, storage_options=options)


@_with_whole_listing
def update_table(table: DeltaTable) -> None:
    table.update_incremental()


def open_table(path: str) -> DeltaTable:
    """Open the newest version of a table, and rename log checkpoints and commits that a power cut broke."""
    options = store_options(path)
    try:
        return _load(path, options)
    except TableNotFoundError:
        raise
    except DeltaError:
        if options is not None or not _put_aside(Path(path, "_delta_log")):
            raise
    table = DeltaTable(path)
    # Without it each reader would read all commits since the log checkpoint before.
    table.create_checkpoint()
    return table


def commit_name(version: int) -> str:
    return f"{version:020}.json"


def read_commit(log_folder: Folder, version: int) -> str | None:
    """Return a commit's text from the folder of a log, or None if it does not exist or was cleaned up."""
    try:
        return log_folder.read(commit_name(version))
    except FileNotFoundError:
        return None


def flush_commits(path: str, versions: Iterable[int]) -> None:
    """Flush commits of a table in a folder to the disk, because delta-rs does not."""
    for version in versions:
        # Maintenance may have deleted any of them by now.
        with suppress(FileNotFoundError):
            flush_files(f"{path}/_delta_log", [commit_name(version)])


def broken_checkpoints(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the unreadable log checkpoints of a table, each with its fault."""
    for file in sorted(folder.glob("*.checkpoint*.parquet")):
        try:
            pq.read_metadata(file)
        except (OSError, pa.ArrowInvalid):
            yield file, "a log checkpoint that cannot be read"


def broken_commits(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the empty or truncated commits among files of a log, each with its fault."""
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            is_whole = bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
        except ValueError:
            is_whole = False
        if not is_whole:
            yield file, "an empty commit" if not file.stat().st_size else "a truncated commit"


def _put_aside(folder: Path) -> bool:
    """Rename the broken files of a log, and return whether there were any."""
    # An empty commit changes nothing, so it stays.
    commits = (one for one in broken_commits(sorted(folder.glob("*.json"))) if one[0].stat().st_size)
    found = [*broken_checkpoints(folder), *commits]
    for file, why in found:
        log.warning("lake.log_broken file=%s why=%s", file, why)
        file.replace(file.with_name(f"{file.name}{_BROKEN}"))
        if file.suffix == ".json":
            # Later versions stay valid, because an empty commit changes nothing.
            file.touch()
    if found:
        # The file names a log checkpoint that may be gone; without it readers list the log.
        (folder / "_last_checkpoint").unlink(missing_ok=True)
    return bool(found)
