"""The laws on real brokers: bytes, order, nothing unaccounted for, shown first, source untouched."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from mirrorlake.mirror import Mirror
from mirrorlake.mirror.services import connections
from mirrorlake.model.offset_map import Exact
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import ABORTED, assert_equal_topics, consume, create_topic, odd_record, produce
from tests.flow.map_check import assert_map_is_exact
from tests.servers.lakes import MakeMirror


def topic_name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def write_odd_transactions(address: str, topic: str, *, partitions: int, transactions: int, seed: int) -> None:
    rng = random.Random(seed)
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "message.max.bytes": 2_000_000})
    producer.init_transactions(30)
    for number in range(transactions):
        producer.begin_transaction()
        aborts = number % 3 == 2
        for position in range(40):
            record = odd_record(rng, position, large=position == 0 and number % 10 == 0)
            if aborts:
                record["value"] = ABORTED + (record["value"] or b"")[:50]
            producer.produce(topic, partition=rng.randrange(partitions), **record)
        producer.flush(30)
        (producer.abort_transaction if aborts else producer.commit_transaction)(30)


@pytest.mark.law("C", "D", "E", "F", "G", "H")
def test_laws_c_d_e_f_of_odd_records_in_transactions(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 3, max_message_bytes="2000000", retention_ms="604800000")
    write_odd_transactions(east.bootstrap_servers, topic, partitions=3, transactions=40, seed=11)
    flow = {"source": "east", "target": "central", "topics": topic, "chunk_records": 333}
    mirror = make_mirror({"east": east, "central": central}, [flow])
    plan = mirror.plan()
    assert any(change.name == f"east.{topic}" for change in plan.changes)
    mirror.apply(plan=plan)
    assert not mirror.plan(), "law G: a plan applied twice changes something"
    before = consume(east.bootstrap_servers, topic)
    mirror.run(once=True)
    source, target = consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}")
    assert source == before, "law H: the source was written to"
    assert_equal_topics(source, target)
    assert_map_is_exact(tmp_path / "lake", "east->central", topic, source, target)
    [verified] = mirror.verify()
    assert verified.equal, verified.differences
    assert sum(proof.verified for proof in verified.partitions) == sum(map(len, source.values()))
    for row in mirror.status()["east->central"]:
        assert (row.offset_lag, row.verdict) == (0, "in_step"), row
    _law_e(mirror, topic)
    state = mirror.admin("central").configs([f"east.{topic}"])[f"east.{topic}"]
    assert state == {"max.message.bytes": "2000000", "retention.ms": "604800000"}
    landed, sent = mirror.run(once=True)
    assert (landed[0].records, sent[0].records) == (0, 0), "law F: a finished step did something again"


def _law_e(mirror: object, topic: str) -> None:
    lake = mirror.lake  # type: ignore[attr-defined]
    spans = (
        lake.relay("east")
        .groupBy("partition")
        .agg(F.max("offset").alias("last"), F.count("*").alias("landed"))
        .collect()
    )
    from mirrorlake.lake.schema import GAPS

    gaps = {
        row.partition: row.missing
        for row in lake.meta(GAPS)
        .where(F.col("topic") == topic)
        .groupBy("partition")
        .agg(F.sum("missing").alias("missing"))
        .collect()
    }
    for row in spans:
        assert row.landed + gaps.get(row.partition, 0) == row["last"] + 1, (
            f"law E: partition {row.partition} is not accounted for"
        )


@pytest.mark.law("C", "D", "F")
def test_law_c_a_tombstone_an_empty_and_a_missing_key_are_three_things(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 1)
    producer = Producer({"bootstrap.servers": east.bootstrap_servers})
    for key in (None, b"", b"k"):
        for value in (None, b"", b"v"):
            producer.produce(topic, value, key, headers=[("h", None), ("h", b""), ("h", b"x"), ("", b"y")])
    producer.flush(30)
    mirror = make_mirror({"east": east, "central": central}, [{"source": "east", "target": "central", "topics": topic}])
    mirror.run(once=True)
    assert_equal_topics(consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}"))


@pytest.mark.law("C", "D", "F")
def test_identity_and_template_policies_merge_two_regions(
    east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    topic = topic_name()
    for number, cluster in enumerate((east, west)):
        create_topic(cluster.bootstrap_servers, topic, 2)
        produce(cluster.bootstrap_servers, topic, 3000, seed=number)
    flows = [
        {
            "source": alias,
            "target": "central",
            "topics": topic,
            "policy": {"template": "all.{topic}"},
            "chunk_records": 200,
        }
        for alias in ("east", "west")
    ]
    flows.append({"name": "plain", "source": "east", "target": "central", "topics": topic, "policy": "identity"})
    mirror = make_mirror({"east": east, "west": west, "central": central}, flows)
    mirror.run(once=True)
    for verification in mirror.verify():
        assert verification.equal, verification.differences[:3]
    source = {alias: consume(c.bootstrap_servers, topic) for alias, c in (("east", east), ("west", west))}
    merged = consume(central.bootstrap_servers, f"all.{topic}")
    assert sum(map(len, merged.values())) == 6000
    for alias in ("east", "west"):
        for partition, records in source[alias].items():
            mine = [r for r in merged[partition] if r.content in {s.content for s in records}]
            assert [r.content for r in mine] == [r.content for r in records], "law D: order within a source partition"
        assert_map_is_exact(tmp_path / "lake", f"{alias}->central", topic, source[alias], merged)
    assert_equal_topics(source["east"], consume(central.bootstrap_servers, topic))


@pytest.mark.law("C", "D", "F")
def test_the_feeder_spark_sends_what_the_feeder_files_sends(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 3)
    write_odd_transactions(east.bootstrap_servers, topic, partitions=3, transactions=12, seed=5)
    flow = {"source": "east", "target": "central", "topics": topic, "feeder": "spark", "lanes": 3}
    mirror = make_mirror({"east": east, "central": central}, [flow])
    mirror.run(once=True)
    produce(east.bootstrap_servers, topic, 500, partitions=3)
    mirror.run(once=True)
    source, target = consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}")
    assert_equal_topics(source, target)
    assert_map_is_exact(tmp_path / "lake", "east->central", topic, source, target)


@pytest.mark.law("C", "D", "F")
def test_a_late_target_and_other_numbers_of_lanes_continue_exactly(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 4)
    clusters = {"east": east, "central": central}
    first = {"source": "east", "target": "central", "topics": topic}
    for number, lanes in enumerate((2, 3, 1)):
        produce(east.bootstrap_servers, topic, 400, partitions=4, seed=number)
        make_mirror(clusters, [{**first, "lanes": lanes}]).run(once=True)
    source = consume(east.bootstrap_servers, topic)
    assert_equal_topics(source, consume(central.bootstrap_servers, f"east.{topic}"))
    late = {
        "name": "late",
        "source": "east",
        "target": "central",
        "topics": topic,
        "policy": {"template": "late.{topic}"},
    }
    mirror = make_mirror(clusters, [first, late])
    mirror.republish("late", once=True)
    assert_equal_topics(source, consume(central.bootstrap_servers, f"late.{topic}"))
    assert_map_is_exact(
        tmp_path / "lake", "east->central", topic, source, consume(central.bootstrap_servers, f"east.{topic}")
    )


def test_start_latest_and_timestamp_leave_the_past_where_it_is(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 100, prefix="old")
    clusters = {"east": east, "central": central}
    flow = {"source": "east", "target": "central", "topics": topic, "start": "latest"}
    mirror = make_mirror(clusters, [flow])
    mirror.run(once=True)
    produce(east.bootstrap_servers, topic, 60, prefix="new")
    mirror.run(once=True)
    values = [r.value for part in consume(central.bootstrap_servers, f"east.{topic}").values() for r in part]
    assert len(values) == 60
    assert all(value is not None and value.startswith(b"new") for value in values)
    found = mirror["east->central"].offsets.translate(topic, 0, 50)
    assert isinstance(found, Exact)
    assert found.offset == 0
    # Questions about a lake in a folder start no Spark, and no JVM with it.
    monkeypatch.setattr(connections, "local_session", lambda: pytest.fail("a question has started Spark"))
    asked = Mirror(mirror.config)
    assert asked["east->central"].offsets.translate(topic, 0, 50) == found
    assert asked["east->central"].offsets.translate_back(f"east.{topic}", 0, 0) == mirror[
        "east->central"
    ].offsets.translate_back(f"east.{topic}", 0, 0)
    assert [p.verdict for p in asked["east->central"].status()] == ["in_step"] * 2
    assert not asked.plan().changes
    assert asked.pause(flow="east->central", reason="test").subject.name == "east->central"
    assert asked.resume(flow="east->central") is not None
