"""How far a source was read, by the landing commits of its relay: past control records and empty ends, too.

The relay's records give its last offset. The commits record how far was read past it: each commit for its own turn, a whole record
for all partitions. A claim and every few commits carry a whole record, so that a start reads back to the newest one, and log
cleanup never deletes the last one.

Law F (repeatable): nothing is written before the commit. A start after a kill, a RESTORE or a power cut reads the relay and these
commits, and resumes at the later offset of both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from mirrorlake.lake.landing_commits import CLAIM, LandingCommit
from mirrorlake.lake.reader import LakeReader
from mirrorlake.model.flow import SourcePartition, furthest

# A start, or a status, reads back over this many commits: 100 take 5 ms (2026-11-26), on an object store as many requests.
_MIN_WHOLE_EVERY, _MAX_WHOLE_EVERY = 10, 100
# A relay that is not landed, but published to, has no whole record.
_MAX_HISTORY = 1000
# A partition takes 16 bytes of a whole record, so that it adds 0.3 kB to a commit.
_PARTITIONS_A_COMMIT = 20
# Log cleanup goes by age.
_WHOLE_INTERVAL_S = 3600.0
# The offsets of 16 partitions take no more bytes than the rest of a signature.
_FEW = 16
# Progress past control records only waits this long for a commit with records.
CARRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingHistory:
    """The newest landing commits of a relay.

    `version` is -1 without a table, `last` also a claim, and `was_restored` tells of a Delta RESTORE since. `read_to` has the
    partitions that were read past their last landed record, by commits that are in the relay. It is None if a checkpoint
    location has it, or if nothing was landed.
    """

    version: int = -1
    last: LandingCommit | None = None
    last_batch: LandingCommit | None = None
    was_restored: bool = False
    read_to: Mapping[SourcePartition, int] | None = None


def landing_history(lake: LakeReader, location: str) -> LandingHistory:
    """Read the newest landing commits of a relay, back to a batch and to a whole record."""
    last = last_batch = read_to = None
    is_whole = was_restored = False
    # The table includes commits up to `held_to`; a whole record covers all up to `told_to`.
    version = held_to = told_to = -1
    for commit in islice(lake.commits(location), _MAX_HISTORY):
        if version < 0:
            version = held_to = commit.version
        if commit.operation == "RESTORE":
            was_restored = was_restored or last_batch is None
            if commit.version <= held_to:
                held_to = commit.restored_to
        elif signed := LandingCommit.from_document(commit.signature):
            last = last or signed
            if signed.batch != CLAIM:
                last_batch = last_batch or signed
            if commit.version > held_to or is_whole or commit.version <= told_to:
                pass
            elif signed.read_to is None:
                # A commit of a query; such a claim has no read progress.
                is_whole = signed.batch != CLAIM
            else:
                read_to = furthest((read_to or {}, signed.read_to))
                if signed.as_of is not None:
                    # Only one lander has a batch's number, and its groups sign one after another. Between a claim and the version
                    # that it had read (`as_of`) others may have landed.
                    told_to = max(told_to, signed.as_of if signed.batch == CLAIM else commit.version)
        is_whole = is_whole or commit.version <= told_to
        if is_whole and last_batch is not None:
            break
    return LandingHistory(version=version, last=last, last_batch=last_batch, was_restored=was_restored, read_to=read_to)


class ReadProgress:
    """The read progress that the next commit of a lander carries.

    `start` is the next offset to read of each partition at the start. If the lander is one of several groups (`is_shared`), a
    whole record must include the commits of the others.
    """

    def __init__(self, start: Mapping[SourcePartition, int], *, is_shared: bool = False) -> None:
        self._all = dict(start)
        self._few = 0 if is_shared else _FEW
        self._moved: dict[SourcePartition, int] = {}
        self._moved_at = 0.0
        # The first commit is a whole record: a claim knows nothing of partitions that begin after it.
        self._commits, self._whole_at = 0, -_WHOLE_INTERVAL_S

    def read(self, read_to: Mapping[SourcePartition, int], rows_to: Mapping[SourcePartition, int]) -> None:
        """Record the next offsets to read after a turn; `rows_to` are those after the records of its commit."""
        self._all.update(read_to)
        if further := {source: offset for source, offset in read_to.items() if offset > rows_to.get(source, 0)}:
            self._moved_at = self._moved_at if self._moved else time.monotonic()
            self._moved |= further

    @property
    def is_pending(self) -> bool:
        """Whether uncommitted offsets without a record were read."""
        return bool(self._moved)

    @property
    def is_due(self) -> bool:
        """Whether pending progress has waited `CARRY_S` for a commit with records."""
        return self.is_pending and time.monotonic() - self._moved_at >= CARRY_S

    def take(self) -> tuple[dict[SourcePartition, int], bool]:
        """Return the next commit's offsets, and whether they are a whole record; later commits carry later progress."""
        self._commits, moved = self._commits + 1, self._moved
        self._moved = {}
        every = min(_MAX_WHOLE_EVERY, max(_MIN_WHOLE_EVERY, len(self._all) // _PARTITIONS_A_COMMIT))
        is_due = self._commits >= every or time.monotonic() - self._whole_at >= _WHOLE_INTERVAL_S
        if not (is_due or len(self._all) <= self._few):
            return moved, False
        self._commits, self._whole_at = 0, time.monotonic()
        return dict(self._all), True
