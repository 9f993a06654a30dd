"""How much a lane puts into one transaction: what the target takes in a few seconds, whatever its rate."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.kafka.lane import Batch
from mirrorlake.kafka.lane.batch import Chunks
from mirrorlake.model.chunk_size import AIM_S, ChunkSize
from mirrorlake.model.flow import SourcePartition, TopicPartition

MAX = 2**26
TIMEOUT_S = 60.0


def send_all(size: ChunkSize, backlog: int, rate: float) -> int:
    """Send a backlog to a target of a rate, in bytes a second; return the failed attempts."""
    failures = 0
    while backlog:
        part = min(backlog, size.limit)
        if part / rate > TIMEOUT_S:
            failures += 1
            size.record_failure()
        else:
            size.record_success(part, seconds=part / rate)
            backlog -= part
        assert 0 < size.limit <= MAX
    return failures


@pytest.mark.law("F")
@given(st.floats(min_value=2_000, max_value=1e9), st.floats(min_value=2_000, max_value=1e9))
def test_law_f_every_backlog_arrives_and_transactions_come_to_take_seconds(first: float, then: float) -> None:
    size = ChunkSize(MAX)
    for rate in (first, then):
        assert send_all(size, int(rate * 120), rate) <= 16
        transaction_s = size.limit / rate
        assert transaction_s <= AIM_S * 1.01 or size.limit == 2**14


def test_a_fast_target_gets_the_largest_chunks_soon_and_a_small_one_says_nothing_of_them() -> None:
    size, sizes = ChunkSize(MAX), []
    for _ in range(4):
        sizes.append(size.limit)
        size.record_success(size.limit, seconds=0.1)
    assert sizes == [2**20, 2**22, 2**24, 2**26]
    size.record_success(300, seconds=0.02)
    assert size.limit == MAX


def batch(topic: str, *sizes: int) -> Batch:
    columns = {"offset": pa.array(range(len(sizes)), pa.int64()), "value": [b"x" * one for one in sizes]}
    return Batch(SourcePartition(topic, 1, 0), TopicPartition(topic, 0), pa.RecordBatch.from_pydict(columns))


@pytest.mark.law("D", "E")
@given(
    st.lists(st.lists(st.integers(0, 500), max_size=30), max_size=5),
    st.integers(1, 40),
    st.lists(st.integers(1, 3000), min_size=1, max_size=5),
)
def test_law_d_chunks_of_any_size_hold_each_record_once_and_in_order(
    values: list[list[int]], max_records: int, limits: list[int]
) -> None:
    batches = [batch(f"t{number}", *sizes) for number, sizes in enumerate(values)]
    asked = iter(limits * 1000)
    chunks = Chunks(batches, {}, max_records=max_records, max_bytes=lambda: next(asked))
    seen: dict[str, list[int]] = {one.source.topic: [] for one in batches}
    while chunk := chunks.take():
        assert 0 < sum(len(one.records) for one in chunk) <= max_records
        for one in chunk:
            seen[one.source.topic] += one.offsets.tolist()
    assert seen == {one.source.topic: list(range(len(one.records))) for one in batches}


@pytest.mark.law("F")
def test_law_f_what_a_slow_store_gives_in_seconds_is_a_chunk_and_no_transaction_waits_for_it() -> None:
    clock, read = [0.0], []

    def slow() -> Iterator[Batch]:
        for number in range(6):
            clock[0] += 2.0
            read.append(number)
            yield batch(f"t{number}", 100)

    chunks = Chunks(slow(), {}, max_records=1000, max_bytes=lambda: MAX, clock=lambda: clock[0])
    assert len(chunks.take()) == 2, "law F: sent and counted after seconds, not after the whole backlog"
    chunks.read_ahead()
    assert len(read) == 2, "law F: a transaction that is open while files come slowly outlasts its time-out"
    assert [len(chunks.take()) for _ in range(3)] == [2, 2, 0]
