"""What a lane does where its target falls silent while it opens, and which errors a new start may help."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.errors import ClusterUnreachable, LaneFenced, LoginRefused, NotAuthorized
from mirrorlake.kafka.lane import Batch, LaneSender, LaneSpec, holder, ledger_tail
from mirrorlake.kafka.lane.faults import RestartProducer, restarting_if_unreachable
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.rules import Viewed
from tests.builders import batch_of

SOURCE = SourcePartition("orders", 1, 0)


@dataclass
class Target:
    """A target that takes one commit and loses the answer; the ledger cannot be read right after."""

    ledger: list[LedgerRecord] = field(default_factory=list)
    silent: int = 0

    def producer(self, *_: object, **__: object) -> Target:
        return self

    def reader(self, *_: object) -> Target:
        return self

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __len__(self) -> int:
        return 0

    def last(self, *_: object, **__: object) -> LedgerRecord | None:
        if self.silent:
            self.silent -= 1
            raise ClusterUnreachable("central does not answer")
        return self.ledger[-1] if self.ledger else None

    unread = 0

    def produce(self, _: str, value: bytes, *__: object, **___: object) -> None:
        self.ledger.append(LedgerRecord.from_json(value))

    def commit_transaction(self, *_: object) -> None:
        if len(self.ledger) == 1:
            self.silent = 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def nothing(self, *_: object) -> int:
        return 0

    init_transactions = begin_transaction = flush = poll = purge = nothing


@dataclass
class Nothing:
    version: str = "abcd1234"

    def __call__(self, _: SourcePartition, records: pa.RecordBatch) -> Viewed:
        return Viewed(records=records.slice(0, 0))


@pytest.mark.law("F")
def test_law_f_no_lane_goes_on_before_it_has_read_the_ledger_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target: Any = Target()
    monkeypatch.setattr(holder, "Producer", target.producer)
    monkeypatch.setattr(ledger_tail, "LedgerReader", target.reader)
    claim = Claim(flow="east->central", lanes=1, epoch=1, owner="a", checkpoint_location=1)
    one = LaneSender(LaneSpec(claim=claim, target="central", options={"bootstrap.servers": "localhost:1"}))
    batch = Batch(SOURCE, TopicPartition("east.orders", 0), batch_of([0, 1, 2], values=[b"a", b"b", b"c"]))
    committed = list(one.send([batch], Nothing()))
    assert [record.seq for record in target.ledger] == [0], "law F: a chunk that was committed is sent once more"
    assert committed == target.ledger


@pytest.mark.law("F")
def test_law_f_who_slept_for_longer_than_its_patience_still_asks_the_ledger_who_holds_the_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = Claim(flow="east->central", lanes=1, checkpoint_location=1, epoch=1, owner="sleeper")
    heir = LedgerRecord(claim=replace(claim, epoch=2, owner="heir"), seq=5)
    # What was under way when it fell asleep fails when it wakes.
    target: Any = Target(ledger=[heir], silent=1)
    monkeypatch.setattr(holder, "Producer", target.producer)
    monkeypatch.setattr(ledger_tail, "LedgerReader", target.reader)
    task = LaneSpec(claim=claim, target="central", options={}, reader_options={}, retry_timeout_s=0.0)
    # By any other error its stream would be tried again, and take the flow from the heir.
    with pytest.raises(LaneFenced, match="heir claimed it"):
        LaneSender(task).open()


def test_a_lane_starts_again_where_its_target_is_away_and_not_where_its_login_is_refused() -> None:
    with pytest.raises(RestartProducer, match="read the ledger"), restarting_if_unreachable("read the ledger"):
        raise ClusterUnreachable("central does not answer")
    with pytest.raises(LoginRefused), restarting_if_unreachable("read the ledger"):
        raise LoginRefused("central: SASL fails")
    with pytest.raises(NotAuthorized), restarting_if_unreachable("read the ledger"):
        raise NotAuthorized("not allowed")
