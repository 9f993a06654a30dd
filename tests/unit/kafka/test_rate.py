"""Rates: the arithmetic, and a lane that waits by a clock of its own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.kafka.lane import Batch, Throttle
from mirrorlake.kafka.lane.throttle import slices
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.rate import BURST_S, NO_LIMIT, Rate, due

LIMIT = 100.0


def batch(rows: int, width: int = 10) -> Batch:
    values = pa.array([b"x" * width] * rows, pa.binary())
    records = pa.RecordBatch.from_pydict({"offset": pa.array(range(rows), pa.int64()), "value": values})
    return Batch(SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0), records)


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0, 5)), min_size=1, max_size=40))
def test_no_stretch_of_time_holds_more_than_the_rate_a_burst_and_a_chunk(chunks: list[tuple[int, float]]) -> None:
    clock, rate = Clock(), Rate(records_per_second=LIMIT)
    paid, sent = clock(), []
    for records, busy in chunks:
        paid = due(paid, clock(), rate.cost_s(records, 0))
        clock.now = max(clock.now, paid)
        sent.append((clock.now, records))
        clock.now += busy
    for first, (start, chunk) in enumerate(sent):
        total = 0
        for at, records in sent[first:]:
            total += records
            assert total <= LIMIT * (at - start + BURST_S) + chunk + 1e-6
    assert sum(records for _, records in sent) <= LIMIT * (sent[-1][0] - 50.0) + 1e-6, "nothing is given in advance"


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0, 0.5)), min_size=1, max_size=40))
def test_time_spent_on_sending_counts_as_waiting(chunks: list[tuple[int, float]]) -> None:
    clock, rate = Clock(), Rate(records_per_second=LIMIT)
    paid = clock()
    for records, busy in chunks:
        paid = due(paid, clock(), rate.cost_s(records, 0))
        clock.now = max(clock.now, paid)
        clock.now += min(busy, records / LIMIT)
    # Every chunk was sent faster than the rate, so the rate alone decides; the last one's own sending comes on top.
    assert clock.now - 50.0 <= sum(records for records, _ in chunks) / LIMIT + 1.0 + 1e-6


def test_a_pace_waits_for_the_stricter_limit_and_not_at_all_without_one() -> None:
    clock = Clock()
    pace = Throttle(clock=clock, sleep=clock.sleep)
    pace.wait(NO_LIMIT, [batch(1000)])
    assert clock.now == 50.0
    pace.wait(Rate(records_per_second=100.0), [batch(50), batch(50)])
    assert clock.now == pytest.approx(51.0)
    one = batch(50)
    pace.wait(Rate(records_per_second=1000.0, bytes_per_second=one.records.nbytes / 2), [one])
    assert clock.now == pytest.approx(53.0)


def test_batches_are_cut_to_a_second_of_bytes_and_stay_in_order() -> None:
    rate = Rate(bytes_per_second=500.0)
    cut = list(slices([batch(100), batch(1, width=5000)], rate))
    assert [int(o) for one in cut for o in one.offsets()] == [*range(100), 0]
    assert all(one.records.nbytes <= 500 or len(one.records) == 1 for one in cut)
    assert len(list(slices([batch(100)], NO_LIMIT))) == 1


def test_a_rate_is_shared_and_bounds_the_chunks() -> None:
    rate = Rate(records_per_second=10.0, bytes_per_second=1000.0).share(4)
    assert rate == Rate(records_per_second=2.5, bytes_per_second=250.0)
    assert rate.chunk(100_000, 2**20) == (2, 250)
    assert Rate(records_per_second=0.5).chunk(100, 100) == (1, 100)
    assert NO_LIMIT.chunk(7, 9) == (7, 9)
    assert not NO_LIMIT
