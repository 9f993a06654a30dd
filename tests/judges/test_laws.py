"""The laws on real brokers: bytes, order, nothing unaccounted for, shown first, source untouched."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from mirrorlake import Exact, load
from tests.kit.map_check import assert_map_is_exact
from tests.kit.records import (
    ABORTED,
    Where,
    assert_equal_topics,
    commit,
    configs_of,
    odd_record,
    send,
    send_transactions,
)
from tests.servers.lakes import Pair


def write_odd_transactions(where: Where, topic: str, *, partitions: int, transactions: int, seed: int) -> None:
    rng = random.Random(seed)

    def records(number: int) -> Iterator[dict[str, Any]]:
        for position in range(40):
            record = odd_record(rng, position, large=position == 0 and number % 10 == 0)
            if number % 3 == 2:
                record["value"] = ABORTED + (record["value"] or b"")[:50]
            yield {"partition": rng.randrange(partitions), **record}

    send_transactions(where, topic, ((records(number), number % 3 != 2) for number in range(transactions)))


@pytest.mark.law("C", "D", "E", "F", "G", "H")
def test_laws_c_d_e_f_of_odd_records_in_transactions_on_both_executions(pair: Pair) -> None:
    pair.create(partitions=3, max_message_bytes="2000000", retention_ms="604800000")
    # A tombstone, an empty value and a missing key are three things, and so are headers.
    headers = [("h", None), ("h", b""), ("h", b"x"), ("", b"y")]
    odd = [{"key": k, "value": v, "headers": headers} for k in (None, b"", b"k") for v in (None, b"", b"v")]
    send(pair.east, pair.topic, ({"partition": 0, **record} for record in odd))
    write_odd_transactions(pair.east, pair.topic, partitions=3, transactions=40, seed=11)
    fed = pair.flow(name="fed", policy={"template": "fed.{topic}"}, execution="streaming", lanes=3)
    mirror = pair.mirror(pair.flow(chunk_records=333), fed)
    plan = mirror.plan()
    assert any(change.name == pair.remote for change in plan.changes)
    mirror.apply(plan=plan)
    assert not mirror.plan(), "law G: a plan applied twice changes something"
    before = pair.source()
    mirror.run(once=True)
    source = pair.source()
    assert source == before, "law H: the source was written to"
    pair.check(with_map=True)
    assert_equal_topics(source, pair.target(f"fed.{pair.topic}"))
    fed_map = (pair.lake, "fed", pair.topic, source, pair.target(f"fed.{pair.topic}"))
    assert_map_is_exact(*fed_map, asked=mirror["fed"])
    [verified] = mirror.verify("east->central")
    assert verified.equal, verified.differences
    assert sum(proof.verified for proof in verified.partitions) == sum(map(len, source.values()))
    for row in mirror.status()["east->central"]:
        assert (row.offset_lag, row.verdict) == (0, "OK"), row
    assert_accounted_for(pair)
    assert configs_of(pair.central, pair.remote) == {"max.message.bytes": "2000000", "retention.ms": "604800000"}
    landed, sent = mirror.run(once=True)
    assert [one.records for one in (*landed, *sent)] == [0, 0, 0], "law F: a finished step did something again"


def assert_accounted_for(pair: Pair) -> None:
    """Law E: each upstream offset is landed, or in a gap."""
    offsets, missing = defaultdict[int, list[int]](list), Counter[int]()
    for row in pair.landed():
        offsets[row["partition"]].append(row["offset"])
    for gap in pair.gaps():
        missing[gap["partition"]] += gap["missing"]
    for partition, landed in offsets.items():
        assert len(landed) + missing[partition] == max(landed) + 1, f"law E: partition {partition}"


@pytest.mark.law("C", "D", "F")
def test_a_late_target_and_other_numbers_of_lanes_continue_exactly_also_over_upkeep(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two turns are as good as 2 048 here, and nothing is too new.
    monkeypatch.setenv("MIRRORLAKE_TIMING", "compaction_max_waiting=2,hot_s=0")
    pair.create(partitions=4)
    made = 0
    for number, lanes in enumerate((2, 3, 1)):
        pair.produce(400, seed=number)
        mirror = pair.mirror(lanes=lanes)
        mirror.run(once=True)
        kept = mirror.maintain()
        assert kept.ok, str(kept)
        [relay] = [one for one in kept.tables if one.table == "relay of east"]
        made += relay.compacted.into
    assert made >= 4, "turns became files of one partition each"
    assert sum(one.records for one in kept.ledgers) > 0
    assert mirror.verify().equal
    pair.check()
    late = pair.mirror(pair.flow(), pair.flow(name="late", policy={"template": "late.{topic}"}))
    late.republish("late", once=True)
    assert_equal_topics(pair.source(), pair.target(f"late.{pair.topic}"))
    pair.check(with_map=True)


def test_start_latest_and_timestamp_leave_the_past_where_it_is(pair: Pair) -> None:
    topic = pair.topic
    pair.create()
    pair.produce(100, prefix="old")
    mirror = pair.mirror(start="latest")
    mirror.run(once=True)
    pair.produce(60, prefix="new")
    mirror.run(once=True)
    values = [r.value for part in pair.target().values() for r in part]
    assert len(values) == 60
    assert all(value is not None and value.startswith(b"new") for value in values)
    found = mirror["east->central"].offsets.translate(topic, 0, 50)
    assert isinstance(found, Exact)
    assert found.offset == 0
    # Questions about a lake in a folder start no Spark, and no JVM with it; a run with nothing to do neither.
    asked = load(pair.conf)
    assert asked["east->central"].offsets.translate(topic, 0, 50) == found
    back = mirror["east->central"].offsets.translate_back(pair.remote, 0, 0)
    assert asked["east->central"].offsets.translate_back(pair.remote, 0, 0) == back
    assert [p.verdict for p in asked["east->central"].status()] == ["OK"] * 2
    assert not asked.plan().changes
    asked.sample()
    for rows in (asked.lag.rows(), asked.lag.rows("1h")):
        assert {(row.hop, row.offset_lag) for row in rows} == {("landed", 0), ("republished", 0)}
    assert asked.lag.verdict().is_fine
    assert not asked["east->central"].groups().moves
    ran = asked.run(once=True)
    assert [one.records for one in (*ran.landed, *ran.republished)] == [0, 0]
    # Nor does a run with little to do, where the source was consumed from: a task of this process lands.
    commit(pair.east, "readers", topic, {0: 1})
    pair.produce(20, prefix="new", seed=2)
    ran = asked.run(once=True)
    assert [one.records for one in (*ran.landed, *ran.republished)] == [20, 20]
    assert [r.value for part in pair.target().values() for r in part][-10:] == [b"new2-%d" % n for n in range(1, 20, 2)]
    assert asked.verify().equal
    assert asked.pause(flow="east->central", reason="test").subject.name == "east->central"
    assert asked.resume(flow="east->central") is not None
    assert asked.standing_session() is None, "a question has started Spark"
