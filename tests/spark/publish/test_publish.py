"""Publishing into a lake cluster: dense offsets in the frame's order, whoever else publishes; a named batch once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.errors import StoreError, UsageError
from mirrorlake.lake.duckdb_query import to_rows
from mirrorlake.lake.landing_state import landed_positions
from mirrorlake.lake.schema import METADATA, POSITIONS
from mirrorlake.mirror import Mirror, from_settings
from mirrorlake.model.flow import TopicPartition
from mirrorlake.publish import publisher_of
from tests.builders import partition_for
from tests.kit.commands import run_cli

TOPICS = {"orders": {"partitions": 6, "configs": {"retention.ms": 604800000, "max.message.bytes": 2000}}}
MakeLake = Callable[..., Mirror]


@pytest.fixture
def make_lake(spark: SparkSession, tmp_path: Path) -> MakeLake:
    """Return mirrors of one lake; each has publishers of its own, as each process has."""

    def make(topics: Mapping[str, Any] = TOPICS, **app: Any) -> Mirror:
        settings = {
            "lake": {"root": str(tmp_path / "lake")},
            "clusters": {
                "app": {"kind": "lake", "topics": topics, **app},
                "east": {"bootstrap_servers": "127.0.0.1:1"},
            },
            "flows": [{"source": "app", "target": "east", "topics": ".*", "policy": "identity"}],
        }
        return from_settings(settings, spark=spark)

    return make


def relay(mirror: Mirror) -> list[Any]:
    """Return the relay's rows in offset order; without Spark, which one test of this file asks, at a second a question."""
    held = DeltaTable(mirror.lake.relay_location("app")).to_pyarrow_table()
    return sorted(to_rows(held), key=lambda row: row.offset)


def rows(mirror: Mirror, topic: str = "orders") -> dict[int, list[Any]]:
    """Return the relay's rows of a topic by partition, in offset order."""
    found: dict[int, list[Any]] = {}
    for row in relay(mirror):
        if row.topic == topic:
            found.setdefault(row.partition, []).append(row)
    return found


def assert_dense(mirror: Mirror, topic: str = "orders") -> None:
    for partition, held in rows(mirror, topic).items():
        assert [row.offset for row in held] == list(range(len(held))), f"law F: offsets of {topic}-{partition}"


def partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(6)]


def keyed(spark: SparkSession, count: int, *, start: int = 0) -> DataFrame:
    # One Spark partition: its rows stand in the order of their numbers.
    return spark.range(start, start + count, 1, 1).selectExpr("concat('k', id % 50) AS key", "string(id) AS value")


@pytest.mark.law("C", "D", "F")
def test_law_c_d_what_a_frame_says_stands_in_the_relay_in_its_order(spark: SparkSession, make_lake: MakeLake) -> None:
    mirror = make_lake({**TOPICS, "odd": {"partitions": 6}})
    first = mirror.publish(keyed(spark, 300).orderBy("value"), topic="orders")
    assert first.records == 300
    assert_dense(mirror)
    held = rows(mirror)
    for partition, part in held.items():
        assert {partition_for(bytes(row.key), 6) for row in part} == {partition}, "Kafka's murmur2"
        values = [bytes(row.value).decode() for row in part]
        assert values == sorted(values), "law D: the order of the frame"
    told = {each.partition: (each.first_offset, each.last_offset) for each in first.partitions}
    assert told == {partition: (0, len(part) - 1) for partition, part in held.items()}

    at = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=timezone.utc)
    schema = (
        "topic string, value binary, key binary, headers array<struct<key:string,value:binary>>, "
        "timestamp timestamp, partition int"
    )
    given = [
        ("odd", b"\x00\xff", b"", [("a", b"1"), ("a", None), ("b", b"")], at, 5),
        ("odd", None, None, [], None, 5),
        ("odd", b"", b"21", None, at, None),
        ("unlisted", b"x", None, None, None, None),
    ]
    before = datetime.now(timezone.utc)
    mirror.publish(spark.createDataFrame(given, schema).coalesce(1))
    fifth = rows(mirror, "odd")[5]
    [one] = rows(mirror, "odd")[partition_for(b"21", 6)]
    assert [(row.key, row.value) for row in fifth] == [(b"", b"\x00\xff"), (None, None)]
    assert [(h["key"], h["value"]) for h in fifth[0].headers] == [("a", b"1"), ("a", None), ("b", b"")]
    assert fifth[1].headers is None
    assert one.timestamp.replace(tzinfo=timezone.utc) == at.replace(microsecond=123000)
    assert fifth[1].timestamp.replace(tzinfo=timezone.utc) > before - timedelta(milliseconds=1)
    assert {row.timestamp_type for row in fifth} == {0}
    assert list(rows(mirror, "unlisted")) == [0]

    # Other spellings of the same: text, a map, milliseconds.
    other = spark.createDataFrame(
        [("v", {"h": "1"}, 1_700_000_000_000)], "value string, headers map<string,string>, timestamp long"
    )
    mirror.publish(other, topic="other")
    [row] = rows(mirror, "other")[0]
    assert (row.value, [(h["key"], h["value"]) for h in row.headers]) == (b"v", [("h", b"1")])
    assert row.timestamp.replace(tzinfo=timezone.utc).timestamp() == 1_700_000_000
    metadata = to_rows(DeltaTable(mirror.lake.meta_location(METADATA)).to_pyarrow_table())
    recorded = [row for row in metadata if row.role == "source"]
    counts = {row.topic: (row.generation, row.partitions) for row in recorded}
    assert counts == {"orders": (1, 6), "odd": (1, 6), "other": (1, 1), "unlisted": (1, 1)}
    [configs] = [dict(row.configs) for row in recorded if row.topic == "orders"]
    assert configs["retention.ms"] == "604800000"


