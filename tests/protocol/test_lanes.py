"""The lane protocol on a real broker: fencing, skipping, unknown outcomes, other producers in between, records that are refused."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.errors import LaneFenced, RecordTooLarge, RemoteTopicLost
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.kafka.lane.ledger_reader import LedgerReader, ledger_spec
from mirrorlake.kafka.lane.sender import LaneSender
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.kafka.lane.transaction import Transaction
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.remotes import Remote
from mirrorlake.model.withheld import Withheld
from mirrorlake.rules.view import Viewed
from mirrorlake.sandbox import KafkaCluster
from tests.builders import batch_of
from tests.kit.java import java
from tests.kit.processes import wait_until
from tests.kit.records import consume, create_topic, delete_topic, new_topic, send, send_transactions, topic_name

SOURCE = SourcePartition("orders", 1, 0)
# Older records would fall to the broker's retention at once.
NOW = int(time.time() * 1000)


@pytest.fixture
def task(central: KafkaCluster) -> LaneSpec:
    options = {"bootstrap.servers": central.bootstrap_servers, "linger.ms": "5"}
    both = {"options": options, "reader_options": options}
    start = LaneSpec(
        claim=Claim(flow=topic_name("flow"), lanes=1, epoch=1, owner="a", checkpoint_location=1),
        target="central",
        **both,
    )
    ClusterAdmin("central", options).create(ledger_spec(ledger_topic(start.claim.flow), 1))
    return start


@pytest.fixture
def remote(central: KafkaCluster) -> TopicPartition:
    return TopicPartition(new_topic(central, partitions=1), 0)


def batch(remote: TopicPartition, offsets: range | list[int], *, stamp: int = NOW) -> Batch:
    rows = list(offsets)
    stamps = [stamp + row if stamp else 0 for row in rows]
    keys, values = [str(row).encode() for row in rows], [f"v{row}".encode() for row in rows]
    return Batch(SOURCE, remote, batch_of(rows, stamps=stamps, keys=keys, values=values))


def ledger(task: LaneSpec) -> LedgerReader:
    """Read the ledger once its transactions have ended in the log: who commits is answered before."""
    topic, admin = ledger_topic(task.claim.flow), ClusterAdmin("central", task.reader_options)
    lane = [TopicPartition(topic, 0)]
    wait_until(lambda: admin.last_stable_offsets(lane) == admin.high_watermarks(lane), "the last transaction has ended")
    return LedgerReader("central", topic, task.reader_options)


def values(central: KafkaCluster, remote: TopicPartition) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in consume(central, remote.topic)[remote.partition]]


@pytest.mark.law("F")
def test_law_f_what_the_ledger_holds_is_skipped(task: LaneSpec, remote: TopicPartition, central: KafkaCluster) -> None:
    first = LaneSender(replace(task, chunk_records=30))
    records = list(first.send([batch(remote, range(100))]))
    assert [record.seq for record in records] == [0, 1, 2, 3]
    again = LaneSender(task)
    records = list(again.send([batch(remote, range(120))]))
    assert [(run.first_upstream, run.count) for record in records for run in record.runs] == [(100, 20)]
    assert [value for _, value in values(central, remote)] == [f"v{n}".encode() for n in range(120)]


@pytest.mark.law("F")
def test_law_f_a_fenced_holder_of_an_older_epoch_stops_and_leaves_nothing(
    task: LaneSpec, remote: TopicPartition, central: KafkaCluster
) -> None:
    old = LaneSender(task)
    list(old.send([batch(remote, range(10))]))

    def halfway() -> Iterator[Batch]:
        yield batch(remote, range(10, 20))
        later = replace(task.claim, epoch=2, owner="b")
        heir = LaneSender(replace(task, claim=later))
        last = heir.open()
        assert last is not None
        heir.claim(replace(last, claim=later, seq=last.seq + 1, runs=()))
        heir.close()
        yield batch(remote, range(20, 30))

    with pytest.raises(LaneFenced) as refused:
        list(old.send(halfway()))
    assert refused.value.exit_code == 3
    assert len(values(central, remote)) == 10


@pytest.mark.law("F")
@pytest.mark.parametrize("comes_back", [False, True])
def test_law_f_a_remote_topic_that_is_lost_under_a_chunk_gets_nothing_of_it(
    comes_back: bool, task: LaneSpec, remote: TopicPartition, central: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = ClusterAdmin("central", task.options)
    known = Remote(remote.topic, admin.describe([remote.topic])[remote.topic].topic_id)
    sender = LaneSender(replace(task, remotes={SOURCE.topic: known}))
    [first] = sender.send([batch(remote, range(10))])
    assert first.remotes == {SOURCE.topic: known}
    flush, left = Transaction.flush, [comes_back]

    def losing(self: Transaction) -> None:
        # All records are confirmed in the old topic, or in the new one, which has the ledger's id in neither case.
        if left:
            delete_topic(central, remote.topic)
            if left.pop():
                create_topic(central, remote.topic, 1)
        flush(self)

    monkeypatch.setattr(Transaction, "flush", losing)
    with pytest.raises(RemoteTopicLost) as refused:
        list(sender.send([batch(remote, range(10, 20))]))
    assert (refused.value.exit_code, refused.value.topic) == (3, remote.topic)
    heir = LaneSender(replace(task, remotes={}))
    last = heir.open()
    heir.close()
    assert last == first, "law F: the ledger says that a topic holds what it does not hold"
    if comes_back:
        assert values(central, remote) == []


@pytest.mark.law("F")
def test_law_f_the_same_owner_may_open_its_lane_again_elsewhere(
    task: LaneSpec, remote: TopicPartition, central: KafkaCluster
) -> None:
    here, there = LaneSender(task), LaneSender(task)
    list(here.send([batch(remote, range(10))]))
    list(there.send([batch(remote, range(20))]))
    # `here` was fenced by `there`: it must notice, learn what was done, and send only the rest.
    records = list(here.send([batch(remote, range(30))]))
    assert sum(run.count for record in records for run in record.runs) >= 10
    assert [value for _, value in values(central, remote)] == [f"v{n}".encode() for n in range(30)]


@pytest.mark.law("E")
def test_offsets_stay_exact_where_another_producer_writes_in_between(
    task: LaneSpec, remote: TopicPartition, central: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = LaneSender(replace(task, chunk_records=5000))

    def batches() -> Iterator[Batch]:
        for start in range(0, 5000, 500):
            yield batch(remote, range(start, start + 500))

    send_batch = Transaction.send

    def disturbed(self: Transaction, one: Batch) -> None:
        send_batch(self, one)
        self._producer.flush(20)
        send(central, remote.topic, [(b"stranger", None, 0)])

    monkeypatch.setattr(Transaction, "send", disturbed)
    records = list(sender.send(batches()))
    downstream = dict(values(central, remote))
    mapped = {
        run.first_upstream + index: run.first_downstream + index
        for record in records
        for run in record.runs
        for index in range(run.count)
    }
    assert sorted(mapped) == list(range(5000))
    assert all(downstream[offset] == f"v{upstream}".encode() for upstream, offset in mapped.items())


@pytest.mark.law("F")
def test_law_f_a_target_that_is_held_to_a_quota_gets_a_backlog_that_no_transaction_could_hold(
    task: LaneSpec, remote: TopicPartition, central: KafkaCluster
) -> None:
    client, rate, count, size = topic_name("slow"), 200_000, 300, 10_000
    quota = [
        "--alter",
        "--add-config",
        f"producer_byte_rate={rate}",
        "--entity-type",
        "clients",
        "--entity-name",
        client,
    ]
    java("kafka.admin.ConfigCommand", "--bootstrap-server", central.bootstrap_servers, *quota)
    # A transaction of 8 s holds half of it.
    options = {**task.options, "client.id": client, "transaction.timeout.ms": "8000"}
    noise = np.random.default_rng(2611)
    rows = [noise.bytes(size) for _ in range(count)]
    batch = Batch(SOURCE, remote, batch_of(range(count), stamps=[NOW] * count, keys=[b"k"] * count, values=rows))
    sent = list(LaneSender(replace(task, options=options, retry_timeout_s=30.0)).send([batch]))
    assert len(sent) > 2
    assert [value for _, value in values(central, remote)] == rows, "law F: once, in order, and all of it"


def test_the_ledger_reader_finds_the_last_record_behind_aborted_ones(task: LaneSpec, central: KafkaCluster) -> None:
    topic = ledger_topic(task.claim.flow)
    record = LedgerRecord(claim=task.claim, seq=7)
    aborted = [([(b"never seen", None, 0)], False)] * 59
    send_transactions(central, topic, [([(record.to_json(), None, 0)], True), *aborted])
    with LedgerReader("central", topic, task.reader_options) as reader:
        assert reader.last(0) == record
        assert reader.unread == 0, "what was aborted is over"
        assert [seen for _, seen in reader.since(0, 0)] == [record]


class EveryThird:
    """Withhold every third record."""

    version = "abcd1234"

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        offsets = records.column("offset").to_numpy()
        ranges = Ranges.of(offsets[offsets % 3 == 0])
        withheld = Withheld(source=source, kind="filtered", rule="thirds", version="1", ranges=ranges)
        kept = records.filter(pa.array(offsets % 3 != 0))
        return Viewed(records=kept, withheld=(withheld,) if withheld.ranges else ())


@pytest.mark.law("E")
def test_law_e_the_ledger_tells_what_the_view_withheld(
    task: LaneSpec, remote: TopicPartition, central: KafkaCluster
) -> None:
    sender = LaneSender(replace(task, chunk_records=40))
    sent = list(sender.send([batch(remote, range(100)), batch(remote, [102, 105])], EveryThird()))
    sender.close()
    with ledger(task) as reader:
        records = [record for _, record in reader.since(0, 0)]
    assert records == sent
    assert {record.view for record in records} == {"abcd1234"}
    withheld = [
        offset
        for record in records
        for item in record.withheld
        for offset in range(110)
        if item.ranges.contains(offset)
    ]
    assert withheld == [*range(0, 100, 3), 102, 105]
    assert records[-1].positions == {SOURCE: 106}, "law E: the position steps over what was withheld"
    assert records[-1].runs[-1].last_upstream == 98
    expected = [f"v{n}".encode() for n in range(100) if n % 3]
    assert [value for _, value in values(central, remote)] == expected
    again = LaneSender(task)
    assert list(again.send([batch(remote, range(100)), batch(remote, [102, 105])], EveryThird())) == []


@pytest.mark.law("E")
def test_a_chunk_of_which_nothing_goes_out_still_moves_the_position(task: LaneSpec, remote: TopicPartition) -> None:
    sender = LaneSender(task)
    [record] = sender.send([batch(remote, [3, 6, 9])], EveryThird())
    assert (record.runs, record.positions) == ((), {SOURCE: 10})
    [record] = sender.send([batch(remote, [10])], EveryThird())
    assert record.seq == 1


LIMIT = 20_000


@pytest.fixture
def narrow(central: KafkaCluster) -> TopicPartition:
    return TopicPartition(new_topic(central, partitions=1, max_message_bytes=str(LIMIT)), 0)


def held(narrow: TopicPartition) -> Batch:
    """Return records `v0, v1, ...`, some of which have another value."""
    plain = batch(narrow, range(60))
    column = [ODD.get(row, f"v{row}".encode()) for row in range(60)]
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
        ({"message.max.bytes": "26000", "batch.size": "10000"}, False, {10, 11, 20, 40}),
    ],
    ids=["exactly once", "the client's own limit, at least once"],
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
    records = list(sender.send([held(narrow)]))
    withheld = [item for record in records for item in record.withheld]
    assert {(item.kind, item.rule) for item in withheld} == {("quarantined", "unsendable")}
    assert all("max.message.bytes" in item.reason for item in withheld)
    assert {row for row in range(60) if any(item.ranges.contains(row) for item in withheld)} == refused
    expected = [ODD.get(row, f"v{row}".encode()) for row in range(60) if row not in refused]
    arrived = [value for _, value in values(central, narrow)]
    if exactly_once:
        assert arrived == expected, "law F: each once, in order"
        assert sum(run.count for record in records for run in record.runs) == len(expected)
        sender.close()
        again = LaneSender(replace(task, options=merged, exactly_once=exactly_once))
        assert list(again.send([held(narrow)])) == [], "what was quarantined is done"
    else:
        assert list(dict.fromkeys(arrived)) == expected, "law D: what is sent twice comes before no earlier record"
        assert len(arrived) <= 4 * len(expected)


@pytest.mark.law("E")
@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_first_record_that_is_too_large_is_named_not_the_longest(
    task: LaneSpec, narrow: TopicPartition, exactly_once: bool
) -> None:
    options = {**task.options, "compression.type": "lz4"}
    sender = LaneSender(replace(task, options=options, exactly_once=exactly_once))
    with pytest.raises(RecordTooLarge, match=rf"{SOURCE}@10 of 300\d\d bytes .*max\.message\.bytes") as refused:
        list(sender.send([held(narrow)]))
    assert refused.value.facts["offset"] == 10
    assert "unsendable: quarantine" in refused.value.remedy
