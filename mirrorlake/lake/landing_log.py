"""Commit a live lander's batches by writing the next file of the relay's log: 0.5 ms of CPU, however large the table is.

A Delta commit that only adds files needs the number of the newest version, and what has come since the last look. delta-rs
keeps every file of the table in memory and rebuilds that at each commit: 12 ms of CPU at 10 files, 99 ms at 25 000, which is
an hour of four partitions. It still reads the table at the start, and writes the log checkpoints.

Law F (repeatable): a file of the log is made whole or not at all, and only where there is none of that number (a hard link, as
delta-rs does it). What has come in between is read first: a newer claim, or a transaction of this application that is as new,
and nothing is written (Delta protocol, conflict resolution of blind appends). A table of another protocol than ours, and one on
an object store, which has no hard links but delta-rs' conditional put, is left to delta-rs.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from mirrorlake.errors import StoreError
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY, CLAIM, Seat, Signed, app_id, replaced, txn_version
from mirrorlake.lake.log_commits import CHECKPOINT_EVERY, append_text, is_plain, put_commit
from mirrorlake.lake.opening import open_table
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import flush_files

log = logging.getLogger(__name__)

# Each attempt that fails is another writer's commit that came first: upkeep makes a few a minute.
_ATTEMPTS = 100
_SIGNED_AMONG = 10


class LandingLog:
    """Append batches to a relay from a seat, or follow what a task appends from there; each process makes its own."""

    _version: int
    _number: int
    _done: int
    _is_plain: bool
    _landed_at: datetime | None
    _newest: Signed | None = None

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._app = app_id(seat.alias)
        self._is_stored = ":/" in seat.path
        self._folder = Path(seat.path, "_delta_log")
        self._tables = FolderTables()
        self._checkpointing = threading.Thread()
        self._load()

    @property
    def has_begun(self) -> bool:
        """Tell whether batches were landed under this number before: a number is good for one run of one task."""
        return self._done > txn_version(self._seat.number, CLAIM)

    @property
    def is_newest(self) -> bool:
        """Tell whether the number is the relay's newest, as last read: another one with it is an attempt of the same task."""
        claimed = txn_version(self._seat.number + 1, CLAIM)
        return self._number == self._seat.number and self._done < claimed

    def newest_landed_at(self) -> datetime | None:
        """Return the time of the newest batch in the relay; None where the newest commits name none.

        Raises:
            LanderReplaced: another lander has taken the relay over.
        """
        self._follow()
        self._require(txn_version(self._seat.number + 1, CLAIM))
        if self._is_stored:
            return _newest(self._tables.history(self._seat.path, _SIGNED_AMONG))
        return self._landed_at

    def append(
        self,
        files: Sequence[WrittenFile],
        batch: int,
        landed_at: datetime | None,
        read_to: Mapping[SourcePartition, int] | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        """Commit the files of a batch, and how far the source was read: of all partitions with `is_whole`.

        `landed_at` is the time of the newest batch with records: of this one, where it has files.

        Raises:
            LanderReplaced: another lander has taken the relay over, and nothing was written.
        """
        seat = self._seat
        as_of = self._version if is_whole else None
        version, signed = (
            txn_version(seat.number, batch),
            Signed(seat.number, batch, seat.owner, landed_at, read_to, as_of),
        )
        flush_files(seat.path, [file.path for file in files])
        text = append_text(files, app_id=self._app, version=version, signature=signed.to_text())
        for _ in range(_ATTEMPTS):
            self._follow()
            self._require(version)
            if not self._is_plain:
                self._leave_to_delta_rs(files, version, signed)
                break
            if put_commit(self._folder, self._version + 1, text):
                self._version, self._done = self._version + 1, version
                break
        else:
            raise StoreError(
                f"the relay of {seat.alias} has other writers that commit without a pause",
                consequence="the batch was not landed; the next start lands it",
                remedy="mirrorlake doctor",
                alias=seat.alias,
            )
        self._follow()
        self._require(version + 1)
        is_due = self._version % CHECKPOINT_EVERY == 0 and not self._is_stored
        # delta-rs makes those of its own commits.
        if is_due and not self._checkpointing.is_alive():
            # A large table's takes a second of CPU: records need not wait for it. A process that ends waits: delta-rs does not
            # survive the end of the interpreter around it.
            self._checkpointing = threading.Thread(target=_checkpoint, args=(seat.path,), name="log checkpoint")
            self._checkpointing.start()

    def _require(self, version: int) -> None:
        """Check that this seat's number is the newest, and that what it writes next is new."""
        if self._number != self._seat.number or self._done >= version:
            raise replaced(self._seat.alias, self._newest)

    def _load(self) -> None:
        """Read all of the newest version."""
        if self._is_stored:
            self._version, configuration, done = self._tables.standing(self._seat.path, self._app)
            self._number, self._done, self._is_plain = _number(configuration), done or -1, False
            return
        table = open_table(self._seat.path)
        self._version = table.version()
        self._number = _number(table.metadata().configuration)
        self._done = table.transaction_version(self._app) or -1
        self._landed_at = _newest(table.history(_SIGNED_AMONG))
        protocol = table.protocol()
        self._is_plain = is_plain(
            protocol.min_reader_version, protocol.min_writer_version, protocol.writer_features or ()
        )

    def _follow(self) -> None:
        """Read what has come since the last look."""
        if self._is_stored:
            self._load()
            return
        if not self._file(self._version).exists():
            # The log was cleaned up while this slept: the file after it might fill a hole in the past.
            self._load()
        while (text := self._commit(self._version + 1)) is not None:
            self._version += 1
            for action in map(json.loads, text.splitlines()):
                if "txn" in action and action["txn"]["appId"] == self._app:
                    self._done = max(self._done, int(action["txn"]["version"]))
                elif "commitInfo" in action and (signed := _signed(action["commitInfo"])):
                    self._newest, self._landed_at = signed, signed.landed_at or self._landed_at
                elif "metaData" in action:
                    self._number = _number(action["metaData"].get("configuration", {}))
                elif "protocol" in action:
                    protocol = action["protocol"]
                    self._is_plain = is_plain(
                        protocol["minReaderVersion"], protocol["minWriterVersion"], protocol.get("writerFeatures") or ()
                    )

    def _leave_to_delta_rs(self, files: Sequence[WrittenFile], version: int, signed: Signed) -> None:
        self._tables.commit(self._seat.path, files, app_id=self._app, version=version, signature=signed.to_text())
        self._load()
        if self._done == version:
            return
        raise replaced(self._seat.alias)

    def _commit(self, version: int) -> str | None:
        try:
            return self._file(version).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _file(self, version: int) -> Path:
        return self._folder / f"{version:020}.json"


def _signed(commit: dict[str, Any]) -> Signed | None:
    try:
        found = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return None
    return Signed.from_document(found) if isinstance(found, dict) else None


def _newest(commits: Iterable[dict[str, Any]]) -> datetime | None:
    """Return the time of the newest batch among commits, newest first."""
    signed = map(_signed, commits)
    return next((one.landed_at for one in signed if one and one.landed_at), None)


def _number(configuration: dict[str, Any]) -> int:
    return int(configuration.get(CHECKPOINT_PROPERTY, "0"))


def _checkpoint(path: str) -> None:
    try:
        table = open_table(path)
        table.create_checkpoint()
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        # Readers read more files of the log until the next one, or upkeep's.
        log.info("land.no_log_checkpoint path=%s why=%s", path, error)