@pytest.mark.law("D", "F")
def test_a_publisher_that_knows_an_old_state_begins_again_and_counts_only_grow(
    spark: SparkSession, make_lake: MakeLake
) -> None:
    early, late, last = (make_lake({"orders": {"partitions": partitions}}) for partitions in (2, 4, 1))
    early.publish(keyed(spark, 10), topic="orders")
    late.publish(keyed(spark, 10, start=10), topic="orders")
    # It goes on from what it knows, which is not the end any more: Delta says nothing about what it drops.
    early.publish(keyed(spark, 10, start=20), topic="orders")
    last.publish(keyed(spark, 10, start=30), topic="orders")
    assert last._context.source("app").describe(["orders"])["orders"].partitions == 4
    held = rows(last)
    assert max(held) == 3
    assert_dense(last)
    assert sorted(int(row.value) for part in held.values() for row in part) == list(range(40))
    for part in held.values():
        values = [int(row.value) for row in part]
        assert values == sorted(values), "law D: what is published later comes later"


def look_fails_once(mirror: Mirror) -> None:
    """Let the next look for a commit in the history fail: the writer is there, its commit is not seen."""
    log = publisher_of(mirror._context)._log
    real = log.refresh

    def failing(**_: Any) -> None:
        log.refresh = real
        raise OSError("the store is gone")

    log.refresh = failing


def write_fails_once(mirror: Mirror, *, after: bool, error: BaseException) -> None:
    """Let the next write fail, before or after its commit: a store that goes away, or a process that dies there."""
    publisher = publisher_of(mirror._context)
    real = publisher._lake.append_frame

    def failing(frame: DataFrame, location: str, **options: Any) -> None:
        if location != publisher._location:
            real(frame, location, **options)
            return
        publisher._lake.append_frame = real
        if after:
            real(frame, location, **options)
        raise error

    publisher._lake.append_frame = failing


@pytest.mark.law("F")
def test_law_f_a_named_batch_is_published_once_wherever_its_publisher_dies(
    spark: SparkSession, make_lake: MakeLake
) -> None:
    mirror = make_lake()
    first = mirror.publish(keyed(spark, 10), topic="orders", batch_id="x")
    look_fails_once(mirror)
    with pytest.raises(StoreError, match="may or may not have been published"):
        mirror.publish(keyed(spark, 10, start=10), topic="orders")
    mirror = make_lake()
    write_fails_once(mirror, after=True, error=SystemExit())
    with pytest.raises(SystemExit):
        mirror.publish(keyed(spark, 10, start=20), topic="orders", batch_id="y")
    mirror = make_lake()
    again = mirror.publish(keyed(spark, 10, start=20), topic="orders", batch_id="y")
    assert (again.repeated, again.records) == (True, 10)
    assert not mirror.publish(keyed(spark, 10, start=30), topic="orders", batch_id="z").repeated
    for other in (mirror, make_lake()):
        repeated = other.publish(keyed(spark, 10), topic="orders", batch_id="x")
        assert (repeated.repeated, repeated.partitions) == (True, first.partitions)
    assert_dense(mirror)
    assert sorted(int(row.value) for part in rows(mirror).values() for row in part) == list(range(40))


