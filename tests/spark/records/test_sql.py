"""SQL over the lake: names, typed JSON, and what is neither JSON nor text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from mirrorlake.errors import UsageError
from mirrorlake.lake import POSITIONS, position_row
from mirrorlake.lake.metadata import KnownTopic, acl_row, topic_row
from mirrorlake.lake.schema import METADATA, RELAY
from mirrorlake.mirror import Mirror, from_settings
from mirrorlake.model.acls import Acl
from mirrorlake.model.flow import SourcePartition

NOW = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
BINARY = b"\xff\xfe{}"


@pytest.fixture
def mirror(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> Mirror:
    shutil.copytree(empty_lake, tmp_path / "lake")
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "west", "central")}
    flows = [{"source": alias, "target": "central", "topics": ".*"} for alias in ("east", "west")]
    settings = {"lake": {"root": str(tmp_path / "lake")}, "clusters": clusters, "flows": flows}
    return from_settings(settings, spark=spark)


def land(mirror: Mirror, source: str, topic: str, values: Iterable[bytes | None], *, first: int = 0) -> None:
    rows = [
        (topic, 1, 0, offset, NOW, 0, b"k", None if value is None else bytearray(value), None, NOW)
        for offset, value in enumerate(values, first)
    ]
    frame = mirror.spark.createDataFrame(rows, schema=RELAY.ddl)
    mirror.lake.append(frame, mirror.lake.relay_location(source))


def values(mirror: Mirror, query: str, **given: Any) -> list[Row]:
    return mirror.sql(query, **given).collect()


def test_tables_of_the_lake_have_names(mirror: Mirror) -> None:
    land(mirror, "east", "orders", [b"1", BINARY])
    land(mirror, "west", "orders", [None])
    found = values(mirror, "SELECT source, offset, value_text FROM records ORDER BY source, offset")
    assert [tuple(row) for row in found] == [("east", 0, "1"), ("east", 1, None), ("west", 0, None)]
    assert values(mirror, "SELECT count(*) FROM relay_east WHERE topic = :topic", topic="orders")[0][0] == 2
    assert values(mirror, "SELECT count(*) FROM GAPS")[0][0] == 0


def test_a_source_that_was_never_landed_is_no_hindrance(mirror: Mirror) -> None:
    land(mirror, "east", "orders", [b'{"n": 1}'])
    shutil.rmtree(mirror.lake.relay_location("west"))
    assert values(mirror, "SELECT count(*) FROM records")[0][0] == 1
    assert mirror.json_view("orders").count() == 1
    with pytest.raises(UsageError, match="relay_west is not in the lake yet"):
        mirror.sql("TABLE relay_west")


def test_json_has_types_and_what_is_none_keeps_its_text(mirror: Mirror) -> None:
    odd = [
        b'{"amount": 1.5, "lines": [{"item": "book"}]}',
        None,
        b'{"amount": ',
        b"[1]",
        BINARY,
        b'{"amount": 2, "new": true}',
    ]
    land(mirror, "east", "sales.eu", odd)
    view = mirror.json_view("sales.eu")
    assert dict(view.select("value.*").dtypes) == {
        "amount": "double",
        "lines": "array<struct<item:string>>",
        "new": "boolean",
    }
    found = values(
        mirror, "SELECT value.amount AS amount, value IS NULL AS odd, value_text FROM sales_eu ORDER BY offset"
    )
    assert [row.amount for row in found] == [1.5, None, None, None, None, 2.0]
    assert [row.value_text for row in found if row.odd] == [None, '{"amount": ', "[1]", None]


def test_a_view_shows_what_lands_later(mirror: Mirror) -> None:
    land(mirror, "east", "orders", [b'{"n": 1}'])
    mirror.json_view("orders", name="o")
    land(mirror, "east", "orders", [b'{"n": 2}'], first=1)
    assert {row.n for row in values(mirror, "SELECT value.n AS n FROM o")} == {1, 2}


def test_a_type_that_is_given_is_taken(mirror: Mirror) -> None:
    land(mirror, "east", "orders", [b'{"n": 1.10}'])
    view = mirror.json_view("orders", schema="STRUCT<n: DECIMAL(12,2)>")
    assert str(view.select("value.n").first()[0]) == "1.10"


def test_a_topic_without_json_gets_no_view(mirror: Mirror) -> None:
    land(mirror, "east", "plain", [b"text", None])
    with pytest.raises(
        UsageError, match="no value of plain in the relays of east, west is a JSON object; no view was made"
    ):
        mirror.json_view("plain")


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
    reader = Acl(
        resource="TOPIC",
        name="t",
        pattern="LITERAL",
        principal="User:a",
        host="*",
        operation="READ",
        permission="ALLOW",
    )
    lake.append_rows(METADATA, [topic_row(at, "source", topic, day + timedelta(hours=h)) for at, topic, h in states])
    lake.append_rows(METADATA, [acl_row("east", reader, day + timedelta(hours=14), present=True)])
    place, late = SourcePartition("orders", 1, 0), day + timedelta(days=1, hours=1)
    seen = ((5, day), (9, day + timedelta(hours=1)), (11, late))
    lake.append_rows(POSITIONS, [position_row("east", place, "group", offset, at, group="g") for offset, at in seen])
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
