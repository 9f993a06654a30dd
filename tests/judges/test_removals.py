"""Records leave the relay while it is landed into, followed, compacted and verified: retention and erasure on real brokers."""

from __future__ import annotations

import threading
import time

import pytest

from mirrorlake import BeforeFirst, Exact, Mirror, NoRecord
from tests.kit.processes import beside, staying_on, wait_until
from tests.kit.records import assert_equal_topics, count, end_of, produce, send, send_transactions
from tests.servers.lakes import Pair

OLD_MS = int((time.time() - 2 * 86_400) * 1000)


def left_before(mirror: Mirror) -> dict[int, int]:
    """Return the first offset of each partition that has not expired from the relay (docs/tables.md)."""
    gone = "SELECT partition, max(last_offset) + 1 AS first FROM removed WHERE kind = 'expired' AND relay_version IS NOT NULL"
    return {row["partition"]: row["first"] for row in mirror.query(f"{gone} GROUP BY partition").to_pylist()}


def proven(mirror: Mirror, flow: str) -> dict[int, int | None]:
    return {row.partition: row.proven_until for row in mirror.status(flow)[flow]}


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
        assert len(mirror.retire("other", reason="gone", apply=True).waiting) == 2
        assert mirror.retire("other", reason="gone", apply=True).is_repeat
        producing = threading.Thread(target=live)
        producing.start()
        try:
            wait_until(lambda: failures or (mirror.maintain().ok and left_before(mirror)), "what is old has left")
            mirror.maintain()
        finally:
            stop.set()
            producing.join()
        total = count(pair.east, pair.topic)
        wait_until(lambda: failures or count(pair.central, pair.remote) >= total, "everything has arrived")
    pair.check(with_map=True, by=mirror)
    removed = mirror.query("SELECT removal, relay_version, record_count FROM removed").to_pylist()
    done = {row["removal"] for row in removed if row["relay_version"] is not None}
    assert done == {row["removal"] for row in removed}, "law F: each is announced, then confirmed"
    assert sum(row["record_count"] for row in removed if row["relay_version"] is not None) == 400

    both = pair.mirror(first, late, east=keeps)
    both.apply()
    both.run(once=True)
    left = left_before(mirror)
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
    for flow in both.flows:
        assert proven(both, flow.name) == {p: end_of(pair.east, pair.topic, p) for p in (0, 1)}, flow.name
    sent, later = (sum(map(len, records.values())) - 1 for records in (pair.target(), expected))
    assert [report.verified for report in found] == [sent - 400, later]
    again = both.verify()
    assert [report.verified - report.proven_before for report in again] == [0, 0], "read again"


@pytest.mark.law("C", "D", "E", "F")
def test_law_e_an_erasure_of_what_was_sent_and_of_what_waits_and_beside_a_verification(pair: Pair) -> None:
    pair.create(retention_ms="604800000")
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
        assert [one.keeps for one in done.targets] == ["retention.ms=604800000, the rest by the defaults of central"]
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
    gone = "SELECT ranges FROM removed WHERE kind = 'erased' AND partition = 0 AND relay_version IS NOT NULL"
    ranges = [(one["first"], one["length"]) for row in mirror.query(gone).to_pylist() for one in row["ranges"]]
    assert any(begin <= first.offset < begin + length for begin, length in ranges)
    assert mirror.verify().equal

    # Erasures beside a verification, which has listed the relay and read what explains its holes.
    verdicts: list[bool] = []

    def verify(stop: threading.Event) -> None:
        while not stop.is_set():
            verdicts.append(mirror.verify(full=True).equal)

    with beside(verify):
        for key in range(107, 113):
            assert mirror.erase("east", pair.topic, key=str(key), reason="beside verify", apply=True).ok
    assert set(verdicts) == {True}, "law E: what was erased meanwhile is called missing"

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
