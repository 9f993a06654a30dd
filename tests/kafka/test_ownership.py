"""A flow changes its owner and its number of lanes on a real broker, and owners die between any two claims (law F)."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane import LaneSender, LaneTask
from mirrorlake.kafka.pieces import Piece
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.remotes import Settled
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.streams.ownership import Ownership, take_over
from tests.flow.kit import consume

PARTITIONS = 8
SOURCES = [SourcePartition("orders", 1, partition) for partition in range(PARTITIONS)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Older records would fall to the broker's retention at once.
NOW = int(time.time() * 1000)


class Died(BaseException):
    """The owner's process ends here."""


class Flow:
    """One flow on a real target, owned and sent as a republisher does it, without Spark."""

    def __init__(self, central: KafkaCluster, remote: str) -> None:
        self.name = f"flow-{uuid.uuid4().hex[:8]}"
        self.remote = remote
        self.options = {"bootstrap.servers": central.bootstrap_servers, "linger.ms": "5"}
        self.admin = ClusterAdmin("central", self.options)
        self.ledger = ledger_topic(self.name)

    def task(self, lanes: int, **more: object) -> LaneTask:
        start = LaneTask(
            flow=self.name,
            target="central",
            lane=0,
            lanes=lanes,
            epoch=0,
            owner="",
            checkpoint=1,
            options=self.options,
            reader_options=self.options,
            patience_s=20.0,
        )
        return replace(start, **more)  # type: ignore[arg-type]

    def take_over(self, lanes: int) -> Ownership:
        return take_over(
            self.admin,
            self.task(lanes),
            check=lambda _: None,
            settle=lambda known, sent: Settled(positions=sent, remotes=known),
            carried=str,
            choose_checkpoint=lambda used, _: used + 1,
            restored={},
            held={},
        )

    def send(self, owned: Ownership, upto: int) -> list[LedgerRecord]:
        """Send every source partition up to an offset, as the relay would hand it out: from offset 0."""
        sent = []
        for lane in range(owned.lanes):
            task = self.task(owned.lanes, lane=lane, epoch=owned.epoch, owner=owned.owner, seq=owned.seqs[lane])
            sender = LaneSender(task)
            pieces = [self.piece(s, upto) for s in SOURCES if lane_of(s.topic, s.partition, lanes=owned.lanes) == lane]
            sent += list(sender.send(pieces))
            sender.close()
        return sent

    def piece(self, source: SourcePartition, upto: int) -> Piece:
        columns = {
            "offset": pa.array(range(upto), pa.int64()),
            "timestamp": pa.array([NOW] * upto, pa.timestamp("ms", tz="UTC")),
            "key": pa.array([None] * upto, pa.binary()),
            "value": pa.array([b"%d" % offset for offset in range(upto)], pa.binary()),
            "headers": pa.array([None] * upto, HEADERS),
        }
        return Piece(source, TopicPartition(self.remote, source.partition), pa.RecordBatch.from_pydict(columns))


@pytest.fixture
def flow(central: KafkaCluster, make_topic: object) -> Flow:
    return Flow(central, make_topic(central, partitions=PARTITIONS))  # type: ignore[operator]


@pytest.mark.law("F")
def test_law_f_a_death_between_two_claims_makes_the_ledger_forget_nothing(
    flow: Flow, central: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, left = LaneSender.claim, 0

    def dying(self: LaneSender, record: LedgerRecord) -> LedgerRecord:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died
        return claim(self, record)

    lanes, upto = 2, 3
    flow.send(flow.take_over(lanes), upto)
    for claims in (1, 2, 3):
        for wanted in (4, 2):
            left = claims
            monkeypatch.setattr(LaneSender, "claim", dying)
            with pytest.raises(Died):
                flow.take_over(wanted)
            monkeypatch.setattr(LaneSender, "claim", claim)
            owned = flow.take_over(wanted)
            assert owned.positions == dict.fromkeys(SOURCES, upto), (
                f"law F: {lanes} -> {wanted} lanes, death after {claims} claims"
            )
            lanes, upto = wanted, upto + 1
            sent = flow.send(owned, upto)
            assert {s for record in sent for s in record.positions} == set(SOURCES)
            assert all(
                lane_of(s.topic, s.partition, lanes=lanes) == record.lane for record in sent for s in record.positions
            ), "a lane's own records carry the lane's own positions only"
    found = consume(central.bootstrap_servers, flow.remote)
    expected = [b"%d" % offset for offset in range(upto)]
    assert {p: [r.value for r in records] for p, records in found.items()} == dict.fromkeys(range(PARTITIONS), expected)
