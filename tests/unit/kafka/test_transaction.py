"""What a transaction hands to its producer: the same records however they are cut into batches, and the right one is blamed."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.errors import UnsendableRecord
from mirrorlake.kafka.lane import Batch, LaneSpec
from mirrorlake.kafka.lane.batch import gather
from mirrorlake.kafka.lane.refused import RecordsRefused
from mirrorlake.kafka.lane.transaction import Transaction
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim
from tests.builders import batch_of

TASK = LaneSpec(claim=Claim(flow="f", lanes=1), target="central")
HEADERS = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []]


class Produced:
    """A producer that keeps what it gets; a value of b"large" is beyond its limit."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def produce(self, topic: str, value: Any, key: Any, partition: int, callback: Any, _: None, *rest: Any) -> None:
        if value == b"large":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self.records.append((topic, partition, value, key, *rest, callback is not None))

    def poll(self, _: float) -> None:
        pass


def batch(partition: int, offsets: range, *, cut: int = 0, **columns: Any) -> Batch:
    rows = len(offsets)
    given: dict[str, Any] = {
        "values": [b"" if row == 1 else None if row == 2 else b"v%d" % row for row in range(rows)],
        "keys": [None if row % 2 else b"k%d" % row for row in range(rows)],
        "stamps": [1_700_000_000_000 + offset for offset in offsets],
        "headers": [HEADERS[row % 3] for row in range(rows)],
    }
    records = batch_of(list(offsets), **{**given, **columns})
    return Batch(SourcePartition("a", 1, partition), TopicPartition("east.a", partition), records.slice(cut))


def produced(*batches: Batch, together: bool) -> list[tuple[Any, ...]]:
    producer = Produced()
    transaction = Transaction(producer, TASK)
    for several in gather(batches) if together else ([one] for one in batches):
        transaction.send(*several)
    return producer.records


@pytest.mark.law("C", "D")
def test_law_c_batches_that_are_sent_together_give_the_records_of_each() -> None:
    batches = [
        batch(0, range(5), cut=2),
        batch(1, range(7, 8)),
        batch(2, range(3), headers=[None] * 3),
        batch(0, range(5, 9)),
    ]
    whole = produced(*batches, together=True)
    assert whole == produced(*batches, together=False)
    assert [record[1] for record in whole] == [0] * 3 + [1] + [2] * 3 + [0] * 4
    assert [record[-1] for record in whole] == [True, False, True, True, True, False, True, True, False, False, True]


@pytest.mark.law("E")
def test_law_e_the_record_to_blame_is_found_among_batches_that_are_sent_together() -> None:
    stamps = [1_700_000_000_000, 0]
    with pytest.raises(UnsendableRecord) as unsendable:
        produced(batch(0, range(3)), batch(4, range(70, 72), stamps=stamps), batch(5, range(3)), together=True)
    assert (unsendable.value.partition, unsendable.value.offset) == (4, 71)
    with pytest.raises(RecordsRefused) as large:
        produced(batch(0, range(3)), batch(4, range(70, 72), values=[b"", b"large"]), batch(5, range(3)), together=True)
    assert large.value.records == {SourcePartition("a", 1, 4): {71: ""}}
