"""Take a flow over: fence every older republisher, learn where the lanes stand, repair the copy of the ledger.

Law F: the ledger is the truth and `offset_map` its copy; runs that a crash kept from the table are read again here.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import functions as F

from mirrorlake.errors import ClusterError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane import LaneSender, LaneTask
from mirrorlake.kafka.ledger import LedgerReader, ledger_spec
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import OFFSET_MAP

log = logging.getLogger(__name__)

MAP_APP = "mirrorlake.map"


@dataclass(slots=True, kw_only=True)
class Ownership:
    """What the owner of a flow knows of its lanes."""

    epoch: int
    owner: str
    lanes: int
    checkpoint: int
    batch: int
    positions: dict[SourcePartition, int]
    seqs: dict[int, int] = field(default_factory=dict)


def read_lanes(reader: LedgerReader, admin: ClusterAdmin, topic: str) -> dict[int, LedgerRecord | None]:
    """Return the last record of every lane that the ledger has; an absent ledger has none."""
    state = admin.describe([topic]).get(topic)
    return {lane: reader.last(lane) for lane in range(state.partitions if state else 0)}


def merged_positions(last: Mapping[int, LedgerRecord | None]) -> dict[SourcePartition, int]:
    """Return the furthest position of each source partition over all lanes.

    A partition changes its lane when the number of lanes is changed; its position only ever grows, so the furthest is
    the newest.
    """
    positions: dict[SourcePartition, int] = {}
    for record in last.values():
        for source, offset in (record.positions if record else {}).items():
            positions[source] = max(positions.get(source, 0), offset)
    return positions


def take_over(
    admin: ClusterAdmin,
    task: LaneTask,
    *,
    check: Callable[[Mapping[int, LedgerRecord | None]], None],
    choose_checkpoint: Callable[[int, int], int],
    restored: Mapping[SourcePartition, int],
    held: Mapping[int, int],
) -> Ownership:
    """Fence every lane of the flow, then write one ledger record a lane that names the new owner.

    Args:
        admin: the target.
        task: the lane task of this owner; its lane, epoch and owner are filled in here.
        check: is shown the last record of every lane; it may raise to refuse.
        choose_checkpoint: is told the number of the checkpoint location in use (0: none yet) and the last batch known
            from it (-1: none), and returns the number to use from now on; it may raise to refuse.
        restored: positions to set out from where the ledger was lost, from the offset map; empty otherwise.
        held: newest ledger record of each lane that the offset map holds.

    Raises:
        LaneFenced: another republisher started at the same moment.
    """
    topic = ledger_topic(task.flow)
    state = admin.describe([topic]).get(topic)
    if state is None:
        admin.create(ledger_spec(topic, task.lanes))
    elif state.partitions < task.lanes:
        admin.grow(topic, task.lanes)
    lanes = range(max(task.lanes, state.partitions if state else 0))
    owner = str(uuid.uuid4())
    now = datetime.now(timezone.utc)
    # As high as it gets, so that nobody's record stops us from fencing; the true epoch is known after reading.
    senders = {lane: LaneSender(replace(task, lane=lane, owner=owner, epoch=2**53)) for lane in lanes}
    try:
        with ThreadPoolExecutor(max_workers=8) as pool:
            last = dict(zip(senders, pool.map(LaneSender.open, senders.values()), strict=True))
        check(last)
        # Seconds since 1970 where the ledger knows nothing later: epochs grow even over a ledger that was lost, and the
        # table's transaction versions, which are made of them, with them.
        epoch = max([int(now.timestamp()), *(record.epoch + 1 for record in last.values() if record)])
        used = max((record.checkpoint for record in last.values() if record), default=0)
        batch = max((r.batch for r in last.values() if r and r.checkpoint == used), default=-1)
        checkpoint = choose_checkpoint(used, batch)
        positions = {**merged_positions(last), **restored}
        ownership = Ownership(
            epoch=epoch,
            owner=owner,
            lanes=task.lanes,
            checkpoint=checkpoint,
            batch=batch if checkpoint == used else -1,
            positions=positions,
        )
        for lane, sender in senders.items():
            before = last[lane]
            record = LedgerRecord(
                flow=task.flow,
                lane=lane,
                lanes=task.lanes,
                epoch=epoch,
                owner=owner,
                seq=max(before.seq if before else -1, held.get(lane, -1)) + 1,
                checkpoint=checkpoint,
                batch=ownership.batch,
                positions={
                    source: offset
                    for source, offset in positions.items()
                    if lane_of(source.topic, source.partition, lanes=task.lanes) == lane
                },
                committed_at_ms=int(now.timestamp() * 1000),
            )
            sender.claim(record)
            ownership.seqs[lane] = record.seq
    finally:
        for sender in senders.values():
            sender.close()
    log.info("republish.owner flow=%s epoch=%s owner=%s", task.flow, epoch, owner)
    return ownership


class MapCopy:
    """Keep `offset_map` equal to the ledger."""

    def __init__(self, lake: Lake, flow: str) -> None:
        self._lake = lake
        self._flow = flow
        self._epoch = 0
        self._appends = 0
        self.held: dict[int, int] = {}

    def owned_by(self, epoch: int) -> MapCopy:
        """Append under the epoch of the flow's owner from now on."""
        self._epoch = epoch
        return self

    def repair(self, reader: LedgerReader, admin: ClusterAdmin, lanes: Sequence[int]) -> int:
        """Append the runs that the table lacks; return how many.

        Ledger records below what the table then holds are deleted, never the last of a lane.
        """
        ledger = {lane: reader.since(lane, 0) for lane in lanes}
        if self._lacking(ledger):
            # An older owner may be about to append the same runs: fence it, then see what is lacking still.
            self._fence()
            self.load()
        added = self.add(self._lacking(ledger))
        keep = {
            TopicPartition(reader.topic, lane): records[-1][0] for lane, records in ledger.items() if len(records) > 1
        }
        try:
            admin.delete_records_before(keep)
        except ClusterError as error:
            # Housekeeping: a ledger that keeps more than it must is no harm, and the next owner tries again.
            log.info("ledger.not_trimmed flow=%s why=%s", self._flow, error.cause)
        return added

    def _lacking(self, ledger: Mapping[int, Sequence[tuple[int, LedgerRecord]]]) -> list[LedgerRecord]:
        return [
            record
            for lane, records in ledger.items()
            for _, record in records
            if record.runs and record.seq > self.held.get(lane, -1)
        ]

    def load(self) -> dict[int, int]:
        """Read which ledger record of each lane is the newest whose runs the table holds."""
        rows = (
            self._lake.meta(OFFSET_MAP)
            .where(F.col("flow") == self._flow)
            .groupBy("lane")
            .agg(F.max("ledger_seq").alias("seq"))
            .collect()
        )
        self.held = {row.lane: int(row.seq) for row in rows}
        return self.held

    def positions(self) -> dict[SourcePartition, int]:
        """Return the next upstream offset of each source partition as the table knows it."""
        rows = (
            self._lake.meta(OFFSET_MAP)
            .where(F.col("flow") == self._flow)
            .groupBy("source_topic", "generation", "source_partition")
            .agg(F.max("last_upstream").alias("last"))
            .collect()
        )
        return {SourcePartition(r.source_topic, r.generation, r.source_partition): int(r["last"]) + 1 for r in rows}

    def _fence(self) -> None:
        # An empty append under this epoch: what an older owner appends from now on is dropped.
        empty = self._lake.spark.createDataFrame([], schema=OFFSET_MAP.ddl)
        self._lake.append(
            empty, self._lake.meta_location(OFFSET_MAP), app_id=f"{MAP_APP}.{self._flow}", version=self._epoch * 2**32
        )

    def add(self, records: Sequence[LedgerRecord]) -> int:
        """Append the runs of ledger records; a zombie's append is dropped, because its epoch is old."""
        rows = map_rows(self._flow, records)
        if rows:
            self._appends += 1
            version = self._epoch * 2**32 + self._appends
            self._lake.append_rows(OFFSET_MAP, rows, app_id=f"{MAP_APP}.{self._flow}", version=version)
        for record in records:
            self.held[record.lane] = max(self.held.get(record.lane, -1), record.seq)
        return len(rows)


def map_rows(flow: str, records: Sequence[LedgerRecord]) -> list[tuple[Any, ...]]:
    """Return the runs of ledger records as rows of `offset_map`."""
    return [
        (
            flow,
            run.source.topic,
            run.source.generation,
            run.source.partition,
            run.first_upstream,
            run.last_upstream,
            list(run.holes),
            run.target.topic,
            run.target.partition,
            run.first_downstream,
            run.count,
            record.lane,
            record.seq,
            record.epoch,
            datetime.fromtimestamp(record.committed_at_ms / 1000, tz=timezone.utc),
        )
        for record in records
        for run in record.runs
    ]
