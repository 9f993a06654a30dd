"""Mark, every half second, the time up to which the relay holds all records that its source had acknowledged.

A round asks the leaders for their high watermarks. What was acknowledged (`acks=all`) or committed before the request lies
below them. Once the relay holds that, nothing is missing up to the time of the request. A consumer's cached watermarks would
cost less and prove less: they carry no time, and stay when a leader is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np

from mirrorlake.kafka import SourceSilent, WatermarkReader
from mirrorlake.lake import LandedMark, LandedMarks
from mirrorlake.model.flow import TopicPartition

if TYPE_CHECKING:
    from mirrorlake.kafka import Offsets
    from mirrorlake.landing.live_task import LandTaskSpec

log = logging.getLogger(__name__)

# A round costs 2 us a partition: at most 0.005 cores from 1 000 partitions on.
_INTERVAL_S, _PARTITION_S = 0.5, 0.0005
# On an object store each mark is a paid request; samples there are written as often.
_STORE_INTERVAL_S = 30.0
# The rounds of a backlog wait long; beyond this number every other one is dropped.
_MAX_WAITING = 64
_END_S = 1.0
# How long a failed task waits for the round that tells whether its source is silent.
_SILENCE_S = 5.0
# Elections come in series, and each restart of a task compares the whole source.
_ELECTIONS_S = 10.0


class CompleteTimes:
    """Find for each partition the newest round whose high watermark is landed. Pure bookkeeping.

    Rounds have numbers from 1 on, because a clock may be set back between two of them; 0 is none.
    """

    def __init__(self, start: Offsets, epochs: Offsets) -> None:
        # The next offset to land of each partition; the lander moves it after each commit.
        self.landed = start.copy()
        self._epochs = epochs
        self._newest = np.zeros(len(start), np.int64)
        self._times: dict[int, datetime] = {}
        self._waiting: dict[int, Offsets] = {}
        self._reads = 0

    def add(self, asked_at: datetime, before: Offsets, ends: Offsets, epochs: Offsets) -> bool:
        """Add a round. Return whether a partition has another leader.

        `before` are the offsets landed when the round began. A log with another leader, or one that ends before what was
        landed, may be truncated or be another topic's, so its round proves nothing.
        """
        has_other_leader = (epochs >= 0) & (self._epochs >= 0) & (epochs != self._epochs)
        is_sound = (ends >= before) & ~has_other_leader
        self._reads += 1
        self._times[self._reads] = asked_at
        self._waiting[self._reads] = np.where(is_sound, ends, np.iinfo(np.int64).max)
        if len(self._waiting) > _MAX_WAITING:
            self._waiting = dict(list(self._waiting.items())[::2])
        return bool(has_other_leader.any())

    def find(self) -> tuple[datetime | None, dict[int, datetime | None]]:
        """Return the newest complete time of any partition, and the times of the partitions that are behind it."""
        for number, ends in self._waiting.items():
            self._newest[ends <= self.landed] = number
        newest = int(self._newest.max(initial=0))
        least = int(self._newest.min(initial=newest))
        self._waiting = {number: ends for number, ends in self._waiting.items() if number > least}
        named = {*np.unique(self._newest).tolist(), *self._waiting}
        self._times = {number: at for number, at in self._times.items() if number in named}
        late = np.flatnonzero(self._newest < newest)
        behind = {int(index): self._times.get(int(self._newest[index])) for index in late}
        return self._times.get(newest), behind


class WatermarkWatch:
    """Read the ends of a task's partitions in a thread of its own, within a `with` block."""

    def __init__(self, task: LandTaskSpec) -> None:
        self._task = task
        self._partitions = [source.tp for source in sorted(task.start)]
        self._index = {tp: number for number, tp in enumerate(self._partitions)}
        start = {source.tp: offset for source, offset in task.start.items()}
        self._times = CompleteTimes(
            np.array([start[tp] for tp in self._partitions], np.int64),
            np.array([task.leader_epochs.get(tp, -1) for tp in self._partitions], np.int64),
        )
        self._batch = task.landed
        self._answered_at: datetime | None = None
        self._silent_at: datetime | None = None
        self._leaders_differ_since: float | None = None
        self._has_ended_badly = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watermarks of {task.relay_claim.alias}", daemon=True)

    def __enter__(self) -> WatermarkWatch:
        if self._task.marks and self._partitions:
            self._thread.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._has_ended_badly = failure is not None
        self._stop.set()
        if self._thread.ident is not None:
            # A round takes longer if brokers are away; a mark that it writes later is still true.
            self._thread.join(_SILENCE_S if self._has_ended_badly else _END_S)

    @property
    def has_other_leaders(self) -> bool:
        """Whether a partition has had another leader than at the task's start for a while."""
        since = self._leaders_differ_since
        return since is not None and time.monotonic() - since > _ELECTIONS_S

    def landed(self, batch: tuple[int, int] | None, read_to: Mapping[TopicPartition, int]) -> None:
        """Count a committed turn. `batch` is its number in the relay, or None if it had no records."""
        self._batch = batch or self._batch
        for tp, offset in read_to.items():
            self._times.landed[self._index[tp]] = offset

    def _run(self) -> None:
        try:
            marks = _MarkWriter(self._task)
            with WatermarkReader(self._task.relay_claim.alias, self._task.options, self._partitions) as reader:
                wait_s = max(_INTERVAL_S, _PARTITION_S * len(self._partitions))
                while not self._stop.wait(wait_s):
                    self._read_ends(reader)
                    marks.write(self._mark())
                if self._has_ended_badly:
                    # A turn notices a dead source before the next round, and no other round follows until it is back.
                    self._read_ends(reader)
                    marks.write(self._mark())
        except Exception as error:
            # Landing goes on; without marks the possible loss follows from samples.
            log.warning("land.no_marks source=%s why=%r", self._task.relay_claim.alias, error)

    def _read_ends(self, reader: WatermarkReader) -> None:
        before, asked_at = self._times.landed.copy(), _now()
        try:
            ends, epochs = reader.read()
        except SourceSilent:
            self._silent_at = self._silent_at or _now()
            return
        if (ends >= 0).any():
            self._answered_at, self._silent_at = asked_at, None
        if self._times.add(asked_at, before, ends, epochs):
            self._leaders_differ_since = self._leaders_differ_since or time.monotonic()
        else:
            self._leaders_differ_since = None

    def _mark(self) -> LandedMark:
        complete_at, behind = self._times.find()
        return LandedMark(
            # Read after the positions, because `landed` sets it before them.
            landed=self._batch,
            complete_at=complete_at,
            behind={
                **dict.fromkeys(self._task.leaderless),
                **{self._partitions[number]: at for number, at in behind.items()},
            },
            answered_at=self._answered_at,
            silent_at=self._silent_at,
        )


class _MarkWriter:
    """Write the marks of a task that differ from the last one, on an object store only now and then."""

    def __init__(self, task: LandTaskSpec) -> None:
        claim = task.relay_claim
        self._alias = claim.alias
        self._marks = LandedMarks(task.marks, claim.number, claim.group, groups=task.groups)
        self._is_stored = ":/" in task.marks
        self._written = ""
        self._next_write = 0.0
        self._has_failed = False

    def write(self, mark: LandedMark) -> None:
        is_due = not self._is_stored or time.monotonic() >= self._next_write or mark.silent_at is not None
        if not is_due or (text := mark.to_json()) == self._written:
            return
        try:
            self._marks.write(mark)
        except OSError as error:
            if not self._has_failed:
                log.warning("land.no_marks source=%s why=%s", self._alias, error)
            self._has_failed = True
            return
        self._written, self._next_write = text, time.monotonic() + _STORE_INTERVAL_S


def _now() -> datetime:
    return datetime.now(timezone.utc)
