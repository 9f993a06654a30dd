"""A transaction that hangs on a source, on a real broker: where it is, since when, and what it holds back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from mirrorlake.kafka import ClusterAdmin, RecordReader
from mirrorlake.lag.hanging_transactions import HANGS_MS, find_open_transactions
from mirrorlake.lag.time_lag import age_ms
from mirrorlake.model.flow import TopicPartition
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import wait_until
from tests.kit.records import new_topic, open_transaction, produce


@pytest.mark.law("E")
def test_a_hung_transaction_is_told_with_its_first_record_and_all_that_waits(east: KafkaCluster) -> None:
    topic = new_topic(east, 10)
    options = {"bootstrap.servers": east.bootstrap_servers}
    admin = ClusterAdmin("east", options)
    places = [TopicPartition(topic, partition) for partition in (0, 1)]
    readers = partial(RecordReader, options={**options, "group.id": "unused"}, committed=False)
    began = datetime.now(timezone.utc)

    def look(minutes: float) -> dict[TopicPartition, tuple[int, int]]:
        now = began + timedelta(minutes=minutes)
        found = find_open_transactions(admin, readers, admin.last_stable_offsets(places))
        assert all(abs(one.since_ms - began.timestamp() * 1000) < 60_000 for one in found.values())
        return {tp: (one.offset, one.offsets) for tp, one in found.items() if age_ms(one.since_ms, now) >= HANGS_MS}

    assert look(5) == {}
    with open_transaction(east, topic):
        produce(east, topic, 20, seed=2)
        assert look(0.5) == {}, "a transaction may be open"
        assert look(5) == {places[0]: (5, 11)}, "five records, and from the sixth offset on eleven wait"
    wait_until(lambda: look(5) == {}, "the transaction's end is in the log")
