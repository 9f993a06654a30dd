"""Check that an object store supports the operations of a lake, and report the first that fails."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from mirrorlake.runtime import Store, describe_fault, open_address

_PROBES = "checkpoints/doctor"
# Two writers conflict in nearly every round.
_ROUNDS = 8
_PATIENCE_S = 60.0


class StoreCheck(NamedTuple):
    """The result of one operation: its name, and after a failure the problem and its fix."""

    what: str
    problem: str = ""
    fix: str = ""


def check_store(store: Store) -> Iterator[StoreCheck]:
    """Write and list a file, commit to a table by two writers at once, and delete both; stop at the first failure.

    Law F (repeatable): only the store's conditional put prevents two writers from committing the same version of a table.
    """
    address = f"{store.root}/{_PROBES}/{uuid.uuid4().hex}"
    what = "write and list"
    try:
        files, path = open_address(address)
        with files.open_output_stream(f"{path}/probe") as file:
            file.write(b"mirrorlake doctor")
        names = [one.base_name for one in files.get_file_info(fs.FileSelector(path))]
        if names != ["probe"]:
            yield StoreCheck(what, "a file that was written is not listed", "use a store that lists what it has stored")
            return
        yield StoreCheck(what)
        what = "conditional put"
        yield StoreCheck(what, *_race(store, f"{address}/table"))
        what = "delete"
        files.delete_dir(path)
        yield StoreCheck(what)
    except (OSError, DeltaError) as error:
        yield StoreCheck(what, *describe_fault(store, error))


def _race(store: Store, address: str) -> tuple[str, str]:
    """Let two writers commit at the same time, and return the problem and fix if a commit was lost, else ("", "")."""
    DeltaTable.create(address, pa.schema([("probe", pa.int64())]), storage_options=dict(store.for_delta))
    together = threading.Barrier(2, timeout=_PATIENCE_S)

    def commit(_: int) -> None:
        try:
            table = DeltaTable(address, storage_options=dict(store.for_delta))
            for _ in range(_ROUNDS):
                table.update_incremental()
                together.wait()
                table.create_write_transaction([], "append", table.schema())
        except threading.BrokenBarrierError:
            # The other writer has failed and raises its error.
            return
        except Exception:
            together.abort()
            raise

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(commit, range(2)))
    if DeltaTable(address, storage_options=dict(store.for_delta)).version() == 2 * _ROUNDS:
        return "", ""
    return (
        "the store lets a second writer overwrite the first one's commit: records would be lost",
        "use a store with conditional puts (If-None-Match on S3; Amazon's has them since 2024)",
    )
