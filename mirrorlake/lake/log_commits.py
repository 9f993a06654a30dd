"""Write a commit of a table's log, with tags that delta-rs cannot write.

Law F (repeatable): a file of the log is made whole or not at all, and only where there is none of that number (a hard link, as
delta-rs does it). Who writes one has read what came before it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from mirrorlake.lake.file_spans import TAG
from mirrorlake.lake.opening import commit_name
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.runtime import flush, flush_folder

# Commits from one log checkpoint of a relay to the next.
CHECKPOINT_EVERY = 100
# A writer that knows of nothing else may append by the rules above: no generated columns, row ids or commit times of their own.
_PLAIN_FEATURES = frozenset({"appendOnly", "invariants"})


def is_plain(reader: int, writer: int, features: Sequence[str]) -> bool:
    """Tell by a table's protocol whether this module may append to it."""
    return reader == 1 and (writer <= 2 or (writer == 7 and _PLAIN_FEATURES.issuperset(features)))


def is_plain_table(table: DeltaTable) -> bool:
    """Tell whether this module may append to a table that was read."""
    protocol = table.protocol()
    return is_plain(protocol.min_reader_version, protocol.min_writer_version, protocol.writer_features or ())


def append_text(files: Sequence[WrittenFile], transactions: Mapping[str, int], signature: str) -> str:
    """Return the commit that adds files under application transactions; `signature` is its user metadata."""
    return "".join(f"{json.dumps(action)}\n" for action in _actions(files, transactions, signature))


def _actions(files: Sequence[WrittenFile], transactions: Mapping[str, int], signature: str) -> Iterator[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    yield {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "isBlindAppend": True,
            "engineInfo": "mirrorlake",
            "userMetadata": signature,
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
                "tags": {TAG: file.spans},
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
