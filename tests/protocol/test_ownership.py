"""A flow changes its owner and its number of lanes on a real broker, and owners die between any two claims (law F)."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, tzinfo

import pytest

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.errors import ClusterError, ClusterUnreachable, LaneFenced, LedgerLost, SafetyError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.kafka.lane.faults import is_contested
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.kafka.lane.sender import LaneSender
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import table_version
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.owner import said_owner
from mirrorlake.model.remotes import LossResolution
from mirrorlake.republish import fencing as ownership
from mirrorlake.republish.fencing import FlowClaims, fence
from mirrorlake.republish.start import check_whole
from mirrorlake.sandbox import KafkaCluster
from tests.builders import batch_of
from tests.kit.deaths import dying
from tests.kit.processes import wait_until
from tests.kit.records import consume, new_topic, open_transaction, send, topic_name
from tests.protocol.test_lanes import ledger

PARTITIONS = 8
SOURCES = [SourcePartition("orders", 1, partition) for partition in range(PARTITIONS)]
# Older records would fall to the broker's retention at once.
NOW = int(time.time() * 1000)


class Flow:
    """One flow on a real target, owned and sent as a republisher does it, without Spark."""

    def __init__(self, central: KafkaCluster, remote: str) -> None:
        self.name = topic_name("flow")
        self.remote = remote
        self.options = {"bootstrap.servers": central.bootstrap_servers, "linger.ms": "5"}
        self.admin = ClusterAdmin("central", self.options)
        self.ledger = ledger_topic(self.name)

    def task(self, lanes: int, **more: object) -> LaneSpec:
        both = {"options": self.options, "reader_options": self.options, "retry_timeout_s": 20.0}
        claim = Claim(flow=self.name, lanes=lanes, checkpoint_location=1)
        return LaneSpec(**{"claim": claim, "target": "central", **both, **more})  # type: ignore[arg-type]

    def take_over(self, lanes: int, **more: object) -> FlowClaims:
        with fence(self.admin, self.task(lanes, **more), lambda _: self.remote) as fenced:
            settled = LossResolution(positions=fenced.sent.positions, remotes=fenced.sent.remotes)
            number = fenced.checkpoint_location + 1
            return fenced.claim(
                settled, checkpoint_location=number, scope=CheckpointScope(), copied_seqs={}, copied_epoch=0
            )

    def send(self, owned: FlowClaims, upto: int) -> list[LedgerRecord]:
        """Send every source partition up to an offset, as the relay would hand it out: from offset 0."""
        sent, lanes = [], owned.claim.lanes
        for lane in range(lanes):
            task = self.task(lanes, claim=replace(owned.claim, lane=lane), seq=owned.seqs[lane])
            sender = LaneSender(task)
            batches = [self.batch(s, upto) for s in SOURCES if lane_of(s.topic, s.partition, lanes=lanes) == lane]
            sent += list(sender.send(batches))
            sender.close()
        return sent

    def sender(self, owned: FlowClaims, **more: object) -> LaneSender:
        """Hold the only lane, as a worker of an owner does."""
        return LaneSender(self.task(1, **{"claim": owned.claim, "seq": owned.seqs[0], **more}))

    def batch(self, source: SourcePartition, upto: int) -> Batch:
        values = [b"%d" % offset for offset in range(upto)]
        batch = batch_of(range(upto), stamps=[NOW] * upto, values=values)
        return Batch(source, TopicPartition(self.remote, source.partition), batch)


@pytest.fixture
def flow(central: KafkaCluster) -> Flow:
    return Flow(central, new_topic(central, partitions=PARTITIONS))


@pytest.mark.law("F")
def test_law_f_a_death_between_two_claims_makes_the_ledger_forget_nothing(flow: Flow, central: KafkaCluster) -> None:
    lanes, upto = 2, 3
    flow.send(flow.take_over(lanes), upto)
    for claims in (1, 2, 3):
        for wanted in (4, 2):
            with dying("send.claimed", nth=claims):
                flow.take_over(wanted)
            owned = flow.take_over(wanted)
            said = f"law F: {lanes} -> {wanted} lanes, death after {claims} claims"
            assert owned.positions == dict.fromkeys(SOURCES, upto), said
            lanes, upto = wanted, upto + 1
            sent = flow.send(owned, upto)
            assert {s for record in sent for s in record.positions} == set(SOURCES)
            # A lane's own records carry the lane's own positions only.
            assert all(lane_of(s.topic, s.partition, lanes=lanes) == r.claim.lane for r in sent for s in r.positions)
    found = consume(central, flow.remote)
    expected = [b"%d" % offset for offset in range(upto)]
    assert {p: [r.value for r in records] for p, records in found.items()} == dict.fromkeys(range(PARTITIONS), expected)


def runs(records: Iterable[LedgerRecord]) -> list[tuple[int, int]]:
    return [(run.first_upstream, run.count) for record in records for run in record.runs]


@pytest.mark.law("F")
def test_law_f_a_worker_goes_on_only_from_its_own_owners_newest_record(flow: Flow) -> None:
    first = flow.take_over(1)
    list(flow.sender(first).send([flow.batch(SOURCES[0], 10)]))
    owned = flow.take_over(1)
    assert owned.seqs[0] > first.seqs[0] + 1

    # The driver knows more than the ledger shows: its tail was lost, or is not to be seen yet.
    ahead = flow.sender(owned, seq=owned.seqs[0] + 1, retry_timeout_s=0.5)
    seq = owned.seqs[0]
    with pytest.raises(LedgerLost, match=rf"ends at record {seq} .* has confirmed record {seq + 1}"):
        list(ahead.send([flow.batch(SOURCES[0], 20)]))
    unseen = replace(owned.claim, epoch=owned.claim.epoch + 1, owner="its claim is not to be seen yet")
    later = flow.sender(owned, claim=unseen, retry_timeout_s=0.5)
    with pytest.raises(LedgerLost, match=re.escape(said_owner(owned.claim.owner))):
        list(later.send([flow.batch(SOURCES[0], 20)]))
    with pytest.raises(LaneFenced):
        list(
            flow.sender(owned, claim=replace(owned.claim, owner="another of the same epoch")).send(
                [flow.batch(SOURCES[0], 20)]
            )
        )

    # A transaction of somebody else hides what is committed after it began.
    holder = flow.sender(owned)
    list(holder.send([flow.batch(SOURCES[0], 20)]))
    with open_transaction(flow.options["bootstrap.servers"], flow.ledger):
        assert runs(holder.send([flow.batch(SOURCES[0], 30)])) == [(20, 10)]
        with pytest.raises(ClusterUnreachable, match=rf"did not end the transaction that is open on {flow.ledger}-0"):
            list(flow.sender(owned, retry_timeout_s=0.5).send([flow.batch(SOURCES[0], 40)]))
    assert runs(flow.sender(owned).send([flow.batch(SOURCES[0], 40)])) == [(30, 10)]


@pytest.mark.law("F")
def test_law_f_the_newer_owner_of_a_busy_flow_wins_however_long_it_decides(flow: Flow, central: KafkaCluster) -> None:
    upto, stop = 0, threading.Event()

    def carry_on(owned: FlowClaims) -> None:
        """Send without a pause, as a mirror under load does, until another owner has the lane."""
        nonlocal upto
        sender = flow.sender(owned)
        while not stop.is_set():
            upto += 1
            list(sender.send([flow.batch(SOURCES[0], upto)]))

    def take_over(decides_s: float) -> FlowClaims:
        for _ in range(5):
            with fence(flow.admin, flow.task(1), lambda _: flow.remote) as fenced:
                time.sleep(decides_s)
                try:
                    settled = LossResolution(positions=fenced.sent.positions, remotes=fenced.sent.remotes)
                    return fenced.claim(
                        settled, checkpoint_location=1, scope=CheckpointScope(), copied_seqs={}, copied_epoch=0
                    )
                except LaneFenced as error:
                    if not is_contested(error):
                        raise
        raise AssertionError("the older owner kept the lane")

    with ThreadPoolExecutor() as pool:
        owner = pool.submit(carry_on, flow.take_over(1))
        try:
            for decides_s in (0.0, 0.1, 1.0, 7.0):
                before = upto
                wait_until(lambda n=before, one=owner: upto > n + 3 or one.done(), "the older owner sends")
                newer = take_over(decides_s)
                with pytest.raises(LaneFenced, match=rf"process {os.getpid()} on .* claimed it in epoch"):
                    owner.result(timeout=60)
                owner = pool.submit(carry_on, newer)
            # Who was fenced by somebody that never claims goes on.
            with fence(flow.admin, flow.task(1), lambda _: flow.remote):
                pass
            before = upto
            wait_until(lambda: upto > before + 3 or owner.done(), "the owner goes on")
        finally:
            stop.set()
        owner.result(timeout=60)
    found = [r.value for r in consume(central, flow.remote)[0]]
    assert found == [b"%d" % n for n in range(len(found))], "law F: once, in order"


@pytest.mark.law("F")
def test_law_f_without_transactions_a_zombie_is_not_believed_and_what_failed_is_not_counted(flow: Flow) -> None:
    plain = {"exactly_once": False}
    first = flow.take_over(1, **plain)
    zombie = flow.sender(first, **plain)
    list(zombie.send([flow.batch(SOURCES[0], 10)]))
    owned = flow.take_over(1, **plain)
    list(flow.sender(owned, **plain).send([flow.batch(SOURCES[0], 30)]))
    for upto in range(11, 21):
        list(zombie.send([flow.batch(SOURCES[0], upto)]))
    heir = flow.sender(owned, **plain)
    assert runs(heir.send([flow.batch(SOURCES[0], 40)])) == [(30, 10)], "it goes on after its own owner's record"
    for upto in range(21, 26):
        list(zombie.send([flow.batch(SOURCES[0], upto)]))
    with LedgerReader("central", flow.ledger, flow.options) as reader:
        genuine = [record for _, record in reader.since(0, 0)]
    assert [record.seq for record in genuine] == list(range(len(genuine)))
    assert runs(genuine) == [(0, 10), (10, 20), (30, 10)]
    third = flow.take_over(1, **plain)
    assert third.positions == {SOURCES[0]: 40}
    assert third.seqs[0] == genuine[-1].seq + 1, "the lake, which holds that record, finds nothing lost"

    # With `delivery: exactly_once` from now on: no transaction ever fenced the zombie, and it goes on.
    for upto in range(26, 36):
        list(zombie.send([flow.batch(SOURCES[0], upto)]))
    known = Claim(flow=flow.name, lanes=1, checkpoint_location=1, epoch=third.claim.epoch)
    exact = flow.take_over(1, claim=known)
    assert (exact.positions, exact.claim.epoch) == ({SOURCES[0]: 40}, third.claim.epoch + 1)
    for upto in range(36, 46):
        list(zombie.send([flow.batch(SOURCES[0], upto)]))
    assert runs(flow.sender(exact).send([flow.batch(SOURCES[0], 50)])) == [(40, 10)], "law F: sent again"
    third = flow.take_over(1, **plain)

    flow.admin.set_configs(flow.ledger, {"max.message.bytes": "100"})
    with pytest.raises(ClusterError, match=rf"refuses a record for the ledger {flow.ledger}"):
        list(flow.sender(third, **plain).send([flow.batch(SOURCES[0], 60)]))


@pytest.mark.law("F")
def test_law_f_a_ledger_is_gone_on_with_by_records_of_what_moved(flow: Flow) -> None:
    sent, servers = 3, flow.options["bootstrap.servers"]
    flow.send(flow.take_over(1), sent)
    first, others = SOURCES[0], SOURCES[1:]
    owned = flow.take_over(1)
    assert owned.positions == dict.fromkeys(SOURCES, sent)
    dead = flow.sender(owned)
    [part] = dead.send([flow.batch(first, 10)])
    assert (part.is_whole, part.positions, part.base_seq) == (False, {first: 10}, owned.seqs[0])
    heir = flow.sender(owned)
    assert runs(heir.send([flow.batch(source, 10) for source in SOURCES[:2]])) == [(3, 7)], "law F: sent again"
    with ledger(flow.task(1)) as reader:
        last = reader.last(0)
        assert last is not None
        assert (last.seq, last.positions) == (part.seq + 1, {**owned.positions, first: 10, SOURCES[1]: 10})
        # A claim, everything that moved, a claim.
        assert [one.is_whole for _, one in reader.since(0, 0)] == [True] * 3 + [False] * 2

    # Fenced between a record of what moved and the next full one; its lanes become two, and one again.
    newer = flow.take_over(2)
    assert newer.positions == last.positions
    with pytest.raises(LaneFenced):
        list(heir.send([flow.batch(first, 11)]))
    flow.send(newer, 11)
    newest = flow.take_over(1)
    assert newest.positions == dict.fromkeys(SOURCES, 11)
    holder = flow.sender(newest)
    for upto in range(12, 40):
        list(holder.send([flow.batch(first, upto)]))
    holder.close()
    with ledger(flow.task(1)) as reader:
        [*_, (at, _)] = ((at, one) for at, one in reader.since(0, 0) if one.is_whole)
        assert reader.last(0) == replace(
            reader.since(0, 0)[-1][1], positions={**newest.positions, first: 39}, is_whole=True
        )
    assert runs(flow.sender(newest).send([flow.batch(one, 39) for one in (*others, first)])) == [(11, 28)] * len(others)
    found = consume(servers, flow.remote)
    assert all([one.value for one in found[n]] == [b"%d" % at for at in range(39)] for n in range(PARTITIONS)), "law F"

    # The full record is gone, and what moved since is there.
    owned = flow.take_over(1)
    list(flow.sender(owned).send([flow.batch(first, 41)]))
    with ledger(flow.task(1)) as reader:
        [*_, (at, _)] = ((at, one) for at, one in reader.since(0, 0) if one.is_whole)
        flow.admin.delete_records_before({TopicPartition(flow.ledger, 0): at + 1})
        with pytest.raises(
            ClusterError, match=r"lacks its last full record .*: record \d+ holds only the positions that changed"
        ) as gone:
            reader.last(0)
        assert "--restore-ledger" in gone.value.remedy
    with pytest.raises(ClusterError, match="lacks its last full record"):
        flow.sender(owned).open()
    with fence(flow.admin, flow.task(1), lambda _: flow.remote) as fenced:
        assert fenced.last[0] is not None
        assert (fenced.last[0].positions, fenced.last[0].is_whole) == ({first: 41}, False)
        with pytest.raises(LedgerLost, match="lacks its last full record"):
            check_whole(FlowConfig(source="east", target="central", topics="orders"), fenced.last)


@pytest.mark.law("F")
def test_law_f_epochs_grow_whatever_the_clocks_say(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(year: int) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:
                return datetime(year, 1, 1, tzinfo=tz)

        monkeypatch.setattr(ownership, "datetime", Clock)

    for year in (1970, 2100):
        at(year)
        with pytest.raises(SafetyError, match=f"clock of this machine says {year}") as refused:
            flow.take_over(1)
        assert refused.value.exit_code == 3
    assert flow.ledger not in flow.admin.topic_names(), "nothing was written"
    at(2090)
    ahead = flow.take_over(1)
    monkeypatch.undo()
    owned = flow.take_over(1)
    assert owned.claim.epoch == ahead.claim.epoch + 1
    assert table_version(ahead.claim.epoch, 9) < table_version(owned.claim.epoch, 0) < 2**63
    list(flow.sender(owned).send([flow.batch(SOURCES[0], 10)]))

    # Nobody can have come so far: it is told from all others, and a person lets the flow go on over it.
    with ledger(flow.task(1)) as reader:
        last = reader.last(0)
    assert last is not None
    mad = replace(last, claim=replace(last.claim, epoch=2**40), seq=last.seq + 1, runs=())
    send(flow.options["bootstrap.servers"], flow.ledger, [(mad.to_json(), b"0", 0)])
    restored = flow.take_over(1)
    assert restored.claim.epoch < 2**33
    assert restored.positions == {SOURCES[0]: 10}
    assert runs(flow.sender(restored).send([flow.batch(SOURCES[0], 20)])) == [(10, 10)]
    with ledger(flow.task(1)) as reader:
        assert runs(record for _, record in reader.since(0, 0)) == [(0, 10), (10, 10)]
