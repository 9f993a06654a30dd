"""Delta tables in a folder of this machine or an object store, read and appended to by delta-rs: no Spark job, and no JVM.

An append of 8 rows costs 15 to 40 ms of CPU here and 1 830 ms cold through Spark, a look-up 50 ms and 700 ms (2026-11-22).
Spark reads these appends at once, and each engine sees the application transactions of the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyarrow import fs

from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.log_commits import (
    CHECKPOINT_COMMITS,
    add_files,
    commit_attempts,
    is_plain_table,
    make_log_checkpoint,
)
from mirrorlake.lake.opening import open_table, store_options
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.lake.side_files import write_rows
from mirrorlake.lake.table_schema import TableSchema, measured_columns
from mirrorlake.runtime import flush_files, open_address, translating_store_errors

# Few values for many rows: as dictionaries DuckDB takes half the time to read and to group them.
_NAMES = ("source", "flow", "topic", "kind", "group_id", "subject", "name", "source_topic", "target_topic")
_OPTIONS = ds.ParquetReadOptions(dictionary_columns=_NAMES)
_KEEPS_LOG = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


class FolderTables:
    """Open tables by their path, and keep them open: to look for newer commits then costs 2 ms, not 13."""

    def __init__(self) -> None:
        self._open: dict[str, DeltaTable] = {}
        self._locks: dict[str, threading.RLock] = {}

    def has(self, path: str) -> bool:
        """Tell whether a folder, or a place on an attached object store, is a table."""
        if path in self._open:
            # Asked before every use: a look at the folder costs 2 us. On a store it would be a request, and who opens the
            # newest version of a table that is gone fails.
            if ":/" in path or Path(path, "_delta_log").is_dir():
                return True
            self._open.pop(path, None)
        with translating_store_errors(path):
            return bool(DeltaTable.is_deltatable(path, storage_options=store_options(path)))

    def version(self, path: str) -> int:
        """Read the newest version's number."""
        with self._newest(path) as table:
            return table.version()

    def has_version(self, path: str, version: int) -> bool:
        """Tell whether a table has a version."""
        return self.version(path) >= version

    def size(self, path: str) -> tuple[int, int]:
        """Count the files and bytes of the newest version."""
        with self._newest(path) as table:
            sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        return len(sizes), sum(sizes)

    def properties(self, path: str) -> dict[str, str]:
        """Read the table properties."""
        with self._newest(path) as table:
            return {key: str(value) for key, value in table.metadata().configuration.items()}

    def history(self, path: str, limit: int | None) -> list[dict[str, Any]]:
        """List the metadata of the newest commits, newest first, each with its `version`."""
        with self._newest(path) as table:
            return table.history(limit)

    def dataset(self, path: str, columns: Mapping[str, pa.DataType], part: RelayPart | None = None) -> Any:
        """Open the newest version, of a relay only the files that may hold a part; lacking columns are null.

        A comparison with a time must allow for the statistics' cut to milliseconds.
        """
        with self._newest(path) as table:
            held = pa.schema(table.schema().to_arrow())
            lacking = [pa.field(name, kind) for name, kind in columns.items() if name not in held.names]
            schema = pa.schema([*held, *lacking])
            filesystem, root = open_address(path) if ":/" in path else (fs.LocalFileSystem(), path)
            if part is None:
                # Through delta-rs' own file system buffers belong to Python: one that Arrow's threads release while the
                # interpreter ends aborts the process (1 of 40 commands).
                place = fs.SubTreeFileSystem(root, filesystem)
                return table.to_pyarrow_dataset(
                    schema=schema if lacking else None, filesystem=place, parquet_read_options=_OPTIONS
                )
            files = part.files(pa.table(table.get_add_actions(flatten=True)))["path"].to_pylist()
        return ds.dataset(
            [f"{root}/{unquote(file)}" for file in files], schema=schema, format="parquet", filesystem=filesystem
        )

    def files(self, path: str, part: RelayPart) -> tuple[int, pa.Table]:
        """Read the newest version of a relay, and its add actions, flattened, of files that may hold a record of a part."""
        with self._newest(path) as table:
            return table.version(), part.files(pa.table(table.get_add_actions(flatten=True)))

    def create(self, path: str, table: TableSchema) -> None:
        """Create a table where there is none."""
        fields = [
            pa.field(name, kind, metadata={"comment": table.columns[name][1]})
            for name, kind in arrow_types(table).items()
        ]
        for attempt in commit_attempts():
            # Of two that create it at the same moment, one is refused, and finds it then.
            with attempt, translating_store_errors(path, CommitFailedError):
                DeltaTable.create(
                    path,
                    pa.schema(fields),
                    mode="ignore",
                    description=table.comment,
                    configuration=dict(table.properties),
                    raise_if_key_not_exists=False,
                    storage_options=store_options(path),
                )

    def set_properties(self, path: str, values: Mapping[str, str]) -> None:
        """Set table properties in one commit."""
        for attempt in commit_attempts():
            with attempt, self._newest(path) as table:
                # A claim is two commits: the first one must not take away the record of progress that the second one repeats.
                table.alter.set_table_properties(
                    dict(values), raise_if_not_exists=False, post_commithook_properties=_KEEPS_LOG
                )

    def commit(self, path: str, files: Sequence[WrittenFile], *, app_id: str, version: int, signature: str) -> None:
        """Add files that workers wrote, as `append` adds rows; `signature` is the commit's user metadata."""
        self._add(path, lambda _: files, app_id, version, signature)

    def append(self, path: str, rows: pa.Table, *, app_id: str = "", version: int = 0) -> None:
        """Append rows; with `app_id`, a version that is not above the last one of that id is dropped.

        The version is looked up in the snapshot that the commit is then made on: of two commits at the same moment with the
        same id, the second is refused (Delta protocol, SetTransaction), and its version is looked up again.
        """

        def write(table: DeltaTable) -> Sequence[WrittenFile]:
            _add_columns(table, rows.schema)
            named = measured_columns(table.metadata().configuration)
            return [write_rows(path, rows, named)] if rows.num_rows else []

        self._add(path, write, app_id, version)

    def _add(
        self,
        path: str,
        write: Callable[[DeltaTable], Sequence[WrittenFile]],
        app_id: str,
        version: int,
        signature: str = "",
    ) -> None:
        files: Sequence[WrittenFile] | None = None
        for attempt in commit_attempts():
            with attempt, self._newest(path) as table:
                if app_id and _is_done(table, app_id, version):
                    return
                if files is None:
                    files = write(table)
                    flush_files(path, [file.path for file in files])
                seen, is_plain = table.version(), ":/" not in path and is_plain_table(table)
                transactions = {app_id: version} if app_id else {}
                given = None if is_plain else table
                add_files(path, seen, files, transactions, signature, table=given, is_next=False)
                if (seen + 1) % CHECKPOINT_COMMITS == 0:
                    # A claim is signed.
                    make_log_checkpoint(path, cleans=not signature)

    @contextmanager
    def _newest(self, path: str) -> Iterator[DeltaTable]:
        # One lock a table: an open table is not made for several threads, and commits of one process need not collide.
        with (
            self._locks.setdefault(path, threading.RLock()),
            translating_store_errors(path, CommitFailedError, TableNotFoundError),
        ):
            table = self._open.get(path)
            try:
                if table is None:
                    table = self._open[path] = open_table(path)
                else:
                    table.update_incremental()
                yield table
            except DeltaError as error:
                # What else fails may leave the open table between two versions.
                if not isinstance(error, CommitFailedError):
                    self._open.pop(path, None)
                raise


def _add_columns(table: DeltaTable, wanted: pa.Schema) -> None:
    """Add the columns that came after the release which made a table."""
    held = {field.name for field in table.schema().fields}
    if lacking := [field for field in wanted if field.name not in held]:
        table.alter.add_columns(Schema.from_arrow(pa.schema(lacking)).fields)


def _is_done(table: DeltaTable, app_id: str, version: int) -> bool:
    last = table.transaction_version(app_id)
    return last is not None and last >= version
