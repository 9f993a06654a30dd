"""Commit a live lander's batches by writing the next file of the relay's log: 0.5 ms of CPU, however large the table is.

A Delta commit that only adds files needs the newest version's number and the commits since the last read. delta-rs has every file
of the table in memory and rebuilds that at each commit: 12 ms of CPU for 10 files, 99 ms for 25 000, an hour of four partitions.
It still reads the table at the start, and writes the log checkpoints.

Law F (repeatable): a log file is created whole or not at all, and only if its number is free (a hard link, as delta-rs does it).
The commits in between are read first: after a newer claim, or a transaction of this application that is as new, nothing is written
(Delta protocol, conflict resolution of blind appends).

On an object store, which has no hard links, delta-rs commits from a table that stays open: opening it, or reading an application's
last transaction, takes a request for each commit since the last log checkpoint. delta-rs may commit only the version after the one
read last. It also commits to a table with a protocol that this module does not support.

Landing groups: tasks of one lander share its number and the application id of the source. Each of their commits has the next batch
number of that id, so that one of two simultaneous commits is written again after the other, and a claim refuses all of them. A
second id, that of the group alone, distinguishes two attempts of one task.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import StoreError
from mirrorlake.lake.landing_commits import (
    CHECKPOINT_PROPERTY,
    CLAIM,
    LandingCommit,
    RelayClaim,
    app_id,
    batch_time,
    lander_replaced_error,
    txn_version,
)
from mirrorlake.lake.log_commits import add_files, is_plain, is_plain_table, make_log_checkpoint
from mirrorlake.lake.opening import commit_name, open_table, read_commit, update_table
from mirrorlake.lake.relay_writer import WrittenFile
from mirrorlake.model.flow import SourcePartition, furthest
from mirrorlake.runtime import flush_files, open_folder, translating_store_errors
from mirrorlake.timing import timing

# An attempt fails if another writer's commit came first: maintenance makes a few a minute.
_ATTEMPTS = 100
# A log checkpoint includes files rewritten in the last hours: at ten turns a second 216 000 files, 0.3 s of CPU. The next one waits
# 100 times as long as the last one took.
_CHECKPOINT_WAITS = 100
_SIGNED_AMONG = 10


class LandingLog:
    """Append batches to a relay under a claim, or follow the commits of a task with that claim; one object a process."""

    _version: int
    _number: int
    _is_plain = False
    _landed_at: datetime | None = None
    _newest: LandingCommit | None = None
    # The last commit read of this claim's group.
    _text = ""
    # The open table from which delta-rs commits.
    _table: DeltaTable | None = None

    def __init__(self, relay_claim: RelayClaim) -> None:
        self._relay_claim = relay_claim
        self._app = app_id(relay_claim.alias)
        self._done: dict[str, int] = {}
        # The read progress of other groups, by their commits after the lander's last read up to the version `_others_to`.
        self._others: Mapping[SourcePartition, int] = {}
        self._others_to = relay_claim.as_of
        self._is_stored = ":/" in relay_claim.path
        self._log = open_folder(f"{relay_claim.path}/_delta_log")
        self._checkpointing, self._next_checkpoint = threading.Thread(), 0.0
        self._load()
        self._checkpointed = self._version

    @property
    def has_begun(self) -> bool:
        """Whether batches were landed under this number before; a number is valid for one run of one task."""
        return self._done[self._relay_claim.app] > txn_version(self._relay_claim.number, CLAIM)

    @property
    def is_newest(self) -> bool:
        """Whether the number is the relay's newest, as last read; another writer with it is an attempt of the same task."""
        return self._number == self._relay_claim.number and self._done[self._app] < self._next_claim

    @property
    def _next_claim(self) -> int:
        return txn_version(self._relay_claim.number + 1, CLAIM)

    def newest_landed_at(self) -> datetime | None:
        """Return the time of the newest batch in the relay, or None if the newest commits have none."""
        self._follow()
        self._require(self._next_claim)
        return self._landed_at

    def append(
        self,
        files: Sequence[WrittenFile],
        batch: int,
        landed_at: datetime | None,
        read_to: Mapping[SourcePartition, int] | None = None,
        *,
        is_whole: bool = False,
    ) -> LandingCommit:
        """Commit the files and read progress of a batch, with `is_whole` that of all partitions, and return the signature.

        `landed_at` is the time of the newest batch with records: of this batch, if it has files. `batch` counts the batches of this
        task. If the task is one of several, the signature's number and time follow those of all earlier commits.
        """
        seat, version = self._relay_claim, txn_version(self._relay_claim.number, batch)
        wanted = LandingCommit(seat.number, batch, seat.owner, landed_at, read_to, 0 if is_whole else None)
        flush_files(seat.path, [file.path for file in files])
        crash_point("land.files_flushed")
        signed = wanted
        for attempt in range(_ATTEMPTS):
            self._follow()
            if attempt and self._has_written(files, signed):
                # The store accepted the commit, and its answer was lost.
                break
            self._require(version)
            signed, transactions = self._sign(wanted, version, has_rows=bool(files))
            if self._put(files, transactions, signed):
                break
        else:
            raise StoreError(
                f"the relay of {seat.alias} has other writers that commit without a pause",
                consequence="the batch was not landed; the next start lands it",
                remedy="mirrorlake doctor",
                alias=seat.alias,
            )
        crash_point("land.committed")
        self._follow()
        self._require(version + 1)
        every = timing().log_checkpoint_commits
        is_due = self._version // every > self._checkpointed // every
        if is_due and not self._checkpointing.is_alive() and time.monotonic() >= self._next_checkpoint:
            self._checkpointed = self._version
            # In a thread, because a large table's takes a second of CPU, and records need not wait for it. A process waits for the
            # thread at its end, because delta-rs crashes if the interpreter ends under it.
            self._checkpointing = threading.Thread(target=self._checkpoint, name="log checkpoint")
            self._checkpointing.start()
        return signed

    def _sign(self, wanted: LandingCommit, version: int, *, has_rows: bool) -> tuple[LandingCommit, dict[str, int]]:
        """Return the signature and the transactions of a commit that follows the version read last."""
        seat, as_of = self._relay_claim, None if wanted.as_of is None else self._version
        if seat.group is None:
            return replace(wanted, as_of=as_of), {self._app: version}
        number = max(self._done[self._app], txn_version(seat.number, CLAIM)) + 1
        landed_at, read_to = self._landed_at or wanted.landed_at, wanted.read_to
        if has_rows and wanted.landed_at is not None:
            landed_at = batch_time(wanted.landed_at, self._landed_at)
        if self._others_to < self._version:
            as_of = None
        if as_of is not None and read_to is not None:
            read_to = furthest((self._others, read_to))
        batch = number - txn_version(seat.number, 0)
        signed = LandingCommit(seat.number, batch, seat.owner, landed_at, read_to, as_of, seat.group)
        return signed, {self._app: number, seat.app: version}

    def _checkpoint(self) -> None:
        began = time.monotonic()
        make_log_checkpoint(self._relay_claim.path)
        ended = time.monotonic()
        self._next_checkpoint = ended + _CHECKPOINT_WAITS * (ended - began)

    def _require(self, version: int) -> None:
        """Check that this claim's number is the newest, and that its next transaction version is new."""
        if not self.is_newest or self._done[self._relay_claim.app] >= version:
            raise lander_replaced_error(self._relay_claim.alias, self._newest)

    def _load(self) -> None:
        claim = self._relay_claim
        with translating_store_errors(claim.path, TableNotFoundError):
            table = open_table(claim.path)
            self._version = table.version()
            self._number = _number(table.metadata().configuration)
            self._done = {app: table.transaction_version(app) or -1 for app in (self._app, claim.app)}
            missed = 0 if claim.group is None else self._version - self._others_to
            self._is_plain = is_plain_table(table)
            commits = table.history(max(missed, _SIGNED_AMONG))
        self._landed_at = _newest(commits) or self._landed_at
        for commit in commits[:missed]:
            self._note_commit(_signed(commit))
        if len(commits) >= missed:
            self._others_to = self._version

    def _step(self) -> None:
        # The commit counts as read only if no earlier one was missed.
        self._others_to += self._others_to == self._version
        self._version += 1

    def _note_commit(self, signed: LandingCommit | None) -> None:
        claim = self._relay_claim
        if signed is not None and signed.checkpoint == claim.number and signed.group not in (None, claim.group):
            self._others = furthest((self._others, signed.read_to or {}))
            if self._version % timing().log_checkpoint_commits == 0:
                # The task of that group writes the log checkpoint.
                self._checkpointed = self._version

    def _follow(self) -> None:
        if not self._is_stored and not self._log.has(commit_name(self._version)):
            # The log was cleaned up while this process slept: the next number may be free again, but in the past.
            self._load()
        while (text := read_commit(self._log, self._version + 1)) is not None:
            self._step()
            for action in map(json.loads, text.splitlines()):
                if "txn" in action and (app := action["txn"]["appId"]) in self._done:
                    self._done[app] = max(self._done[app], int(action["txn"]["version"]))
                    if app == self._relay_claim.app:
                        self._text = text
                elif "commitInfo" in action and (signed := _signed(action["commitInfo"])):
                    self._newest, self._landed_at = signed, signed.landed_at or self._landed_at
                    self._note_commit(signed)
                elif "metaData" in action:
                    self._number = _number(action["metaData"].get("configuration", {}))
                elif "protocol" in action:
                    protocol = action["protocol"]
                    self._is_plain = is_plain(
                        protocol["minReaderVersion"], protocol["minWriterVersion"], protocol.get("writerFeatures") or ()
                    )

    def _has_written(self, files: Sequence[WrittenFile], signed: LandingCommit) -> bool:
        """Return whether the newest commit of this claim's group has these files and this signature."""
        return all(part in self._text for part in (json.dumps(signed.to_text()), *(file.path for file in files)))

    def _put(self, files: Sequence[WrittenFile], transactions: dict[str, int], signed: LandingCommit) -> bool:
        """Write the commit after the version read last, or return False if others came first or the answer was lost."""
        path, is_ours = self._relay_claim.path, self._is_plain and not self._is_stored
        with translating_store_errors(path, TableNotFoundError):
            try:
                table = None if is_ours else self._open()
                add_files(path, self._version, files, transactions, signed.to_text(), table=table)
            except CommitFailedError:
                self._has_more()
                return False
            except DeltaError:
                # Any other failure may leave the open table between two versions.
                self._table = None
                if not self._has_more():
                    raise
                return False
        self._step()
        self._done |= transactions
        self._landed_at = signed.landed_at or self._landed_at
        return True

    def _open(self) -> DeltaTable:
        table, self._table = self._table or open_table(self._relay_claim.path), None
        if table.version() < self._version:
            update_table(table)
        self._table = table
        if table.version() != self._version:
            # The table is newer than the version read last: delta-rs would append after an unread claim.
            raise CommitFailedError(f"{self._relay_claim.path} has other commits")
        return table

    def _has_more(self) -> bool:
        seen = self._version
        if read_commit(self._log, seen + 1) is not None:
            return True
        # The other commit was already cleaned up, or there was none.
        self._load()
        return self._version > seen


def _signed(commit: dict[str, Any]) -> LandingCommit | None:
    try:
        found = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return None
    return LandingCommit.from_document(found) if isinstance(found, dict) else None


def _newest(commits: Iterable[dict[str, Any]]) -> datetime | None:
    signed = map(_signed, commits)
    return next((one.landed_at for one in signed if one and one.landed_at), None)


def _number(configuration: dict[str, Any]) -> int:
    return int(configuration.get(CHECKPOINT_PROPERTY, "0"))
