"""The offset map by key, set-based against the pure model: runs of one source partition overlap and interleave."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.lake.offset_map import read_and_unread, read_from, translated, translated_back, with_downstream
from mirrorlake.lake.schema import RELAY
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Exact, OffsetMap, Run, standing_at
from tests.builders import map_frame, map_row, run_over

SEED = 20261122
SOURCES, TARGETS, CHUNKS = 3, 4, 8


@dataclass
class Placed:
    """What was sent: runs, and the downstream place of each (source partition, upstream offset)."""

    runs: list[Run] = field(default_factory=list)
    truth: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def back(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {place: upstream for upstream, place in self.truth.items()}

    def of(self, source: int) -> list[Run]:
        return [run for run in self.runs if run.source.partition == source]


@pytest.fixture(scope="module")
def placed() -> Placed:
    rng = random.Random(SEED)
    upstream = [rng.randint(0, 9) for _ in range(SOURCES)]
    ends = [rng.randint(0, 9) for _ in range(TARGETS)]
    found = Placed()
    for _ in range(CHUNKS):
        for source in rng.sample(range(SOURCES), SOURCES):
            chunk: dict[int, list[int]] = {}
            for _ in range(rng.randint(0, 60)):
                upstream[source] += rng.choice([0, 0, 0, 1, 4])
                # The last target partition gets nothing of the first source partition.
                chunk.setdefault(rng.randrange(TARGETS - (source == 0)), []).append(upstream[source])
                upstream[source] += 1
            for target, offsets in chunk.items():
                ends_at = {"source": SourcePartition("orders", 1, source), "target": TopicPartition("a.orders", target)}
                found.runs.append(run_over(offsets, ends[target], **ends_at))
                found.truth |= {(source, o): (target, ends[target] + i) for i, o in enumerate(offsets)}
                ends[target] += len(offsets) + rng.choice([0, 1])
    return found


@pytest.fixture(scope="module")
def runs(spark: SparkSession, placed: Placed) -> Iterator[DataFrame]:
    frame = map_frame(spark, [map_row(run) for run in placed.runs]).cache()
    yield frame
    frame.unpersist()


def asked(spark: SparkSession, placed: Placed) -> DataFrame:
    last = max(offset for _, offset in placed.truth) + 4
    rows = [("orders", 1, source, offset) for source in range(SOURCES) for offset in range(last)]
    return spark.createDataFrame(rows, "topic string, generation int, partition int, offset bigint")


def test_every_upstream_offset_as_the_model_says(spark: SparkSession, placed: Placed, runs: DataFrame) -> None:
    maps = {source: OffsetMap(placed.of(source)) for source in range(SOURCES)}
    for row in translated(asked(spark, placed), runs).collect():
        model = maps[row.partition].translate(row.offset)
        assert row.status == model.status, f"seed {SEED}: {row}"
        if isinstance(model, Exact):
            place = placed.truth[row.partition, row.offset]
            assert (row.target_partition, row.downstream_offset) == place, f"seed {SEED}: {row}"
            assert (model.partition, model.offset) == (TopicPartition("a.orders", place[0]), place[1])


def test_every_downstream_offset_as_the_model_says(spark: SparkSession, placed: Placed, runs: DataFrame) -> None:
    last = max(offset for _, offset in placed.back) + 3
    points = spark.createDataFrame(
        [("a.orders", target, offset) for target in range(TARGETS) for offset in range(last)],
        "topic string, partition int, offset bigint",
    )
    for row in translated_back(points, runs).collect():
        upstream = placed.back.get((row.partition, row.offset))
        found = (row.source_partition, row.upstream_offset) if row.status == "exact" else None
        assert found == upstream, f"seed {SEED}: {row}"
        mine = [run for run in placed.runs if run.target.partition == row.partition]
        assert standing_at(mine, row.offset).status == row.status, f"seed {SEED}: {row}"


def test_verify_finds_every_record_at_its_place(spark: SparkSession, placed: Placed, runs: DataFrame) -> None:
    columns = ["topic", "generation", "partition", "offset", "timestamp", "key", "value", "headers"]
    schema = ", ".join(f"{name} {RELAY.columns[name][0]}" for name in columns)
    rows = [("orders", 1, s, o, None, b"k", b"%d/%d" % (s, o), None) for s, o in placed.truth]
    found = with_downstream(spark.createDataFrame(rows, schema), runs).collect()
    assert {(row.partition, row.offset): bytes(row.value) for row in found} == {
        place: b"%d/%d" % upstream for upstream, place in placed.truth.items()
    }


@pytest.mark.law("A")
def test_law_a_what_is_read_and_what_is_not_on_every_target_partition(
    spark: SparkSession, placed: Placed, runs: DataFrame
) -> None:
    seen = 0
    for row in read_and_unread(asked(spark, placed), runs).collect():
        mine = {o: p for (s, o), (t, p) in placed.truth.items() if s == row.partition and t == row.target_partition}
        assert row.last_read == max((p for o, p in mine.items() if o < row.offset), default=None), f"seed {SEED}: {row}"
        assert row.first_unread == min((p for o, p in mine.items() if o >= row.offset), default=None), f"{SEED}: {row}"
        assert row.republished_from == min(o for s, o in placed.truth if s == row.partition)
        seen += 1
    ways = {(s, t) for (s, _), (t, _) in placed.truth.items()}
    assert seen == asked(spark, placed).count() // SOURCES * len(ways), "a row for each target partition"


def test_how_many_records_are_read_again(spark: SparkSession, placed: Placed, runs: DataFrame) -> None:
    rng = random.Random(SEED + 1)
    points = set()
    for _ in range(200):
        (source, offset), (target, place) = rng.choice(sorted(placed.truth.items()))
        points.add(("orders", 1, source, offset + rng.randint(0, 30), "a.orders", target, place - rng.randint(0, 30)))
    columns = "topic string, generation int, partition int, offset bigint, target_topic string, target_partition int, place bigint"
    found = {
        tuple(row)[:-1]: row.records_again
        for row in read_from(spark.createDataFrame(sorted(points), columns), runs).collect()
    }
    for point in points:
        _, _, source, offset, _, target, place = point
        expected = sum(
            1 for (s, o), (t, p) in placed.truth.items() if (s, t) == (source, target) and o < offset and p >= place
        )
        assert found.get(point, 0) == expected, f"seed {SEED}: {point}"


def test_a_partition_that_nothing_is_known_of(spark: SparkSession, runs: DataFrame) -> None:
    points = spark.createDataFrame([("clicks", 1, 0, 5)], "topic string, generation int, partition int, offset bigint")
    [row] = read_and_unread(points, runs).collect()
    assert (row.target_topic, row.last_read, row.first_unread, row.republished_from) == (None, None, None, None)
