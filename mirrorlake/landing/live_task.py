"""Land by a long-lived Spark task: consumer -> Parquet files -> the relay's commit, several times a second.

    claim             a number of its own, so that no older lander writes after it (`lake/fenced_writer.py`)
    for each turn:
        fetch · are topics and leaders the same? · files · commit

A commit carries what was read past its last records (`lake/landing_progress.py`), and nothing is written before it. The next
start resumes from the relay or from its commits, whichever is further (law F). Topics are described after the fetch: an
unchanged topic id proves that the fetched records are of that incarnation. A new topic, new partitions or another leader end
the task; the lander compares again, and starts another.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import LanderReplaced
from mirrorlake.kafka import ClusterAdmin, Fetched, Fetcher, PositionGone, TopicState, UnreadableHeaders
from mirrorlake.lake import (
    LandingCommit,
    LandingLog,
    ReadProgress,
    RelayClaim,
    UncompressedBudget,
    WrittenFile,
    batch_time,
    land_rows,
    write_files,
)
from mirrorlake.landing.watermarks import WatermarkWatch
from mirrorlake.model.chunk_size import ChunkSize
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.progress import log_context
from mirrorlake.runtime import BacklogMemory, RunMarker, TaskResult

log = logging.getLogger(__name__)

# Kinds of results of a task that ends by itself.
CHANGED, ELECTED, UNREADABLE, DRAINED = "changed", "elected", "unreadable", "drained"
# A turn of a backlog takes more, so that files are larger: up to 64 MiB, of which a task holds about three copies.
_BACKLOG_S, BACKLOG_BYTES = 2.0, 64 << 20
# How long a turn waits for a first record before it checks whether it should stop.
_IDLE_TIMEOUT_S = 0.1
# Where nobody says how often, turns of a trickle take a tenth of a core: of few partitions one costs 2 to 5 ms, of 1 000 20 to 40.
_CPU_SHARE, _MAX_GATHER_S = 0.1, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LandTaskSpec:
    """What a task needs to land one source.

    `read_to` also has partitions that this task does not land. `ends` are where a drain ends; None lands until the task is asked to
    end. `landed` is the newest batch of the relay, as the number of its claim and its own, and `landed_until` its time: later batches
    get later times. `marks` is the folder for this task's marks (`LandedMark`), or "" for none. `pace_s` are the least seconds
    between the starts of two turns; with `follows_cpu` turns that cost much CPU start further apart.
    """

    relay_claim: RelayClaim
    schema: pa.Schema
    options: Mapping[str, Any] = field(repr=False)
    start: Mapping[SourcePartition, int]
    read_to: Mapping[SourcePartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] | None = None
    landed: tuple[int, int] | None = None
    landed_until: datetime | None = None
    marks: str = ""
    leaderless: frozenset[TopicPartition] = frozenset()
    pace_s: float
    follows_cpu: bool = False
    max_records: int = 2_000_000
    max_bytes: int = BACKLOG_BYTES
    groups: int = 1
    run_marker: RunMarker

    def covers(self, topics: Mapping[str, TopicState]) -> bool:
        landed: dict[str, set[int]] = {name: set() for name in self.topic_ids}
        for source in self.start:
            landed[source.topic].add(source.partition)
        return topics.keys() == self.topic_ids.keys() and all(
            state.topic_id == self.topic_ids[name]
            and set(range(state.partitions)) - state.leaderless <= landed[name] <= set(range(state.partitions))
            for name, state in topics.items()
        )

    def pace_after(self, cpu_s: float) -> float:
        """Return the seconds from the start of a turn that took so much CPU to the start of the next one."""
        return max(self.pace_s, min(cpu_s / _CPU_SHARE, _MAX_GATHER_S)) if self.follows_cpu else self.pace_s

    def waits_for_leader(self, topics: Mapping[str, TopicState]) -> bool:
        """Return whether a drain cannot end because a partition has no leader."""
        return self.ends is not None and any(
            source.partition in topics[source.topic].leaderless for source in self.start
        )


class _TaskEnd(Exception):
    """End a task early; `kind` is its result's kind."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def run_landing_task(task: LandTaskSpec) -> Iterator[TaskResult]:
    """Land until the task is asked to end, has reached its ends, or the source has changed."""
    with log_context(source=task.relay_claim.alias):
        try:
            if _land(task):
                yield TaskResult(DRAINED)
        except _TaskEnd as end:
            yield TaskResult(end.kind, str(end).encode())
        except PositionGone as error:
            yield TaskResult(CHANGED, str(error).encode())
        except UnreadableHeaders as error:
            yield TaskResult(UNREADABLE, str(error).encode())


