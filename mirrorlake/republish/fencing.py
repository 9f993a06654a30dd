"""Fence every older owner of a flow, and read the last ledger record of each lane."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.kafka.lane import LaneSender, LaneSpec, LedgerReader, ledger_spec
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import next_epoch, refuse_absurd_clock
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.ledger import Claim, LedgerRecord, SentPositions, merged_positions
from mirrorlake.model.owner import new_owner
from mirrorlake.model.remotes import LossResolution

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class FlowClaims:
    """The claims of a flow's owner on its lanes.

    `claim` is that of lane 0, the others differ only in `lane`; `ends` are the offsets after the last records in the remote topics.
    """

    claim: Claim
    positions: dict[SourcePartition, int]
    seqs: dict[int, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


def read_lanes(reader: LedgerReader, admin: ClusterAdmin, topic: str) -> dict[int, LedgerRecord | None]:
    """Return the last record of every lane of the ledger; {} if there is no ledger."""
    state = admin.describe([topic]).get(topic)
    return {lane: reader.last(lane) for lane in range(state.partitions if state else 0)}


def read_last_records(context: Context, flow: FlowConfig) -> dict[int, LedgerRecord | None]:
    """Read the last record of every lane of a flow's ledger, which may be one of a moment ago: nobody is fenced."""
    with context.ledger(flow) as reader:
        return read_lanes(reader, context.admin(flow.target), flow.ledger_topic)


def read_sent_positions(context: Context, flow: FlowConfig) -> SentPositions:
    """Read a flow's positions, which may be those of a moment ago: nobody is fenced."""
    return merged_positions(read_last_records(context, flow), flow.remote_topic)


class FencedLanes:
    """The lanes of a flow after every older owner was fenced: read them, decide, then `claim`.

    `last` is None for a lane without a record, `checkpoint_location` 0 for none in use, and `batch`, its newest in the ledger, -1.
    """

    def __init__(
        self,
        claim: Claim,
        last: Mapping[int, LedgerRecord | None],
        senders: Mapping[int, LaneSender],
        *,
        remote_topic: Callable[[str], str],
        now: datetime,
    ) -> None:
        self._claim = claim
        self._senders = senders
        self._now = now
        self.last = last
        self.sent = merged_positions(last, remote_topic)
        before = [record.claim for record in last.values() if record]
        self.checkpoint_location = max((one.checkpoint_location for one in before), default=0)
        in_use = [one for one in before if one.checkpoint_location == self.checkpoint_location]
        self.batch = max((one.batch for one in in_use), default=-1)
        self.scopes = [one.scope for one in in_use]

    @property
    def owner(self) -> str:
        return self._claim.owner

    def claim(
        self,
        resolution: LossResolution,
        *,
        checkpoint_location: int,
        scope: CheckpointScope,
        copied_seqs: Mapping[int, int],
        copied_epoch: int,
    ) -> FlowClaims:
        """Write one ledger record per lane that names the new owner.

        Law F (repeatable): each claim carries the merged positions of all lanes. An owner that dies between two claims leaves
        a ledger that knows no less than before, even if the number of lanes changes. The workers' records carry the positions
        of their own lane only: no worker sends before all lanes are claimed.

        Raises:
            LaneFenced: another owner fenced a lane meanwhile; see `is_contested`.
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
                earlier=self.sent.earlier,
                committed_at_ms=int(self._now.timestamp() * 1000),
            )
            sender.claim(record)
            claims.seqs[lane] = record.seq
        log.info("republish.owner flow=%s epoch=%s owner=%s", claim.flow, claim.epoch, claim.owner)
        return claims


@contextmanager
def fence(
    admin: ClusterAdmin, spec: LaneSpec, remote_topic: Callable[[str], str], owner: str = ""
) -> Iterator[FencedLanes]:
    """Fence every lane of a flow, also those of an older, larger number of lanes, and read the last ledger record of each.

    `owner` is the new owner's name, which no other attempt may have; a new one is made by default. `fence` fills in the
    spec's lane and owner.
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
        yield FencedLanes(claim, last, senders, remote_topic=remote_topic, now=now)
    finally:
        for sender in senders.values():
            sender.close()
