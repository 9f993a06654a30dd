"""A record that cannot be mirrored stops its own topic, or is put aside; nothing else of its source notices."""

from __future__ import annotations

import json
import time

import pytest

from tests.kit.records import assert_equal_topics, consume, count, create_topic, new_topic, send
from tests.servers.lakes import Pair

# As a producer writes it that takes micro- or nanoseconds for milliseconds, or counts from another time.
MICROS, NANOS, BEFORE_CHRIST = 1_764_360_000_000_000, 1_764_360_000_000_000_000, -70_000_000_000_000
LAST_OF_9999 = 253_402_300_799_999


@pytest.mark.law("C", "E")
@pytest.mark.parametrize("execution", ["live", "streaming"])
def test_law_e_a_record_with_an_impossible_timestamp_stops_its_topic_alone(pair: Pair, execution: str) -> None:
    now = int(time.time() * 1000)
    stamps = {0: [now, MICROS, now + 1, NANOS, -1, LAST_OF_9999], 1: [now, -5, BEFORE_CHRIST, now + 2, 1]}
    bad = {(0, 1), (0, 3), (1, 2)}
    accepts = {f"message_timestamp_{way}_max_ms": str(2**63 - 1) for way in ("after", "before")}
    create_topic(pair.east, pair.topic, 2, **accepts)
    for prefix in ("east", "aside"):
        create_topic(pair.central, f"{prefix}.{pair.topic}", 2, **accepts)
    beside = new_topic(pair.east, 20)
    for partition, several in stamps.items():
        for number, stamp in enumerate(several):
            record = {"value": b"{}", "key": b"%d" % number, "partition": partition, "headers": [("h", b"1")]}
            send(pair.east, pair.topic, [{**record, "timestamp": stamp}])
    halts = pair.flow(name="halts", topics=[pair.topic, beside], execution=execution)
    aside = {**halts, "name": "aside", "policy": {"template": "aside.{topic}"}, "unsendable": "quarantine"}
    mirror = pair.mirror(halts, aside, east={"land": {"execution": execution}})

    # A drain of a source that nobody has consumed from is Spark's (law H).
    source = consume(pair.east, pair.topic)
    assert [len(records) for records in source.values()] == [6, 5]
    done = pair.cli("run", "--once", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (3, "UnsendableRecord"), done.stderr
    assert f"{pair.topic}-" in done.stderr
    assert "year" in done.stderr
    assert "unsendable: quarantine" in done.stderr
    for prefix in ("east", "aside"):
        assert_equal_topics(consume(pair.east, beside), consume(pair.central, f"{prefix}.{beside}"))
    good = {p: [r for r in records if (p, r.offset) not in bad] for p, records in source.items()}
    assert_equal_topics(good, consume(pair.central, f"aside.{pair.topic}"))

    # The record itself is in the lake, and whoever looks at it is answered.
    rows = mirror.query("SELECT partition, `offset`, value, headers FROM relay_east WHERE topic = :t", t=pair.topic)
    assert {(row["partition"], row["offset"]) for row in rows.to_pylist()} >= bad
    for side in ([], ["--relay"]):
        page = pair.told("records", "--cluster", "east", "--topic", pair.topic, *side)
        assert len(page["records"]) == 11
        assert pair.cli("records", "--cluster", "east", "--topic", pair.topic, *side).returncode == 0
    at_source = pair.told("records", "--cluster", "east", "--topic", pair.topic, "--partition", "0", "--offset", "1")
    assert at_source["records"][0]["timestamp_ms"] == MICROS, "as the source has it"
    [where] = pair.told("passport", "--cluster", "east", "--topic", pair.topic, "--offset", "3")["outcomes"][1:]
    assert where["status"] == "quarantined"
    put_aside = pair.told("quarantine", "--flow", "aside")["quarantined"]
    assert sum(one["records"] for one in put_aside) == len(bad)
    assert {one["rule"] for one in put_aside} == {"unsendable"}

    verified = {one["flow"]: one for one in pair.told("verify", code=1)["flows"]}
    assert verified["aside"]["equal"]
    assert not verified["halts"]["equal"]
    status = pair.told("status", code=1)
    told = {one["flow"]: one for one in status["flows"]}
    [held] = told["halts"]["parked"]
    assert held["stream"] == f"halts: topic {pair.topic}"
    assert "year" in held["cause"]
    assert not told["aside"].get("parked")
    assert all(
        one["time_lag_ms"] is None or one["time_lag_ms"] >= 0 for flow in told.values() for one in flow["partitions"]
    )
    assert pair.cli("lag").returncode in (0, 1)

    # A second call says the same and sends nothing twice; the setting lets the topic go on.
    assert pair.cli("run", "--once").returncode == 3
    pair.mirror({**halts, "unsendable": "quarantine"}, aside, east={"land": {"execution": execution}})
    assert pair.cli("run", "--once").returncode == 0
    assert_equal_topics(good, consume(pair.central, f"east.{pair.topic}"))
    assert count(pair.central, f"east.{beside}") == 20


@pytest.mark.law("C", "E")
def test_law_e_records_that_the_settings_of_the_target_refuse_stop_their_topic_alone(pair: Pair) -> None:
    now, forever = int(time.time() * 1000), str(2**63 - 1)
    # Tomorrow is too late for the target, and where the log is compacted a record wants a key.
    records = [(b"a", now), (b"b", now + 86_400_000), (b"c", now + 1), (None, now + 2), (b"d", now + 3)]
    bad = {1, 3}
    create_topic(pair.east, pair.topic, 1, message_timestamp_after_max_ms=forever)
    for prefix in ("east", "aside"):
        narrow = {"message_timestamp_after_max_ms": "3600000", "cleanup_policy": "compact"}
        create_topic(pair.central, f"{prefix}.{pair.topic}", 1, **narrow)
    send(pair.east, pair.topic, [{"value": b"v", "key": key, "timestamp": stamp} for key, stamp in records])
    beside = new_topic(pair.east, 20)
    halts = pair.flow(name="halts", topics=[pair.topic, beside], lanes=1, sync={"configs": False})
    aside = {**halts, "name": "aside", "policy": {"template": "aside.{topic}"}, "unsendable": "quarantine"}
    pair.mirror(halts, aside)

    done = pair.cli("run", "--once", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (3, "UnsendableRecord"), done.stderr
    assert f"{pair.topic}-0@1" in done.stderr
    assert "message.timestamp.after.max.ms" in done.stderr
    for prefix in ("east", "aside"):
        assert_equal_topics(consume(pair.east, beside), consume(pair.central, f"{prefix}.{beside}"))
    good = {0: [record for record in consume(pair.east, pair.topic)[0] if record.offset not in bad]}
    assert_equal_topics(good, consume(pair.central, f"aside.{pair.topic}"))
    assert count(pair.central, pair.remote) == 0
    put_aside = pair.told("quarantine", "--flow", "aside")["quarantined"]
    assert {one["first_offset"] for one in put_aside} == bad
    assert all(f"aside.{pair.topic}" in one["reason"] for one in put_aside)
    [held] = {one["flow"]: one for one in pair.told("status", code=1)["flows"]}["halts"]["parked"]
    assert held["stream"] == f"halts: topic {pair.topic}"