@pytest.mark.law("F")
def test_a_commit_that_stands_although_its_writer_failed_counts(spark: SparkSession, make_lake: MakeLake) -> None:
    mirror = make_lake()
    write_fails_once(mirror, after=True, error=OSError("no answer"))
    assert mirror.publish(keyed(spark, 10), topic="orders").records == 10
    write_fails_once(mirror, after=False, error=OSError("no answer"))
    with pytest.raises(StoreError, match="nothing was published"):
        mirror.publish(keyed(spark, 10), topic="orders")
    mirror.publish(keyed(spark, 10, start=10), topic="orders")
    assert sorted(int(row.value) for part in rows(mirror).values() for row in part) == list(range(20))
    assert_dense(mirror)


@pytest.mark.law("F")
def test_law_f_a_death_before_the_account_is_written_gives_no_offset_out_again(
    spark: SparkSession, make_lake: MakeLake
) -> None:
    """Records of hours ago that no account knows, then publishers whose clocks stand before and after them."""
    early = make_lake()
    publisher = publisher_of(early._context)
    publisher.now = lambda: datetime.now(timezone.utc) - timedelta(hours=5)
    publisher._ends.sample = lambda _: None
    early.publish(keyed(spark, 10), topic="orders")
    assert early.lake.query("SELECT * FROM {positions}") == []
    for hours, start in ((0, 10), (-9, 20)):
        fresh = make_lake()
        fresh._context.now = lambda hours=hours: datetime.now(timezone.utc) + timedelta(hours=hours)
        assert sum(fresh._context.source("app").last_stable_offsets(partitions_of("orders")).values()) == start
        fresh.publish(keyed(spark, 10, start=start), topic="orders")
        assert_dense(fresh)
        held = landed_positions(fresh.lake, "app").reached
        assert sum(offset for s, offset in held.items() if s.topic == "orders") == start + 10
    samples = fresh.lake.meta(POSITIONS).where("topic = 'orders' and kind = 'landed'").collect()
    assert {row.position for row in samples} > {0}, "landing began at 0"


_REFUSED: list[tuple[tuple[Any, ...], str, str | None, str]] = [
    (("x",), "key string", "orders", "no column 'value'"),
    ((1,), "value int", "orders", "the column value of the frame to publish has the unfit type int"),
    (("v", "w"), "value string, extra string", "orders", "it has extra"),
    (("v", {"a": 1}), "value string, headers map<string,int>", "orders", "headers of the frame"),
    (("v",), "value string", None, "neither a column nor an argument"),
    (("v", "t"), "value string, topic string", "orders", "both a column and an argument"),
    (("v",), "value string", "__consumer_offsets", "is internal to Kafka"),
    (("v",), "value string", "a b", "not a legal topic name"),
    (("v", 6), "value string, partition int", "orders", "partition 6 of 6"),
    (("v", 0), "value string, timestamp long", "orders", "1970 or before"),
    (("v", 10**18), "value string, timestamp long", "orders", "past the year 9999"),
    (("v" * 2000,), "value string", "orders", "2000 bytes, allowed are 2000"),
    (("v", [(None, b"")]), "value string, headers array<struct<key:string,value:binary>>", "orders", "header key"),
    (("v", None), "value string, topic string", None, "a record of topic NULL"),
]


def test_records_that_no_flow_could_carry_are_refused(spark: SparkSession, make_lake: MakeLake) -> None:
    mirror = make_lake()
    for columns, schema, topic, problem in _REFUSED:
        with pytest.raises(UsageError, match=problem) as refused:
            mirror.publish(spark.createDataFrame([columns], schema), topic=topic)
        assert "nothing was published" in str(refused.value)
        assert "vvvv" not in str(refused.value)
    mirror.lake.create_all(["app"])
    assert not relay(mirror)


def test_a_producer_has_the_shape_of_confluents(make_lake: MakeLake) -> None:
    mirror = make_lake()
    told: list[Any] = []
    report = lambda error, message: told.append((error, message))  # noqa: E731
    with mirror.producer("app", {"linger.ms": 60_000}) as producer:
        producer.produce("orders", value="v", key="21", headers=[("h", b"1"), ("h", None)], on_delivery=report)
        producer.produce("orders", None, b"", timestamp=1_700_000_000_000, on_delivery=report)
        producer.produce("orders", b"w", partition=5, on_delivery=report)
        assert len(producer) == 3
        assert producer.poll(0) == 0
        assert producer.flush() == 0
        assert len(told) == 3
        producer.produce("orders", b"x", partition=5, on_delivery=report)
    by_value = {message.value(): message for error, message in told if error is None}
    first = by_value[b"v"]
    assert (first.topic(), first.partition(), first.offset()) == ("orders", partition_for(b"21", 6), 0)
    assert (first.key(), first.headers(), first.error()) == (b"21", [("h", b"1"), ("h", None)], None)
    assert by_value[None].timestamp() == (1, 1_700_000_000_000)
    assert [by_value[v].offset() for v in (b"w", b"x")] == [0, 1]
    assert_dense(mirror)
    assert {bytes(row.value) for row in rows(mirror)[5]} == {b"w", b"x"}


