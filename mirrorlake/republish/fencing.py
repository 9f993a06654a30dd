"""Take a flow over: fence every older republisher and learn where the lanes stand."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.ledger_reader import LedgerReader, ledger_spec
from mirrorlake.kafka.lane.sender import LaneSender
from mirrorlake.kafka.lane.task import LaneTask
from mirrorlake.model.epochs import next_epoch, refuse_absurd_clock
from mirrorlake.model.flow import SourcePartition, ledger_topic
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.remotes import Remote, Settled

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class FlowClaims:
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

    A partition changes its lane when the number of lanes is changed, and a claim carries the positions of all lanes; a
    position only ever grows, so the furthest is the newest. It counts only in the remote topic in which it was reached, by
    the newest owner's claim (`model/remotes.py`).
    """
    remotes = merged_remotes(last)
    return furthest(
        {
            source: at
            for source, at in record.positions.items()
            if record.remotes.get(source.topic) == remotes.get(source.topic)
        }
        for record in last.values()
        if record
    )


def furthest(known: Iterable[Mapping[SourcePartition, int]]) -> dict[SourcePartition, int]:
    """Take the furthest position of each source partition."""
    positions: dict[SourcePartition, int] = {}
    for each in known:
        for source, offset in each.items():
            positions[source] = max(positions.get(source, 0), offset)
    return positions


def merged_remotes(last: Mapping[int, LedgerRecord | None]) -> dict[str, Remote]:
    """Return the remote topic of each source topic by the newest owner that named one."""
    remotes: dict[str, Remote] = {}
    for record in sorted((record for record in last.values() if record), key=lambda record: record.epoch):
        remotes |= record.remotes
    return remotes


def take_over(
    admin: ClusterAdmin,
    task: LaneTask,
    *,
    check: Callable[[Mapping[int, LedgerRecord | None]], None],
    settle: Callable[[Mapping[str, Remote], Mapping[SourcePartition, int]], Settled],
    carried: Callable[[], str],
    choose_checkpoint: Callable[[int, int], int],
    restored: Mapping[SourcePartition, int] | None,
    held: Mapping[int, int],
    held_epoch: int = 0,
) -> FlowClaims:
    """Fence every lane of the flow, then write one ledger record a lane that names the new owner.

    Law F (repeatable): each claim carries the merged positions of all lanes, so that an owner that dies between two
    claims leaves a ledger that knows no less than before, whatever the number of lanes was and becomes. The workers'
    records carry their own lane's positions again: no worker sends before all claims stand.

    Args:
        admin: the target.
        task: the lane task of this owner; its lane, epoch and owner are filled in here.
        check: is shown the last record of every lane; it may raise to refuse.
        settle: is told the remote topics and the positions of the ledger, and returns what of them is claimed.
        carried: returns what the flow carries, once that is settled.
        choose_checkpoint: is told the number of the checkpoint location in use (0: none yet) and the last batch known
            from it (-1: none), and returns the number to use from now on; it may raise to refuse.
        restored: positions that the lake knows, where the ledger was lost; the furthest of these and the ledger's count.
            None forgets the ledger's own positions, too: for sending what was passed over before.
        held: newest ledger record of each lane that the lake's tables hold.
        held_epoch: newest epoch that the lake's tables hold.

    Raises:
        SafetyError: the clock of this machine cannot be right; nothing was written.
        LaneFenced: another republisher started at the same moment.
    """
    now = datetime.now(timezone.utc)
    refuse_absurd_clock(now, flow=task.flow)
    topic = ledger_topic(task.flow)
    state = admin.describe([topic]).get(topic)
    if state is None:
        admin.create(ledger_spec(topic, task.lanes, task.replication_factor))
    elif state.partitions < task.lanes:
        admin.grow(topic, task.lanes)
    lanes = range(max(task.lanes, state.partitions if state else 0))
    owner = str(uuid.uuid4())
    senders = {lane: LaneSender(replace(task, lane=lane, owner=owner)) for lane in lanes}
    try:
        with ThreadPoolExecutor(max_workers=8) as pool:
            last = dict(zip(senders, pool.map(LaneSender.fence, senders.values()), strict=True))
        check(last)
        epoch = next_epoch([held_epoch, *(record.epoch for record in last.values() if record)], now)
        used = max((record.checkpoint for record in last.values() if record), default=0)
        batch = max((r.batch for r in last.values() if r and r.checkpoint == used), default=-1)
        positions = {} if restored is None else furthest((merged_positions(last), restored))
        settled = settle(merged_remotes(last), positions)
        positions = dict(settled.positions)
        checkpoint = choose_checkpoint(used, batch)
        ownership = FlowClaims(
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
                carried=carried(),
                remotes=settled.remotes,
                positions=positions,
                committed_at_ms=int(now.timestamp() * 1000),
            )
            sender.claim(record)
            ownership.seqs[lane] = record.seq
    finally:
        for sender in senders.values():
            sender.close()
    log.info("republish.owner flow=%s epoch=%s owner=%s", task.flow, epoch, owner)
    return ownership
