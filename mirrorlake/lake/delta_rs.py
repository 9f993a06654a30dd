"""Delta tables in a folder of this machine or an object store, read and appended to by delta-rs: no Spark job, and no JVM.

An append of 8 rows costs 15 to 40 ms of CPU here and 1 830 ms cold through Spark, a look-up 50 ms and 700 ms (2026-11-22).
Spark reads these appends at once, and each engine sees the application transactions of the other.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.file_spans import TAG
from mirrorlake.lake.log_commits import CHECKPOINT_EVERY, append_text, is_plain_table, put_commit
from mirrorlake.lake.opening import flush_commits, open_table, options_of
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.lake.side_files import write_rows
from mirrorlake.lake.table_schema import TableSchema, measured_columns
from mirrorlake.runtime import flush_files, naming_faults, open_place

# Few values for many rows: as dictionaries DuckDB takes half the time to read and to group them.
_NAMES = ("source", "flow", "topic", "kind", "group_id", "subject", "name", "source_topic", "target_topic")
_OPTIONS = ds.ParquetReadOptions(dictionary_columns=_NAMES)
_KEEPS_LOG = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
# Either lists all of the log at each commit.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


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
        with naming_faults(path):
            return bool(DeltaTable.is_deltatable(path, storage_options=options_of(path)))

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
            filesystem, root = open_place(path) if ":/" in path else (fs.LocalFileSystem(), path)
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
        for attempt in _attempts():
            # Of two that create it at the same moment, one is refused, and finds it then.
            with attempt, naming_faults(path, CommitFailedError):
                DeltaTable.create(
                    path,
                    pa.schema(fields),
                    mode="ignore",
                    description=table.comment,
                    configuration=dict(table.properties),
                    raise_if_key_not_exists=False,
                    storage_options=options_of(path),
                )

    def set_properties(self, path: str, values: Mapping[str, str]) -> None:
        """Set table properties in one commit."""
        for attempt in _attempts():
            with attempt, self._newest(path) as table:
                # A claim is two commits: the first one must not take away the record of progress that the second one repeats.
                table.alter.set_table_properties(
                    dict(values), raise_if_not_exists=False, post_commithook_properties=_KEEPS_LOG
                )

    def commit(self, path: str, files: Sequence[WrittenFile], *, app_id: str, version: int, signature: str) -> None:
        """Add files that workers wrote, as `append` adds rows; `signature` is the commit's user metadata.

        In a folder the commit says which spans the files hold, too.
        """
        flush_files(path, [file.path for file in files])
        for attempt in _attempts():
            with attempt, self._newest(path) as table:
                if _is_done(table, app_id, version):
                    return
                if ":/" in path or not is_plain_table(table):
                    add_files(path, table, files, {app_id: version}, signature)
                    return
                text = append_text(files, {app_id: version}, signature)
                if not put_commit(Path(path, "_delta_log"), table.version() + 1, text):
                    raise CommitFailedError(f"version {table.version() + 1} of {path} is another writer's")
                table.update_incremental()
                if table.version() % CHECKPOINT_EVERY == 0:
                    table.create_checkpoint()

    def append(self, path: str, rows: pa.Table, *, app_id: str = "", version: int = 0) -> None:
        """Append rows; with `app_id`, a version that is not above the last one of that id is dropped.

        The version is looked up in the snapshot that the commit is then made on: of two commits at the same moment with the
        same id, Delta refuses the second (Delta protocol, SetTransaction), and its version is looked up again.
        """
        files: list[WrittenFile] = []
        for attempt in _attempts():
            with attempt, self._newest(path) as table:
                _add_columns(table, rows.schema)
                if app_id and _is_done(table, app_id, version):
                    return
                if rows.num_rows and not files:
                    files = [write_rows(path, rows, measured_columns(table.metadata().configuration))]
                    flush_files(path, [files[0].path])
                add_files(path, table, files, {app_id: version} if app_id else {})

    @contextmanager
    def _newest(self, path: str) -> Iterator[DeltaTable]:
        # One lock a table: an open table is not made for several threads, and commits of one process need not collide.
        with (
            self._locks.setdefault(path, threading.RLock()),
            naming_faults(path, CommitFailedError, TableNotFoundError),
        ):
            table = self._open.get(path)
            try:
                if table is None:
                    table = self._open[path] = open_table(path)
                else:
                    table.update_incremental()
                yield table
            except DeltaError:
                # What failed may have left the open table between two versions.
                self._open.pop(path, None)
                raise


def add_files(
    path: str,
    table: DeltaTable,
    files: Sequence[WrittenFile],
    transactions: Mapping[str, int],
    signature: str = "",
    *,
    is_next: bool = False,
) -> None:
    """Commit files that are on the disk under application transactions, and flush the commit.

    It follows the newest version, where what came since the table was read is no conflict; with `is_next` the version that was
    read and no other, and log checkpoints and clean-up are not left to delta-rs. The commit says which spans the files hold:
    delta-rs writes no tags.

    Raises:
        CommitFailedError: another commit that it cannot follow came first (delta-rs' own).
    """
    before, written_at = table.version(), time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, {}, written_at, True, file.stats) for file in files
    ]
    told = {"userMetadata": signature} if signature else {}
    if spans := {file.path: file.spans for file in files if file.spans}:
        told[TAG] = json.dumps(spans)
    properties = CommitProperties(
        custom_metadata=told,
        max_commit_retries=0 if is_next else None,
        app_transactions=[Transaction(app_id, version) for app_id, version in transactions.items()],
    )
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        commit_properties=properties,
        post_commithook_properties=_NO_HOOKS if is_next else None,
    )
    table.update_incremental()
    flush_commits(path, range(before + 1, table.version() + 1))


def _add_columns(table: DeltaTable, wanted: pa.Schema) -> None:
    """Add the columns that came after the release which made a table."""
    held = {field.name for field in table.schema().fields}
    if lacking := [field for field in wanted if field.name not in held]:
        table.alter.add_columns(Schema.from_arrow(pa.schema(lacking)).fields)


def _is_done(table: DeltaTable, app_id: str, version: int) -> bool:
    last = table.transaction_version(app_id)
    return last is not None and last >= version


def _attempts() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(8),
        wait=wait_random_exponential(multiplier=0.05, max=1),
        reraise=True,
    )
