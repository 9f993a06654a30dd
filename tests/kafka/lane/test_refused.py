"""Records that a target refuses because of their size: exactly those are named, or held back; all others arrive once."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from mirrorlake.errors import RecordTooLarge
from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.kafka.lane.sender import LaneSender, LaneSpec
from mirrorlake.model.flow import TopicPartition
from mirrorlake.sandbox import KafkaCluster
from tests.kafka.lane.test_lane import SOURCE, batch, remote, task, values
from tests.kit.records import new_topic

__all__ = ["remote", "task"]

LIMIT = 20_000


@pytest.fixture
def narrow(central: KafkaCluster) -> TopicPartition:
    return TopicPartition(new_topic(central, partitions=1, max_message_bytes=str(LIMIT)), 0)


def held(narrow: TopicPartition, sizes: dict[int, bytes], count: int = 60) -> Batch:
    """Return records `v0, v1, ...`, some of which have another value."""
    plain = batch(narrow, range(count))
    column = [sizes.get(row, f"v{row}".encode()) for row in range(count)]
    where = plain.records.schema.get_field_index("value")
    return replace(plain, records=plain.records.set_column(where, "value", pa.array(column, pa.binary())))


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


ODD = {
    10: noise(30_000),
    11: noise(25_000),
    # The broker counts what is sent, and this is little: the largest of all arrives.
    20: bytes(400_000),
    # Too long to share a batch where batches are small, and taken alone.
    30: noise(12_000, 30),
    40: noise(21_000),
    # Together they are too much for one batch, alone each is not.
    **{row: noise(9_000, row) for row in range(50, 55)},
}


@pytest.mark.law("D", "E", "F")
@pytest.mark.parametrize(
    ("options", "exactly_once", "refused"),
    [
        ({}, True, {10, 11, 40}),
        ({}, False, {10, 11, 40}),
        ({"message.max.bytes": "26000", "batch.size": "10000"}, True, {10, 11, 20, 40}),
        ({"message.max.bytes": "26000", "batch.size": "10000"}, False, {10, 11, 20, 40}),
    ],
    ids=["exactly once", "at least once", "the client's own limit", "the client's own limit, at least once"],
)
def test_law_e_exactly_what_is_too_large_is_quarantined_and_the_rest_arrives_in_order(
    options: dict[str, str],
    exactly_once: bool,
    refused: set[int],
    task: LaneSpec,
    narrow: TopicPartition,
    central: KafkaCluster,
) -> None:
    merged = {**task.options, "compression.type": "lz4", "linger.ms": "50", **options}
    sender = LaneSender(replace(task, quarantines=True, options=merged, exactly_once=exactly_once, chunk_records=45))
    records = list(sender.send([held(narrow, ODD)]))
    withheld = [item for record in records for item in record.withheld]
    assert {(item.kind, item.rule) for item in withheld} == {("quarantined", "unsendable")}
    assert all("max.message.bytes" in item.reason for item in withheld)
    assert {row for row in range(60) if any(item.holds(row) for item in withheld)} == refused
    expected = [ODD.get(row, f"v{row}".encode()) for row in range(60) if row not in refused]
    arrived = [value for _, value in values(central, narrow)]
    if exactly_once:
        assert arrived == expected, "law F: each once, in order"
        assert sum(run.count for record in records for run in record.runs) == len(expected)
        sender.close()
        again = LaneSender(replace(task, options=merged, exactly_once=exactly_once))
        assert list(again.send([held(narrow, ODD)])) == [], "what was quarantined is done"
    else:
        assert list(dict.fromkeys(arrived)) == expected, (
            "law D: what is sent twice never comes before an earlier record"
        )
        assert len(arrived) <= 4 * len(expected)


@pytest.mark.law("E")
@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_first_record_that_is_too_large_is_named_not_the_longest(
    task: LaneSpec, narrow: TopicPartition, exactly_once: bool
) -> None:
    options = {**task.options, "compression.type": "lz4"}
    sender = LaneSender(replace(task, options=options, exactly_once=exactly_once))
    with pytest.raises(RecordTooLarge, match=rf"{SOURCE}@10 of 300\d\d bytes .*max\.message\.bytes") as refused:
        list(sender.send([held(narrow, ODD)]))
    assert refused.value.facts["offset"] == 10
    assert "unsendable: quarantine" in refused.value.remedy
