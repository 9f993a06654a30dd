"""SQL over the lake: names, and the queries of its page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.errors import UsageError
from mirrorlake.lake import OFFSET_MAP, POSITIONS, position_row
from mirrorlake.lake.metadata import KnownTopic, acl_row, topic_row
from mirrorlake.lake.schema import METADATA, RELAY
from mirrorlake.mirror import Mirror, from_settings
from mirrorlake.model.flow import SourcePartition
from tests.builders import READ
from tests.kit.lake import map_row
from tests.spark.frames import assert_rows

NOW = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
BINARY = b"\xff\xfe{}"


@pytest.fixture
def mirror(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> Mirror:
    shutil.copytree(empty_lake, tmp_path / "lake")
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "west", "central")}
    flows = [{"source": alias, "target": "central", "topics": ".*"} for alias in ("east", "west")]
    settings = {"lake": {"root": str(tmp_path / "lake")}, "clusters": clusters, "flows": flows}
    return from_settings(settings, spark=spark)


def land(mirror: Mirror, source: str, topic: str, values: Iterable[bytes | None]) -> None:
    write(mirror, source, topic, ((offset, 0, b"k", value, None) for offset, value in enumerate(values)))


def write(mirror: Mirror, source: str, topic: str, records: Iterable[tuple[Any, ...]]) -> None:
    """Land records of (offset, seconds after noon, key, value, hop or None)."""
    rows = [
        (topic, 1, 0, offset, NOW + timedelta(seconds=at), 0, key, value, hop and [("mirrorlake.hop", hop)], NOW)
        for offset, at, key, value, hop in records
    ]
    frame = mirror.spark.createDataFrame(rows, schema=RELAY.ddl)
    mirror.lake.append_frame(frame, mirror.lake.relay_location(source))


def test_tables_of_the_lake_have_names(mirror: Mirror) -> None:
    land(mirror, "east", "orders", [b"1", BINARY])
    land(mirror, "west", "orders", [None])
    assert_rows(
        mirror.sql("SELECT source, offset, value_text FROM records"),
        "source string, offset bigint, value_text string",
        [("east", 0, "1"), ("east", 1, None), ("west", 0, None)],
    )
    counted = mirror.sql("SELECT count(*) AS n FROM relay_east WHERE topic = :topic", topic="orders")
    assert_rows(counted, "n bigint", [(2,)])
    assert_rows(mirror.sql("SELECT count(*) AS n FROM GAPS"), "n bigint", [(0,)])


def test_a_source_that_was_never_landed_is_no_hindrance(mirror: Mirror) -> None:
    land(mirror, "east", "orders", [b'{"n": 1}'])
    shutil.rmtree(mirror.lake.relay_location("west"))
    assert_rows(mirror.sql("SELECT count(*) AS n FROM records"), "n bigint", [(1,)])
    with pytest.raises(UsageError, match="relay_west is not in the lake yet"):
        mirror.sql("TABLE relay_west")


def test_a_lake_without_tables_says_what_makes_them(spark: SparkSession, tmp_path: Path) -> None:
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("a", "b")}
    settings = {
        "lake": {"root": str(tmp_path / "none")},
        "clusters": clusters,
        "flows": [{"source": "a", "target": "b", "topics": ".*"}],
    }
    with pytest.raises(
        UsageError, match=r"records is not in the lake yet; the query was not run. Next: mirrorlake apply"
    ):
        from_settings(settings, spark=spark).sql("SELECT * FROM records")


def of_the_page(heading: str) -> list[str]:
    """Return the statements under a heading of docs/sql.md."""
    page = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
    [part] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    found = re.findall(r"```sql\n(.*?)```", part, re.DOTALL)
    assert found, heading
    return found


def test_the_page_tells_what_was_and_what_changed(mirror: Mirror) -> None:
    lake, day = mirror.lake, datetime(2026, 1, 1, tzinfo=timezone.utc)
    old = KnownTopic(name="orders", generation=1, topic_id="a", partitions=3, configs={"retention.ms": "1"})
    grown, gone = replace(old, partitions=6, configs={}), replace(old, present=False)
    states = (("east", old, -1), ("east", grown, 12), ("west", old, -1), ("west", gone, 13))
    lake.append(METADATA, [topic_row(at, "source", topic, day + timedelta(hours=h)) for at, topic, h in states])
    lake.append(METADATA, [acl_row("east", READ, day + timedelta(hours=14), present=True)])
    place, late = SourcePartition("orders", 1, 0), day + timedelta(days=1, hours=1)
    seen = ((5, day), (9, day + timedelta(hours=1)), (11, late))
    lake.append(POSITIONS, [position_row("east", place, "group", offset, at, group="g") for offset, at in seen])
    was, changed, groups = of_the_page("What was, and what changed")
    for answer in (lambda text: mirror.sql(text).toArrow(), mirror.query):
        [topic] = answer(was).to_pylist()
        assert (topic["cluster"], topic["partitions"], dict(topic["configs"])) == ("east", 6, {})
        rows = answer(changed).to_pylist()
        found = [(r["cluster"], r["topic"], r["present"], r["partitions"], r["partitions_before"]) for r in rows]
        assert found == [
            ("east", "orders", True, 6, 3),
            ("west", "orders", False, 3, 3),
            ("east", None, True, None, None),
        ]
        assert (dict(rows[0]["configs_before"]), rows[2]["acl"]["principal"]) == ({"retention.ms": "1"}, "User:a")
        [group] = answer(groups).to_pylist()
        assert (group["group_id"], group["topic"], group["partition"], group["position"]) == ("g", "orders", 0, 9)


def test_the_page_reads_json(mirror: Mirror) -> None:
    sold = [
        b'{"customer": "ada", "amount": 1.10}',
        b'{"customer": "bob", "amount": 5}',
        b'{"customer": "ada", "amount": 2}',
    ]
    land(mirror, "east", "sales", [*sold, None, b'{"amount": ', b"[1]", BINARY])
    [query] = of_the_page("A look at JSON")
    found = [(row.customer, row.amount and str(row.amount)) for row in mirror.sql(query).collect()]
    assert found == [("bob", "5.00"), ("ada", "3.10"), (None, None)]


def test_the_page_pairs_records_with_one_key_that_two_regions_wrote_within_a_time(mirror: Mirror) -> None:
    east = [
        (0, 0, b"k", b"1", None),
        (1, 10, b"same", b"x", None),
        (2, 20, b"k", b"2", b"west/orders/0/0"),
        (3, 30, None, b"1", None),
        (4, 100, b"far", b"1", None),
        (5, 40, b"gone", None, None),
    ]
    west = [
        (0, 20, b"k", b"2", None),
        (1, 10, b"same", b"x", None),
        (2, 0, b"k", b"1", b"east/orders/0/0"),
        (3, 30, None, b"1", None),
        (4, 401, b"far", b"2", None),
        (5, 39, b"gone", b"", None),
        (6, 300, b"k", b"3", None),
        (7, 301, b"k", b"4", None),
    ]
    for source, records in (("east", east), ("west", west)):
        write(mirror, source, "orders", records)
    [query] = of_the_page("Same key, two regions")
    assert_rows(
        mirror.sql(query).select("key_text", "source", "offset", "other", "other_offset", "same_value"),
        "key_text string, source string, offset bigint, other string, other_offset bigint, same_value boolean",
        [
            ("k", "east", 0, "west", 0, False),
            ("k", "east", 0, "west", 6, False),
            ("same", "east", 1, "west", 1, True),
            ("gone", "east", 5, "west", 5, False),
        ],
    )


def test_the_page_finds_the_places_of_records_on_the_target(mirror: Mirror) -> None:
    write(mirror, "east", "orders", ((at, 0, b"k", b"v", None) for at in (1099, 1100, 1101, 1104, 1105, 1106)))
    # 1104 was withheld, 1106 is not sent yet.
    sent = map_row([1099, 1100, 1101, 1105], 7, target_partition=2)
    mirror.lake.append(OFFSET_MAP, [sent])
    [query] = of_the_page("The same records on both sides")
    assert_rows(
        mirror.sql(query).select("offset", "target_topic", "target_partition", "downstream_offset"),
        "offset bigint, target_topic string, target_partition int, downstream_offset bigint",
        [
            (1100, "east.orders", 2, 8),
            (1101, "east.orders", 2, 9),
            (1104, None, None, None),
            (1105, "east.orders", 2, 10),
            (1106, None, None, None),
        ],
        in_order=True,
    )