def _land(task: LandTaskSpec) -> bool:
    """Land turn by turn. Return whether a drain reached all ends."""
    turns, admin = _TurnWriter(task), ClusterAdmin(task.relay_claim.alias, task.options)
    start = {source.tp: offset for source, offset in task.start.items()}
    gather_s, memory, size = 0.0, BacklogMemory(), ChunkSize(task.max_bytes)
    wait_s, most = max(_IDLE_TIMEOUT_S, task.pace_s), task.max_records
    log.info(
        "land.live partitions=%s number=%s group=%s/%s",
        len(start),
        task.relay_claim.number,
        task.relay_claim.group,
        task.groups,
    )
    left = None if task.ends is None else {tp: end for tp, end in task.ends.items() if start[tp] < end}
    with Fetcher(task.relay_claim.alias, task.options, start) as fetcher, WatermarkWatch(task) as watch:
        while task.run_marker.exists() and (left is None or left):
            cpu_s = time.thread_time()
            fetched = fetcher.fetch(gather_s, wait_s=wait_s, max_s=_BACKLOG_S, max_bytes=size.limit, max_records=most)
            began, records = time.monotonic(), fetched.rows.count
            if fetched.read_to and (why := _find_change(task, admin, fetched)):
                raise _TaskEnd(CHANGED, why)
            signed, written = turns.land(fetched)
            if fetched.read_to:
                # A slow lake, such as a distant store, gets a backlog in files that each take a few seconds.
                size.record_success(written, seconds=time.monotonic() - began)
                watch.landed(None if signed is None else (signed.checkpoint, signed.batch), fetched.read_to)
                log.debug("land.batch batch=%s records=%s read_to=%s", turns.batch, records, fetched.read_to)
                left = left and {tp: end for tp, end in left.items() if fetched.read_to.get(tp, 0) < end}
            elif watch.has_other_leaders:
                raise _TaskEnd(ELECTED, "partitions without new records have other leaders")
            memory.record_turn(records)
            # The first record after a silence is landed at once; later ones are gathered for one interval.
            pace_s = task.pace_after(time.thread_time() - cpu_s) if fetched.read_to else 0.0
            gather_s = max(0.0, pace_s - (time.monotonic() - began))
    turns.finish()
    return left is not None and not left


class _TurnWriter:
    def __init__(self, task: LandTaskSpec) -> None:
        self._task = task
        self._relay = LandingLog(task.relay_claim)
        if self._relay.has_begun:
            # Spark restarted a task that died: its predecessor landed past this one's start.
            raise _TaskEnd(CHANGED, "the task died")
        self._sources = {source.tp: source for source in task.start}
        self._progress = ReadProgress({**task.read_to, **task.start}, is_shared=task.groups > 1)
        self._budget = UncompressedBudget(task.relay_claim.path, sharers=task.groups)
        self._landed_until = task.landed_until
        self.batch = 0

    def land(self, fetched: Fetched) -> tuple[LandingCommit | None, int]:
        """Land the records of one fetch. Return the commit, and the size of the records in memory."""
        files, task = list[WrittenFile](), self._task
        partitions, counts, rows = fetched.rows.concatenate()
        sources = [self._sources[tp] for tp in partitions]
        if fetched.read_to:
            read_to = {self._sources[tp]: at for tp, at in fetched.read_to.items()}
            self._progress.read(read_to, _ends(sources, counts, rows))
        if sources:
            self._landed_until = batch_time(datetime.now(timezone.utc), self._landed_until)
            batches, uncompressed = (
                land_rows(task.schema, sources, counts, rows, self._landed_until),
                self._budget.allows_more(),
            )
            files = list(write_files(task.relay_claim.path, task.schema, batches, uncompressed=uncompressed))
            crash_point("land.file_written")
            self._budget.spend(sum(file.size for file in files) if uncompressed else 0)
        signed = self._commit(files) if files or self._progress.is_due else None
        return signed, sum(file.raw_bytes for file in files)

    def finish(self) -> None:
        if self._progress.is_pending:
            # A newer lander reads the same control records again.
            with suppress(LanderReplaced, _TaskEnd):
                self._commit([])

    def _commit(self, files: Sequence[WrittenFile]) -> LandingCommit:
        self.batch += 1
        read_to, is_whole = self._progress.take()
        try:
            signed = self._relay.append(files, self.batch, self._landed_until, read_to, is_whole=is_whole)
        except LanderReplaced as error:
            if not self._relay.is_newest:
                raise
            # Spark restarted this task while its first attempt still runs; both have one number.
            raise _TaskEnd(CHANGED, "another attempt of the task lands, too") from error
        self._landed_until = signed.landed_at or self._landed_until
        return signed


def _ends(sources: Sequence[SourcePartition], counts: Sequence[int], rows: pa.Table) -> dict[SourcePartition, int]:
    """Return the offset after the last record of each source partition."""
    last = rows["offset"].take(pa.array(np.cumsum(counts, dtype=np.int64) - 1)).to_pylist()
    return {source: offset + 1 for source, offset in zip(sources, last, strict=True)}


def _find_change(task: LandTaskSpec, admin: ClusterAdmin, fetched: Fetched) -> str:
    """Return why the task must stop, or "" if topics and leaders are unchanged.

    Leader epochs only grow along a log, and a leader truncates it in a new epoch. If a record was written in the epoch of the
    start or an earlier one, no record before it was replaced since. Partitions with newer epochs are compared by a request.
    """
    topics = {tp.topic for tp in fetched.read_to}
    states = admin.describe(topics)
    for topic in sorted(topics):
        if topic not in states or states[topic].topic_id != task.topic_ids[topic]:
            return f"topic {topic} was deleted or created again"
    unsure = [tp for tp in fetched.read_to if not 0 <= fetched.epochs.get(tp, -1) <= task.leader_epochs.get(tp, -1)]
    for tp, (_, epoch) in admin.high_watermarks_and_epochs(unsure).items() if unsure else ():
        if epoch != task.leader_epochs.get(tp, -1):
            return f"{tp.topic}-{tp.partition} has another leader"
    return ""
