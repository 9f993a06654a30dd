"""Maintain one table of a lake: live files, commits that replace some, log checkpoints, vacuum.

delta-rs 1.6 accepts a commit that removes a file which another commit has removed meanwhile: two compactors at the same time leave
every record twice, also its own `optimize.compact` (2026-11-22). So a replacement is committed only if its files are live in the
version before it (`log_commits.replace_files`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.file_spans import FileSpan, footer_spans, logged_spans
from mirrorlake.lake.log_commits import NO_HOOKS, LiveFile, commit_attempts, replace_files
from mirrorlake.lake.opening import open_table, update_table
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.lake.schema import RELAY
from mirrorlake.lake.table_schema import measured_columns
from mirrorlake.runtime import flush_files, open_address, open_folder

RELAY_ROWS = pa.schema(list(arrow_types(RELAY).items()))
_SIGNED_AMONG = 200


class TableMaintenance:
    """The maintenance of one table, with a snapshot of its own, so that no writer of this process waits for it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._table = open_table(path)

    def locate(self, name: str) -> tuple[fs.FileSystem, str]:
        if ":/" in self.path:
            return open_address(f"{self.path}/{name}")
        return fs.LocalFileSystem(), str(Path(self.path, unquote(name)))

    def uri(self, name: str) -> str:
        return f"{self.path if ':/' in self.path else Path(self.path).as_uri()}/{name}"

    def open(self, name: str) -> pa.NativeFile:
        """Open a file by its name in the log; FileNotFoundError if it is gone."""
        filesystem, path = self.locate(name)
        return filesystem.open_input_file(path)

    def list_files(self) -> list[str]:
        """List all Parquet files of the table's folder, in the log or not, by their names in the log."""
        names = self._nested_names() if self.partition_by else open_folder(self.path).names()
        return sorted(quote(name) for name in names if name.endswith(".parquet"))

    def _nested_names(self) -> Iterator[str]:
        """Yield the names of files, also of those that Spark wrote into folders of partitions."""
        filesystem, root = self.locate("")
        for one in filesystem.get_file_info(fs.FileSelector(root, recursive=True)):
            name = one.path.removeprefix(root).lstrip("/")
            if not name.startswith("_delta_log/"):
                yield name

    def delete(self, name: str) -> None:
        """Delete a file that no commit names, if it still exists."""
        filesystem, path = self.locate(name)
        with suppress(FileNotFoundError):
            filesystem.delete_file(path)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    @property
    def partition_by(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    @property
    def measured(self) -> list[str]:
        """The columns with statistics by the table's properties, or [] for all columns."""
        return measured_columns(self._table.metadata().configuration)

    def live(self) -> pa.Table:
        """Read the newest version's add actions, flattened, with their statistics."""
        update_table(self._table)
        return pa.table(self._table.get_add_actions(flatten=True))

    def least(self, column: str) -> Any:
        """Return a column's least value by the files' statistics, or None without them."""
        live = self.live()
        name = f"min.{column}"
        return pc.min(live.column(name)).as_py() if name in live.column_names else None

    def spans(self, names: Collection[str]) -> dict[str, list[FileSpan]]:
        """Read the spans of live files from the log or their footers; omit files without spans in either."""
        found = logged_spans(self.path, names)
        for name in names:
            if name not in found:
                filesystem, path = self.locate(name)
                # A file that is gone or broken is reported by its readers.
                with suppress(FileNotFoundError, pa.ArrowInvalid):
                    found[name] = footer_spans(pq.read_metadata(path, filesystem=filesystem))
        return {name: spans for name, spans in found.items() if spans}

    def replace(
        self, removed: Sequence[LiveFile], added: Sequence[WrittenFile], *, data_change: bool = False, why: str
    ) -> bool:
        """Replace files in one commit, or return False if a removed file is no longer live.

        With `data_change` the records differ from before, which an append-only table refuses.
        """
        gone = {file.path for file in removed}
        # Flushed before the commit, because the files that they replace are deleted soon.
        flush_files(self.path, [unquote(file.path) for file in added])
        signature = json.dumps({"app": "mirrorlake.maintenance", "why": why})

        def attempt() -> bool:
            update_table(self._table)
            if not gone <= set(pa.table(self._table.get_add_actions())["path"].to_pylist()):
                return False
            # `replace_files` flushes the commit: until it is on the disk, the replaced files must not be deleted.
            return replace_files(self.path, self._table, removed, added, signature=signature, is_change=data_change)

        return bool(commit_attempts()(attempt))

    def version(self) -> int:
        update_table(self._table)
        return self._table.version()

    def ensure_properties(self, properties: Mapping[str, str]) -> None:
        for attempt in commit_attempts():
            with attempt:
                update_table(self._table)
                held = self._table.metadata().configuration
                if differing := {key: value for key, value in properties.items() if held.get(key) != value}:
                    self._table.alter.set_table_properties(
                        differing, raise_if_not_exists=False, post_commithook_properties=NO_HOOKS
                    )

    def checkpoint(self, *, after: int) -> bool:
        """Write a log checkpoint if at least `after` commits came since the last one; return whether it was written."""
        update_table(self._table)
        known = -1
        with suppress(FileNotFoundError, ValueError):
            known = int(json.loads(open_folder(f"{self.path}/_delta_log").read("_last_checkpoint"))["version"])
        if self._table.version() - known < after:
            return False
        self._table.create_checkpoint()
        return True

    def clean_log(self, *, keep: timedelta, now: datetime, is_signed: bool) -> bool:
        """Delete commits of the log older than `delta.logRetentionDuration` (`keep`), up to its last log checkpoint.

        If writers record their progress in commit signatures (`is_signed`), the newest such commit must not be deleted.
        """
        update_table(self._table)
        newest = self._table.history(_SIGNED_AMONG) if is_signed else ()
        if is_signed and not any(
            _is_of_a_writer(commit.get("userMetadata")) and now - _time_of(commit) < keep for commit in newest
        ):
            return False
        self._table.cleanup_metadata()
        return True

    def vacuum(self, *, keep: timedelta, orphans: bool = False) -> int:
        """Delete files that were removed from the table before `keep`, and return their number.

        With `orphans`, also delete older files that no commit names, left by a writer that died.
        """
        update_table(self._table)
        hours = max(1, round(keep / timedelta(hours=1)))
        vacuum = partial(self._table.vacuum, retention_hours=hours, enforce_retention_duration=False, full=orphans)
        # The dry run lists a folder and commits nothing.
        return len(vacuum(dry_run=False)) if vacuum(dry_run=True) else 0


def _is_of_a_writer(signature: str | None) -> bool:
    try:
        document = json.loads(signature or "{}")
    except ValueError:
        return False
    is_ours = isinstance(document, dict) and document.get("app", "mirrorlake.maintenance") == "mirrorlake.maintenance"
    if not isinstance(document, dict) or is_ours:
        return False
    # Of a lander's commits with read progress, one with a whole record must not be deleted.
    return "as_of" in document if "read_to" in document else document.get("batch", 0) >= 0


def _time_of(commit: Mapping[str, object]) -> datetime:
    return datetime.fromtimestamp(int(str(commit["timestamp"])) / 1000, timezone.utc)
