"""Commit files to a table, by writing the log file directly, with tags that delta-rs cannot write, or by delta-rs.

Law F (repeatable): a log file is created whole or not at all, and only if its number is free (a hard link, as delta-rs does it;
on an object store, which has no links, delta-rs commits). The writer of a commit has read the ones before it.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from mirrorlake.crash_points import crash_point
from mirrorlake.lake.file_spans import TAG
from mirrorlake.lake.opening import commit_name, flush_commits, open_table, read_commit, update_table
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.runtime import flush, flush_folder, open_folder

log = logging.getLogger(__name__)

# Each of these hooks lists the whole log at each commit.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
# An always-on lander commits every 40 to 60 ms, and reading and committing takes 20 ms: one of 20 attempts succeeds.
_ATTEMPTS = 20
# With only these features a direct append is valid: no generated columns, row ids or in-commit timestamps.
_PLAIN_FEATURES = frozenset({"appendOnly", "invariants"})


class LiveFile(NamedTuple):
    """A file that the newest version names; `partition` as of `WrittenFile`."""

    path: str
    size: int
    partition: Sequence[tuple[str, str | None]] = ()


def is_plain(reader: int, writer: int, features: Sequence[str]) -> bool:
    """Return whether a table's protocol allows this module to append."""
    return reader == 1 and (writer <= 2 or (writer == 7 and _PLAIN_FEATURES.issuperset(features)))


def is_plain_table(table: DeltaTable) -> bool:
    protocol = table.protocol()
    return is_plain(protocol.min_reader_version, protocol.min_writer_version, protocol.writer_features or ())


def add_files(
    path: str,
    version: int,
    files: Sequence[WrittenFile],
    transactions: Mapping[str, int],
    signature: str = "",
    *,
    table: DeltaTable | None = None,
    is_next: bool = True,
) -> None:
    """Commit files on the disk as the version after `version`, under application transactions, and flush the commit.

    `signature` is the commit's user metadata. The files' spans go into tags, or beside the signature if delta-rs commits from
    `table`, which is open at that version. Unless `is_next`, delta-rs may commit after later versions without a conflict.
    """
    if table is None:
        if not put_commit(Path(path, "_delta_log"), version + 1, _text(_actions(files, transactions, signature))):
            raise CommitFailedError(f"version {version + 1} of {path} is another writer's")
        return
    told = {"userMetadata": signature} if signature else {}
    if spans := {file.path: file.spans for file in files if file.spans}:
        told[TAG] = json.dumps(spans)
    _transact(table, files, told, transactions, is_next=is_next)
    if ":/" not in path:
        update_table(table)
        flush_commits(path, range(version + 1, table.version() + 1))


def replace_files(
    path: str,
    table: DeltaTable,
    removed: Sequence[LiveFile],
    added: Sequence[WrittenFile],
    *,
    signature: str,
    is_change: bool,
) -> bool:
    """Replace live files of an open table in one flushed commit, and return whether all of them were still live.

    Later commits that only add files are skipped, because a log with fifty commits a second leaves no time to list the files of a
    table again, 25 us each. delta-rs accepts a commit that removes files which another commit has removed (1.6, 2026-11-22), so on
    an object store only the very next version is tried.
    """
    version, properties = table.version(), table.metadata().configuration
    is_refused = is_change and properties.get("delta.appendOnly") == "true"
    if ":/" in path or is_refused or not is_plain_table(table):
        _transact(table, added, {"userMetadata": signature}, {}, removed=removed, is_change=is_change)
        flush_commits(path, [version + 1])
        return True
    folder, gone = Path(path, "_delta_log"), {file.path for file in removed}
    log_folder = open_folder(str(folder))
    text = _text(_actions(added, {}, signature, removed, is_change=is_change))
    while not put_commit(folder, version + 1, text):
        version += 1
        if (commit := read_commit(log_folder, version)) is None:
            raise CommitFailedError(f"version {version} of {path} was cleaned up")
        for action in map(json.loads, commit.splitlines()):
            if action.get("remove", {}).get("path") in gone:
                return False
            if "metaData" in action or "protocol" in action:
                raise CommitFailedError(f"version {version} of {path} has other properties")
    return True


def _transact(
    table: DeltaTable,
    files: Sequence[WrittenFile],
    metadata: dict[str, str],
    transactions: Mapping[str, int],
    *,
    removed: Sequence[LiveFile] = (),
    is_change: bool = True,
    is_next: bool = True,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    crash_point("commit.prepared")
    table.create_write_transaction(
        [
            *(RemoveAction(file.path, is_change, now_ms, file.size, dict(file.partition)) for file in removed),
            *(AddAction(file.path, file.size, dict(file.partition), now_ms, is_change, file.stats) for file in files),
        ],
        "append",
        table.schema(),
        commit_properties=CommitProperties(
            custom_metadata=metadata,
            max_commit_retries=0 if is_next else None,
            app_transactions=[Transaction(app_id, number) for app_id, number in transactions.items()],
        ),
        post_commithook_properties=NO_HOOKS,
    )
    crash_point("commit.made")


def commit_attempts() -> Retrying:
    """Return a policy that retries after another commit came first, and raises the last such error."""
    return Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        reraise=True,
    )


def make_log_checkpoint(path: str, *, cleans: bool = True) -> None:
    """Write a log checkpoint of a table's newest version, and delete the expired commits before it."""
    try:
        table = open_table(path)
        table.create_checkpoint()
        if cleans:
            table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        # Readers read more log files until the next log checkpoint, or that of maintenance.
        log.info("land.no_log_checkpoint path=%s why=%s", path, error)


def _text(actions: Iterable[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(action)}\n" for action in actions)


def _actions(
    files: Sequence[WrittenFile],
    transactions: Mapping[str, int],
    signature: str,
    removed: Sequence[LiveFile] = (),
    *,
    is_change: bool = True,
) -> Iterator[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    yield {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "isBlindAppend": not removed,
            "engineInfo": "mirrorlake",
            **({"userMetadata": signature} if signature else {}),
        }
    }
    for old in removed:
        yield {
            "remove": {
                "path": old.path,
                "deletionTimestamp": now_ms,
                "dataChange": is_change,
                "extendedFileMetadata": True,
                "partitionValues": dict(old.partition),
                "size": old.size,
            }
        }
    for file in files:
        yield {
            "add": {
                "path": file.path,
                "partitionValues": dict(file.partition),
                "size": file.size,
                "modificationTime": now_ms,
                "dataChange": is_change,
                "stats": file.stats,
                **({"tags": {TAG: file.spans}} if file.spans else {}),
            }
        }
    for app_id, version in transactions.items():
        yield {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def put_commit(folder: Path, version: int, text: str) -> bool:
    """Create the log file of a version, or return False if it exists."""
    # Readers skip names that begin with a dot.
    waiting = folder / f".{uuid.uuid4()}.json.tmp"
    try:
        waiting.write_text(text, encoding="utf-8")
        flush(str(waiting))
        crash_point("commit.prepared")
        os.link(waiting, folder / commit_name(version))
        crash_point("commit.made")
        flush_folder(str(folder))
    except FileExistsError:
        return False
    finally:
        waiting.unlink(missing_ok=True)
    return True
