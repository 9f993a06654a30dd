"""Records leave the relay while it is landed into, followed, compacted and verified: retention and erasure on real brokers."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from mirrorlake.lake import left_before, proven_until, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.offset_map import BeforeFirst, Exact, NoRecord
from mirrorlake.verify import source_end
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import assert_equal_topics, count, end_of, produce, send, send_transactions
from tests.servers.lakes import Pair

OLD_MS = int((time.time() - 2 * 86_400) * 1000)


@pytest.mark.law("A", "C", "D", "E", "F")
def test_law_e_retention_beside_landing_compaction_and_a_flow_that_comes_late(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "hot_s=0")
    pair.create()
    first = pair.flow()
    late = pair.flow(name="late", policy={"template": "late.{topic}"}, execution="streaming")
    keeps = {"retention": {".*": {"age": "1d"}}}
    old = ({"value": b"old%d" % number, "partition": number % 2, "timestamp": OLD_MS + number} for number in range(400))
    send(pair.east, pair.topic, old)
    mirror = pair.mirror(first, east=keeps)
    mirror.apply()
    mirror.land("east", once=True)
    # Somebody else's settings file on the same lake has a flow that is paused before it ever sent a record.
    other = pair.mirror(pair.flow(name="other", policy={"template": "other.{topic}"}))
    other.pause(flow="other", reason="its target is being moved")
    held = mirror.maintain(plan=True).tables[0]
    assert {one.held_by for one in held.held} == {"east->central"}, "the flow was never started, and counts"
    assert mirror.maintain().tables[0].expired.records == 0

    stop = threading.Event()

    def live() -> None:
        seed = 10
        while not stop.is_set():
            produce(pair.east, pair.topic, 20, seed=seed)
            seed += 1

    with staying_on(mirror) as failures:
        wait_until(lambda: failures or count(pair.central, pair.remote) >= 400, "what is old has arrived")
        kept = mirror.maintain().tables[0]
        assert (kept.expired.records, {one.held_by for one in kept.held}) == (0, {"other"}), "law E: not in this file"
        assert mirror.retire("other", reason="gone").state == "planned"
        assert mirror.maintain().tables[0].expired.records == 0, "law G: only shown"
        assert mirror.retire("other", reason="gone", apply=True).waiting.keys() == {
            str(SourcePartition(pair.topic, 1, partition)) for partition in range(2)
        }
        assert mirror.retire("other", reason="gone", apply=True).is_repeat
        producing = threading.Thread(target=live)
        producing.start()
        try:
            wait_until(
                lambda: failures or (mirror.maintain().ok and left_before(mirror.lake, "east")), "what is old has left"
            )
            mirror.maintain()
        finally:
            stop.set()
            producing.join()
        total = count(pair.east, pair.topic)
        wait_until(lambda: failures or count(pair.central, pair.remote) >= total, "everything has arrived")
    pair.check(with_map=True)
    removed = removed_from(mirror.lake, "east")
    assert (sum(one.records for one in removed), all(one.is_done for one in removed)) == (400, True)

    both = pair.mirror(first, late, east=keeps)
    both.apply()
    both.run(once=True)
    left = {source.partition: position for source, position in left_before(mirror.lake, "east").items()}
    expected = {
        partition: [record for record in records if record.offset >= left[partition]]
        for partition, records in pair.source().items()
    }
    assert_equal_topics(expected, pair.target(f"late.{pair.topic}"))
    assert both.translate("late", topic=pair.topic, partition=0, offset=7) == BeforeFirst(left[0], "expired_from_relay")
    assert isinstance(both.translate("east->central", topic=pair.topic, partition=0, offset=7), Exact)

    newest = max(record.offset for record in pair.source()[0])
    erased = both.erase("east", pair.topic, where=f"partition = 0 AND offset = {newest}", reason="a test", apply=True)
    assert (erased.records, erased.ok) == (1, True)
    produce(pair.east, pair.topic, 20, seed=2)
    both.run(once=True)
    for partition, records in pair.source().items():
        expected[partition] = [record for record in records if record.offset >= left[partition]]
    assert_equal_topics(expected, pair.target(f"late.{pair.topic}"))
    assert all(row.state == "caught_up" for flow in both.status().values() for row in flow)
    found = both.verify()
    assert found.equal, found
    # The erased record is on both targets, too.
    assert [report.not_compared for report in found] == [401, 1], (
        "law E: what left the relay unproven is not called equal"
    )
    for flow in both.config.flows:
        until = {source.partition: at for source, at in proven_until(both.lake, flow).items()}
        assert until == {p: end_of(pair.east, pair.topic, p) for p in (0, 1)}, flow.name
    sent, later = (sum(map(len, records.values())) - 1 for records in (pair.target(), expected))
    assert [report.verified for report in found] == [sent - 400, later]
    again = both.verify()
    assert [report.verified - report.proven_before for report in again] == [0, 0], "read again"


@pytest.mark.law("C", "D", "E", "F")
def test_law_e_an_erasure_of_what_was_sent_and_of_what_waits_and_beside_a_verification(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.create()
    count_all = 6_000

    def is_hers(number: int) -> bool:
        return number % 100 < 2

    everybody = [
        {"key": b"ada" if is_hers(number) else b"%d" % number, "value": b"v%d" % number, "partition": number % 2}
        for number in range(count_all)
    ]
    send(pair.east, pair.topic, everybody[: count_all // 2])
    mirror = pair.mirror(pair.flow(chunk_records=250))
    mirror.run(once=True)
    mirror.pause(flow="east->central", reason="the rest waits")
    send(pair.east, pair.topic, everybody[count_all // 2 :])
    mirror.land("east", once=True)
    with staying_on(mirror) as failures:
        done = mirror.erase("east", pair.topic, key="ada", reason="request 4711", apply=True)
        assert (done.records, done.ok) == (count_all // 50, True)
        mirror.resume(flow="east->central")
        source = pair.source()
        last = {[record.value for record in records if record.key != b"ada"][-1] for records in source.values()}
        wait_until(
            lambda: (
                failures or last <= {record.value for records in pair.target().values() for record in records[-500:]}
            ),
            "the flow has come to the end of each partition",
        )
    target = pair.target()
    arrived = {record.value for records in target.values() for record in records}
    hers = [record for records in source.values() for record in records if record.key == b"ada"]
    never = {record.value for record in hers} - arrived
    assert never, "some had not been sent, and never are"
    assert_equal_topics(
        {
            partition: [record for record in records if record.value not in never]
            for partition, records in source.items()
        },
        target,
    )
    [first, *_] = [record for record in source[0] if record.value in never]
    found = mirror.translate("east->central", topic=pair.topic, partition=0, offset=first.offset)
    assert isinstance(found, NoRecord)
    assert found.kind == "erased"
    said = mirror.passport("east", pair.topic, 0, first.offset)
    assert said.accounted_for, said
    removed = {one.source: one for one in removed_from(mirror.lake, "east")}
    assert removed[SourcePartition(pair.topic, 1, 0)].holds(first.offset)
    compared = mirror.verify()
    assert compared.equal, compared

    # An erasure beside a verification that has listed the relay and read what explains its holes.
    explained, asked = source_end.count_explained_offsets, list[int]()

    def late(*given: Any) -> Any:
        asked.append(len(asked))
        if len(asked) == 1:
            assert mirror.erase("east", pair.topic, key="7", reason="beside verify", apply=True).ok
        return explained(*given)

    with monkeypatch.context() as patch:
        patch.setattr(source_end, "count_explained_offsets", late)
        compared = mirror.verify(full=True)
    assert compared.equal, compared
    assert len(asked) == 2, "compared again"

    # Whatever flow has sent them: one that is in no settings file any more, and a replay.
    mirror.replay(source="east", topic=pair.topic, into=f"central:{pair.topic}.again").run()
    renamed = pair.mirror(pair.flow(name="renamed", policy={"template": "renamed.{topic}"}))
    done = renamed.erase("east", pair.topic, key="11", reason="request 4712", apply=True)
    assert {one.rpartition(" by ")[0] for one in done.sent_to} == {pair.remote, f"{pair.topic}.again"}
    assert done.ok


@pytest.mark.law("E")
def test_law_e_nobody_waits_for_the_marker_of_a_transaction_before_erased_records(pair: Pair) -> None:
    pair.create()
    mirror = pair.mirror(pair.flow())
    send_transactions(pair.east, pair.topic, [([(b"sent", b"k", 0)], True)])
    mirror.run(once=True)
    send_transactions(pair.east, pair.topic, [([(b"gone", b"ada", 0)], True)])
    mirror.land("east", once=True)
    waiting = {row.partition: row.state for row in mirror.status().flows[0]}
    assert mirror.erase("east", pair.topic, key="ada", reason="a request", apply=True).ok
    assert (waiting, mirror.status().offset_lag) == ({0: "behind", 1: "caught_up"}, 0)
    mirror.run(once=True)
    assert [record.value for record in pair.target()[0]] == [b"sent"]
