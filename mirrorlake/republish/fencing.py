"""Fence every older republisher of a flow, and learn where its lanes stand."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.kafka.lane import LaneSender, LaneSpec, LedgerReader, ledger_spec
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import next_epoch, refuse_absurd_clock
from mirrorlake.model.flow import SourcePartition, TopicPartition, furthest, ledger_topic
from mirrorlake.model.ledger import Claim, LedgerRecord, merged_remotes
from mirrorlake.model.owner import new_owner
from mirrorlake.model.remotes import Settled

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class FlowClaims:
    """What the owner of a flow knows of its lanes; `claim` is that of lane 0, and the others differ in `lane` only.

    `ends` are the offsets after the last records in the remote topics.
    """

    claim: Claim
    positions: dict[SourcePartition, int]
    seqs: dict[int, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


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

    def counting(record: LedgerRecord) -> Mapping[SourcePartition, int]:
        # Compared once a topic: a record has up to thousands of partitions.
        other = {name for name in {**record.remotes, **remotes} if record.remotes.get(name) != remotes.get(name)}
        if not other:
            return record.positions
        return {source: at for source, at in record.positions.items() if source.topic not in other}

    return furthest(counting(record) for record in last.values() if record)


class FencedLanes:
    """The lanes of a flow, every older republisher refused: look at them, decide, then `claim`.

    `last` holds the last ledger record of each lane, None where there is none; `checkpoint_location` is the number of the
    one in use, 0 for none yet, and `batch` its newest batch that the ledger knows, -1 for none.
    """

    def __init__(
        self,
        claim: Claim,
        last: Mapping[int, LedgerRecord | None],
        senders: Mapping[int, LaneSender],
        *,
        now: datetime,
    ) -> None:
        self._claim = claim
        self._senders = senders
        self._now = now
        self.last = last
        self.remotes = merged_remotes(last)
        self.positions = merged_positions(last)
        before = [record.claim for record in last.values() if record]
        self.checkpoint_location = max((one.checkpoint_location for one in before), default=0)
        in_use = [one for one in before if one.checkpoint_location == self.checkpoint_location]
        self.batch = max((one.batch for one in in_use), default=-1)
        self.scopes = [one.scope for one in in_use]

    @property
    def owner(self) -> str:
        """The name of the new owner."""
        return self._claim.owner

    def claim(
        self,
        resolution: Settled,
        *,
        checkpoint_location: int,
        scope: CheckpointScope,
        copied_seqs: Mapping[int, int],
        copied_epoch: int,
    ) -> FlowClaims:
        """Write one ledger record a lane that names the new owner.

        Law F (repeatable): each claim carries the merged positions of all lanes, so that an owner that dies between two
        claims leaves a ledger that knows no less than before, whatever the number of lanes was and becomes. The workers'
        records carry their own lane's positions again: no worker sends before all claims stand.

        `copied_seqs` is the newest ledger record of each lane that the lake's tables hold, `copied_epoch` the newest epoch.

        Raises:
            LaneFenced: another republisher fenced a lane meanwhile; `is_contested` tells it.
        """
        epochs = [copied_epoch, *(record.claim.epoch for record in self.last.values() if record)]
        claim = replace(
            self._claim,
            epoch=next_epoch(epochs, self._now),
            checkpoint_location=checkpoint_location,
            batch=self.batch if checkpoint_location == self.checkpoint_location else -1,
            scope=scope,
        )
        claims = FlowClaims(claim=claim, positions=dict(resolution.positions))
        for lane, sender in self._senders.items():
            before = self.last[lane]
            record = LedgerRecord(
                claim=replace(claim, lane=lane),
                seq=max(before.seq if before else -1, copied_seqs.get(lane, -1)) + 1,
                remotes=resolution.remotes,
                positions=claims.positions,
                committed_at_ms=int(self._now.timestamp() * 1000),
            )
            sender.claim(record)
            claims.seqs[lane] = record.seq
        log.info("republish.owner flow=%s epoch=%s owner=%s", claim.flow, claim.epoch, claim.owner)
        return claims


@contextmanager
def fence(admin: ClusterAdmin, spec: LaneSpec, owner: str = "") -> Iterator[FencedLanes]:
    """Fence every lane of a flow, those of an older and larger number of lanes too, and read where each stands.

    `owner` names the new owner, by a name that no other attempt has, and one is made where none is given; lane and owner of
    the task are filled in.

    Raises:
        SafetyError: the clock of this machine cannot be right; nothing was written.
    """
    now, claim = datetime.now(timezone.utc), replace(spec.claim, owner=owner or new_owner())
    refuse_absurd_clock(now, flow=claim.flow)
    topic = ledger_topic(claim.flow)
    state = admin.describe([topic]).get(topic)
    if state is None:
        admin.create(ledger_spec(topic, claim.lanes, spec.replication_factor))
    elif state.partitions < claim.lanes:
        admin.grow(topic, claim.lanes)
    lanes = range(max(claim.lanes, state.partitions if state else 0))
    senders = {lane: LaneSender(replace(spec, claim=replace(claim, lane=lane))) for lane in lanes}
    try:
        with ThreadPoolExecutor(max_workers=8) as pool:
            last = dict(zip(senders, pool.map(LaneSender.fence, senders.values()), strict=True))
        yield FencedLanes(claim, last, senders, now=now)
    finally:
        for sender in senders.values():
            sender.close()
