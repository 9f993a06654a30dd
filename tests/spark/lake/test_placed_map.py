"""The offset map by key, set-based against the pure model: runs of one source partition overlap and interleave."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.lake.offset_map import translated, translated_back
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Exact, OffsetMap, standing_at
from tests.builders import Placed, placed_by_key, row_of
from tests.kit.lake import arrow
from tests.spark.frames import assert_rows

SEED = 20261122
SOURCES, TARGETS = 3, 4


@pytest.fixture(scope="module")
def placed() -> Placed:
    return placed_by_key(random.Random(SEED), sources=SOURCES, targets=TARGETS)


@pytest.fixture(scope="module")
def runs(spark: SparkSession, placed: Placed) -> Iterator[DataFrame]:
    frame = spark.createDataFrame(arrow("offset_map", [row_of(run) for run in placed.runs])).cache()
    yield frame
    frame.unpersist()


def asked(spark: SparkSession, placed: Placed) -> DataFrame:
    last = max(offset for _, offset in placed.truth) + 4
    rows = [("orders", 1, source, offset) for source in range(SOURCES) for offset in range(last)]
    return spark.createDataFrame(rows, "topic string, generation int, partition int, offset bigint")


def test_every_upstream_offset_as_the_model_says(spark: SparkSession, placed: Placed, runs: DataFrame) -> None:
    maps = {source: OffsetMap(placed.of(source)) for source in range(SOURCES)}
    points, expected = asked(spark, placed), []
    for row in points.collect():
        model, place = maps[row.partition].translate(row.offset), (None, None)
        if isinstance(model, Exact):
            place = placed.truth[row.partition, row.offset]
            assert (model.partition, model.offset) == (TopicPartition("a.orders", place[0]), place[1])
        expected.append((row.partition, row.offset, model.status, *place))
    exact_only = "CASE WHEN status = 'exact' THEN target_partition END AS target_partition"
    found = translated(points, runs).selectExpr("partition", "offset", "status", exact_only, "downstream_offset")
    schema = "partition int, offset bigint, status string, target_partition int, downstream_offset bigint"
    assert_rows(found, schema, expected)


def test_every_downstream_offset_as_the_model_says(spark: SparkSession, placed: Placed, runs: DataFrame) -> None:
    last = max(offset for _, offset in placed.back) + 3
    points = spark.createDataFrame(
        [("a.orders", target, offset) for target in range(TARGETS) for offset in range(last)],
        "topic string, partition int, offset bigint",
    )
    expected = []
    for row in points.collect():
        mine = [run for run in placed.runs if run.target.partition == row.partition]
        upstream = placed.back.get((row.partition, row.offset), (None, None))
        expected.append((row.partition, row.offset, standing_at(mine, row.offset).status, *upstream))
    found = translated_back(points, runs).select("partition", "offset", "status", "source_partition", "upstream_offset")
    schema = "partition int, offset bigint, status string, source_partition int, upstream_offset bigint"
    assert_rows(found, schema, expected)
