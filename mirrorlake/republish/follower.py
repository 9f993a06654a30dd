"""Follow the relay's log and send: first the planned files, then each new commit, chunk by chunk.

The driver plans the files with records that the ledger lacks, as of a version of the relay. A follower that `ends` is done
after them. Any other follows the log from that version: files of later commits queue behind the older ones of their
partition, so a backfill is followed by live data without a gap (law D). A source partition without a ready remote topic ends
the follower: the driver makes the topic ready, and plans again.

Law F (repeatable): the ledger decides where a lane resumes, whatever was planned.
"""

from __future__ import annotations

import json
import time
from collections import ChainMap
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from mirrorlake.kafka.lane import Batch, LaneSender
from mirrorlake.lake import FolderTables, RelayFile, RelayLog, read_by_source
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.republish.lane_tasks import LaneAssignment, cached_sender, lane_log_context, send_lane
from mirrorlake.runtime import BacklogMemory, RunMarker, TaskResult

_ENDED = "ended"
# After a commit a follower of a folder polls for the next one this often for a while: a poll costs 10 to 20 us.
_QUICK_POLL_INTERVAL_S, _QUICK_FOR_S = 0.0025, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSpec:
    """The lanes of a follower with their planned files, as of a version of the relay's log.

    Source topics in `ignored` are not sent. A follower that `polls_quickly` polls more often for a while after a commit.
    """

    lanes: tuple[LaneAssignment, ...]
    relay: str
    version: int
    ends: bool
    ignored: frozenset[str]
    run_marker: RunMarker
    poll_interval_s: float
    polls_quickly: bool = False
    caches_producers: bool = True


class _Lane:
    def __init__(self, work: LaneAssignment, sender: LaneSender) -> None:
        self.work = work
        self.sender = sender
        self._due = list(work.files)
        self._chunks: Generator[int, None, None] | None = None
        self._begun: list[RelayFile] = []

    @property
    def has_due(self) -> bool:
        return bool(self._due) or self._chunks is not None

    def add(self, file: RelayFile) -> None:
        self._due.append(file)

    def send_chunk(self) -> int:
        if self._chunks is None:
            self._begun, self._due = self._due, []
            targets = self.work.targets
            batches = (Batch(source, targets[source], records) for source, records in read_by_source(self._begun))
            self._chunks = (record.seq for record in send_lane(self.sender, self.work, batches))
        with lane_log_context(self.work.spec):
            if next(self._chunks, None) is not None:
                return 0
        self._chunks = None
        return sum(file.records for file in self._begun)


def run_follower(work: FollowerSpec) -> Iterator[TaskResult]:
    """Send until all due files are sent, the run marker is deleted, or a partition is not ready."""
    relay, lanes = RelayLog(FolderTables(), work.relay, work.version), dict[int, _Lane]()
    try:
        for one in work.lanes:
            with lane_log_context(one.spec):
                sender = cached_sender(one.spec) if work.caches_producers else LaneSender(one.spec)
                lanes[one.spec.claim.lane] = _Lane(one, sender)
                if not work.caches_producers:
                    sender.open()
        unready = _send_all(work, relay, lanes)
        seqs = {number: lane.sender.seq for number, lane in lanes.items()}
        yield TaskResult(_ENDED, json.dumps([sorted(unready), seqs]).encode())
    finally:
        if not work.caches_producers:
            for lane in lanes.values():
                lane.sender.close()


def _send_all(work: FollowerSpec, relay: RelayLog, lanes: dict[int, _Lane]) -> set[tuple[str, int, int]]:
    memory, next_poll, quick_until = BacklogMemory(), 0.0, 0.0
    while work.run_marker.exists():
        if not work.ends and (now := time.monotonic()) >= next_poll:
            next_poll = now + (
                min(work.poll_interval_s, _QUICK_POLL_INTERVAL_S) if now < quick_until else work.poll_interval_s
            )
            # A view, because copying the positions of 10 000 partitions for each poll would cost a core.
            positions = ChainMap(*(lane.sender.positions for lane in lanes.values()))
            if unready := _assign_files(relay.new_files(positions), work, lanes):
                return unready
        busy = [lane for lane in lanes.values() if lane.has_due]
        if not busy and work.ends:
            break
        if busy and work.polls_quickly:
            quick_until = time.monotonic() + _QUICK_FOR_S
        records = 0
        for lane in busy:
            records += lane.send_chunk()
            if not work.run_marker.exists():
                break
        memory.record_turn(records)
        if not busy:
            time.sleep(max(0.0, next_poll - time.monotonic()))
    return set()


def _assign_files(files: Iterable[RelayFile], work: FollowerSpec, lanes: dict[int, _Lane]) -> set[tuple[str, int, int]]:
    """Give each lane its new files. Return the source partitions that are not ready."""
    unready: set[tuple[str, int, int]] = set()
    count = work.lanes[0].spec.claim.lanes
    for file in files:
        source = file.source
        lane = lanes.get(lane_of(source.topic, source.partition, lanes=count))
        if lane is None or source.topic in work.ignored or file.last_offset < lane.sender.positions.get(source, 0):
            continue
        if source in lane.work.targets:
            lane.add(file)
        else:
            unready.add((source.topic, source.generation, source.partition))
    return unready


def read_results(answers: Iterable[TaskResult]) -> tuple[set[SourcePartition], dict[int, int]]:
    """Return the partitions that were not ready, and each lane's last sequence number."""
    unready, seqs = set[SourcePartition](), dict[int, int]()
    for answer in answers:
        if answer.kind == _ENDED:
            partitions, reached = json.loads(answer.body)
            unready |= {SourcePartition(*key) for key in partitions}
            seqs |= {int(lane): seq for lane, seq in reached.items()}
    return unready, seqs
