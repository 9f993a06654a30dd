"""Same-key conflicts of two regions: who wrote what when, and only what was born there."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorlake.lake.schema import RELAY
from mirrorlake.records.conflicts import same_key_conflicts

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def relay(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """Rows of (offset, seconds after noon, key, value, hop or None)."""
    return spark.createDataFrame(
        [
            ("t", 1, 0, offset, NOON + timedelta(seconds=at), 0, key, value, hop and [("mirrorlake.hop", hop)], NOON)
            for offset, at, key, value, hop in rows
        ],
        RELAY.ddl,
    )


def test_records_with_one_key_that_two_regions_wrote_within_a_time_are_pairs(spark: SparkSession) -> None:
    east = relay(
        spark,
        (0, 0, b"k", b"1", None),
        (1, 10, b"same", b"x", None),
        (2, 20, b"k", b"2", b"west/t/0/0"),
        (3, 30, None, b"1", None),
        (4, 100, b"far", b"1", None),
        (5, 40, b"gone", None, None),
    )
    west = relay(
        spark,
        (0, 20, b"k", b"2", None),
        (1, 10, b"same", b"x", None),
        (2, 0, b"k", b"1", b"east/t/0/0"),
        (3, 30, None, b"1", None),
        (4, 161, b"far", b"2", None),
        (5, 39, b"gone", b"", None),
        (6, 60, b"k", b"3", None),
        (7, 61, b"k", b"4", None),
    )
    pairs = same_key_conflicts({"east": east, "west": west}, within=timedelta(minutes=1))
    found = {
        (row.key.decode(), row.first_source, row.first_offset, row.second_source, row.second_offset): (
            row.apart_ms,
            row.same_value,
        )
        for row in pairs.collect()
    }
    assert found == {
        ("k", "east", 0, "west", 0): (20_000, False),
        ("k", "east", 0, "west", 6): (60_000, False),
        ("same", "east", 1, "west", 1): (0, True),
        ("gone", "west", 5, "east", 5): (1_000, False),
    }
    assert pairs.count() == len(found), "no pair twice"