@pytest.mark.law("D", "F")
def test_applications_publish_while_others_flush(make_lake: MakeLake) -> None:
    mirror = make_lake()
    delivered: list[bytes] = []
    with mirror.producer("app", {"linger.ms": 0, "batch.num.messages": 20}) as producer:

        def work(writer: int) -> None:
            for number in range(30):
                value = f"{writer}-{number}"
                producer.produce("orders", value, str(writer), on_delivery=lambda _, m: delivered.append(m.value()))
                if number % 15 == 0:
                    producer.poll(0)
            producer.flush()

        with ThreadPoolExecutor(max_workers=3) as pool:
            list(pool.map(work, range(3)))
    assert_dense(mirror)
    held = [bytes(row.value).decode() for part in rows(mirror).values() for row in part]
    for writer in range(3):
        mine = [value for value in held if value.startswith(f"{writer}-")]
        assert mine == [f"{writer}-{number}" for number in range(30)], "law D: each thread's order"
    assert sorted(delivered) == sorted(value.encode() for value in held)


def test_what_was_landed_is_not_published_over(spark: SparkSession, make_lake: MakeLake) -> None:
    mirror = make_lake()
    mirror.lake.create_all(["app"])
    row = {
        "cluster": "app",
        "role": "source",
        "kind": "topic",
        "topic": "orders",
        "generation": 1,
        "topic_id": "another id",
        "partitions": 1,
        "configs": {},
        "present": True,
        "observed_at": datetime.now(timezone.utc),
    }
    mirror.lake.append(METADATA, [row])
    with pytest.raises(UsageError, match="it was a Kafka cluster's"):
        mirror.publish(keyed(spark, 1), topic="orders")


def test_commands_on_a_lake_source(spark: SparkSession, make_lake: MakeLake) -> None:
    mirror = make_lake()
    mirror.publish(keyed(spark, 5), topic="orders")
    with pytest.raises(UsageError, match="is a lake cluster: applications publish"):
        mirror.land("app", once=True)
    with pytest.raises(UsageError, match="nothing to take over"):
        mirror["app->east"].takeover()
    assert len(mirror["app->east"].groups()) == len(mirror["app->east"].apply_groups()) == 0
    with pytest.raises(UsageError, match="is not a lake cluster"):
        mirror.publish(keyed(spark, 1), topic="orders", cluster="east")
    source = mirror._context.source("app")
    assert source.topic_names() == ["orders"]
    assert json.dumps(sorted(p.partition for p in source.last_stable_offsets(source.log_start_offsets([])))) == "[]"


def test_files_are_published_by_command(tmp_path: Path, make_lake: MakeLake) -> None:
    mirror = make_lake()
    conf = tmp_path / "mirror.yml"
    conf.write_text(json.dumps(mirror.config.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
    lines, table, broken = tmp_path / "orders.jsonl", tmp_path / "orders.parquet", tmp_path / "broken.jsonl"
    lines.write_text('{"id": 21, "v": "ä"}\n\n{"id":"foobar"}\n')
    broken.write_text('{"id": 1}\n{"id": \n')
    pq.write_table(pa.table({"value": pa.array([b"\xff", None]), "key": pa.array([b"21", None])}), table)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = run_cli("publish", "--conf", str(conf), "--topic", "orders", "--json", *arguments)
        return done.returncode, json.loads(done.stdout)

    for repeated in (False, True):
        code, document = run(str(lines), "--key", "id", "--batch-id", "b")
        assert (code, document["records"], document["repeated"]) == (0, 2, repeated)
    assert run(str(table))[1]["records"] == 2
    for arguments, problem in (
        ([str(broken)], "a line that is not JSON"),
        ([str(lines), "--key", "v"], "a record without the field 'v'"),
        ([str(table), "--key", "id"], "has no column 'id'"),
        ([str(tmp_path / "none.jsonl")], "does not exist"),
        ([str(lines), "--cluster", "east"], "'east' is not a lake cluster"),
    ):
        code, document = run(*arguments)
        assert (code, problem in document["cause"]) == (2, True), document
    held = [(row.key, row.value) for part in rows(mirror).values() for row in part]
    found = sorted((bytes(key or b""), bytes(value or b"")) for key, value in held)
    first, second = '{"id": 21, "v": "ä"}'.encode(), b'{"id":"foobar"}'
    assert found == [(b"", b""), (b"21", first), (b"21", b"\xff"), (b"foobar", second)]
    assert partition_for(b"21", 6) in rows(mirror)
