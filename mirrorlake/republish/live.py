"""Send by long-lived Spark tasks, each with some of the flow's lanes: the relay's new commits -> transactions (DESIGN 9).

A task follows the relay's log itself and keeps its producers, so a commit of the relay is on the target 0.1 s later without a
word of the driver. The driver reads the ledger, and copies it to the lake once a second. What a task cannot decide, a source
partition whose remote topic nobody has made ready, ends the tasks: the driver sends it as a batch, and starts them again.

Law F (repeatable): what a task sends is what a batch would send, by the same sender; the ledger says where both go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mirrorlake.kafka.lane import LaneSender
from mirrorlake.lake import FolderTables, RelayFile, RelayLog
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.republish.lane_tasks import LaneWork, about_lane, batches_of_files, held_sender, send_lane
from mirrorlake.runtime import BacklogMemory, GoesOn, TaskAnswer

# What a task says when it ends by itself, with the source partitions that nobody has made ready.
UNREADY = "unready"
# To look whether the next commit is there costs 10 us.
LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWork:
    """What a task needs to follow a relay from a version of its log: its lanes, without files, of all lanes of the flow.

    `ignored` are source partitions that the flow does not carry.
    """

    lanes: tuple[LaneWork, ...]
    relay: str
    version: int
    ignored: frozenset[SourcePartition]
    goes_on: GoesOn
    pace_s: float = LOOK_EVERY_S


def follow_live(work: LiveWork) -> Iterator[TaskAnswer]:
    """Send what is committed to the relay until the task is asked to end, or meets a partition that is not ready."""
    relay = RelayLog(FolderTables(), work.relay, work.version)
    lanes = {one.task.claim.lane: one for one in work.lanes}
    senders = {}
    for lane, one in lanes.items():
        with about_lane(one.task):
            senders[lane] = held_sender(one.task)
    memory = BacklogMemory()
    while work.goes_on():
        began = time.monotonic()
        positions = {source: at for sender in senders.values() for source, at in sender.positions.items()}
        due, unready = _due(work, relay.new_files(positions), lanes, senders)
        if unready:
            yield TaskAnswer(UNREADY, json.dumps(sorted(unready)).encode())
            return
        for lane, files in due.items():
            with about_lane(lanes[lane].task):
                for _ in send_lane(senders[lane], lanes[lane], batches_of_files(files, lanes[lane].targets)):
                    if not work.goes_on():
                        return
        memory.worked(sum(file.records for files in due.values() for file in files))
        time.sleep(max(0.0, began + work.pace_s - time.monotonic()))


def _due(
    work: LiveWork, files: list[RelayFile], lanes: Mapping[int, LaneWork], senders: Mapping[int, LaneSender]
) -> tuple[dict[int, list[RelayFile]], set[tuple[str, int, int]]]:
    """Choose the files that hold something for these lanes, and the partitions that are not ready."""
    due: dict[int, list[RelayFile]] = {}
    unready: set[tuple[str, int, int]] = set()
    for file in files:
        source = file.source
        lane = lane_of(source.topic, source.partition, lanes=work.lanes[0].task.claim.lanes)
        if lane not in lanes or source in work.ignored or file.last_offset < senders[lane].positions.get(source, 0):
            continue
        if source in lanes[lane].targets:
            due.setdefault(lane, []).append(file)
        else:
            unready.add((source.topic, source.generation, source.partition))
    return due, unready
