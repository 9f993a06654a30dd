"""Commit files to a table: by a file of its log that is written here, with tags that delta-rs cannot write, or by delta-rs.

Law F (repeatable): a file of the log is made whole or not at all, and only where there is none of that number (a hard link, as
delta-rs does it; an object store, which has no links, is left to delta-rs). Who writes one has read what came before it.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from mirrorlake.lake.file_spans import TAG
from mirrorlake.lake.opening import commit_name, flush_commits, open_table
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.runtime import flush, flush_folder

log = logging.getLogger(__name__)

# Commits from one log checkpoint of a table to the next.
CHECKPOINT_EVERY = 100
# Either lists all of the log at each commit.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
# Always on, a commit comes every 40 to 60 ms, and a look with a commit after it takes 20 ms: of 20 attempts one wins.
_ATTEMPTS = 20
# A writer that knows of nothing else may append by the rules above: no generated columns, row ids or commit times of their own.
_PLAIN_FEATURES = frozenset({"appendOnly", "invariants"})


def is_plain(reader: int, writer: int, features: Sequence[str]) -> bool:
    """Tell by a table's protocol whether this module may append to it."""
    return reader == 1 and (writer <= 2 or (writer == 7 and _PLAIN_FEATURES.issuperset(features)))


def is_plain_table(table: DeltaTable) -> bool:
    """Tell whether this module may append to a table that was read."""
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
    """Commit files that are on the disk as the one after a version, under application transactions, and flush the commit.

    `signature` is its user metadata. It says which spans the files hold: in tags, or beside the signature where delta-rs makes it
    from `table`, which is open at that version; unless it has to be the next one, it follows others that are no conflict.

    Raises:
        CommitFailedError: another commit came first (delta-rs' own).
    """
    if table is None:
        text = "".join(f"{json.dumps(action)}\n" for action in _actions(files, transactions, signature))
        if not put_commit(Path(path, "_delta_log"), version + 1, text):
            raise CommitFailedError(f"version {version + 1} of {path} is another writer's")
        return
    written_at = time.time_ns() // 1_000_000
    told = {"userMetadata": signature} if signature else {}
    if spans := {file.path: file.spans for file in files if file.spans}:
        told[TAG] = json.dumps(spans)
    table.create_write_transaction(
        [AddAction(file.path, file.size, {}, written_at, True, file.stats) for file in files],
        "append",
        table.schema(),
        commit_properties=CommitProperties(
            custom_metadata=told,
            max_commit_retries=0 if is_next else None,
            app_transactions=[Transaction(app_id, number) for app_id, number in transactions.items()],
        ),
        post_commithook_properties=NO_HOOKS,
    )
    if ":/" not in path:
        table.update_incremental()
        flush_commits(path, range(version + 1, table.version() + 1))


def commit_attempts() -> Retrying:
    """Try again where another commit came first, and raise the last such error."""
    return Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        reraise=True,
    )


def make_log_checkpoint(path: str, *, cleans: bool = True) -> None:
    """Write a log checkpoint of a table's newest version, and delete the commits before it that are old enough."""
    try:
        table = open_table(path)
        table.create_checkpoint()
        if cleans:
            table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        # Readers read more files of the log until the next one, or upkeep's.
        log.info("land.no_log_checkpoint path=%s why=%s", path, error)


def _actions(files: Sequence[WrittenFile], transactions: Mapping[str, int], signature: str) -> Iterator[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    yield {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "isBlindAppend": True,
            "engineInfo": "mirrorlake",
            **({"userMetadata": signature} if signature else {}),
        }
    }
    for file in files:
        yield {
            "add": {
                "path": file.path,
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": file.stats,
                **({"tags": {TAG: file.spans}} if file.spans else {}),
            }
        }
    for app_id, version in transactions.items():
        yield {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def put_commit(folder: Path, version: int, text: str) -> bool:
    """Make a file of the log in its folder; False where there is one of that version by now."""
    # Readers skip names that begin with a dot.
    waiting = folder / f".{uuid.uuid4()}.json.tmp"
    try:
        waiting.write_text(text, encoding="utf-8")
        flush(str(waiting))
        os.link(waiting, folder / commit_name(version))
        flush_folder(str(folder))
    except FileExistsError:
        return False
    finally:
        waiting.unlink(missing_ok=True)
    return True
