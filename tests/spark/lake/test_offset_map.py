"""The offset map over tables of offsets: 40 000 random look-ups each way against the truth, none wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.lake.offset_map import translated, translated_back
from tests.kit.lake import arrow, map_row
from tests.spark.frames import assert_rows

SEED = 20261121
LOOKUPS = 40_000


@dataclass(frozen=True)
class Line:
    """One source partition: which upstream offsets hold records, and where each one went."""

    topic: str
    generation: int
    partition: int
    upstream: np.ndarray[Any, np.dtype[np.int64]]
    downstream: np.ndarray[Any, np.dtype[np.int64]]
    runs: list[dict[str, Any]]


def make_line(rng: np.random.Generator, topic: str, generation: int, partition: int, *, marker_every: int) -> Line:
    """Make a partition with a hole about every `marker_every` records, compaction, and transactions on the target."""
    up, down, runs = int(rng.integers(0, 50)), int(rng.integers(0, 50)) + generation * 10**6, []
    upstream, downstream = [], []
    for seq in range(60):
        steps = np.where(rng.random(int(rng.integers(1, 2000))) < 1 / marker_every, rng.integers(2, 9), 1)
        offsets = up + np.concatenate([[0], np.cumsum(steps[:-1])]).astype(np.int64)
        last = int(offsets[-1])
        more = {"generation": generation, "target_topic": f"a.{topic}", "ledger_seq": seq}
        runs.append(map_row(offsets.tolist(), down, topic, partition, **more))
        upstream.append(offsets)
        downstream.append(down + np.arange(len(offsets)))
        up, down = last + 1 + int(rng.integers(0, 3)), down + len(offsets) + 1
    return Line(topic, generation, partition, np.concatenate(upstream), np.concatenate(downstream), runs)


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    rng = np.random.default_rng(SEED)
    return [
        make_line(rng, "plain", 1, 0, marker_every=10_000),
        make_line(rng, "plain", 1, 1, marker_every=500),
        make_line(rng, "transactional", 1, 0, marker_every=3),
        make_line(rng, "transactional", 2, 0, marker_every=5),
    ]


@pytest.fixture(scope="module")
def runs(spark: SparkSession, lines: list[Line]) -> Iterator[DataFrame]:
    rows = [run for line in lines for run in line.runs]
    # A ledger record that was read again is a copy, not a second run.
    frame = spark.createDataFrame(arrow("offset_map", [*rows, *rows[::7]])).cache()
    yield frame
    frame.unpersist()


def as_frame(spark: SparkSession, rows: pd.DataFrame) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False))


@pytest.mark.law("A", "B")
def test_law_a_and_b_upstream_offsets_by_chance(spark: SparkSession, lines: list[Line], runs: DataFrame) -> None:
    rng = np.random.default_rng(SEED + 1)
    asked = pd.concat(
        pd.DataFrame(
            {
                "topic": line.topic,
                "partition": line.partition,
                "generation": line.generation,
                "offset": rng.integers(0, line.upstream[-1] + 500, LOOKUPS // len(lines)),
            }
        )
        for line in lines
    )
    found = translated(as_frame(spark, asked), runs).toArrow().to_pandas()
    assert len(found) == len(asked), "every question has one answer"
    for line in lines:
        mine = found[
            (found.topic == line.topic) & (found.generation == line.generation) & (found.partition == line.partition)
        ]
        offset = mine.offset.to_numpy()
        after = np.searchsorted(line.upstream, offset)
        exact = (after < len(line.upstream)) & (line.upstream[np.minimum(after, len(line.upstream) - 1)] == offset)
        expected = np.select(
            [exact, offset < line.upstream[0], offset > line.upstream[-1]],
            ["exact", "before_the_first", "not_yet_republished"],
            "in_a_hole",
        )
        assert (mine.status.to_numpy() == expected).all(), f"seed {SEED}: {line.topic} {line.generation}"
        assert (mine.downstream_offset.to_numpy()[exact] == line.downstream[after[exact]]).all(), f"seed {SEED}"
        assert mine.downstream_offset[~exact].isna().all()
        position = mine.position.to_numpy().astype(np.int64)
        following = np.append(line.downstream, np.iinfo(np.int64).max)[after]
        preceding = np.insert(line.downstream, 0, -1)[after]
        assert (position <= following).all(), f"law A: a position skips a record that was not read (seed {SEED})"
        assert (position > preceding).all(), f"a position goes back further than it must (seed {SEED})"
        in_a_hole = expected == "in_a_hole"
        assert (position[in_a_hole] == preceding[in_a_hole] + 1).all(), "law A: right after the last record, as for one"


@pytest.mark.law("E")
def test_downstream_offsets_by_chance(spark: SparkSession, lines: list[Line], runs: DataFrame) -> None:
    rng = np.random.default_rng(SEED + 2)
    asked = pd.concat(
        pd.DataFrame(
            {
                "topic": f"a.{line.topic}",
                "partition": line.partition,
                "offset": rng.integers(line.downstream[0], line.downstream[-1] + 1, LOOKUPS // len(lines)),
            }
        )
        for line in lines
    )
    found = translated_back(as_frame(spark, asked), runs).toArrow().to_pandas()
    assert len(found) == len(asked)
    for line in lines:
        mine = found[
            (found.topic == f"a.{line.topic}")
            & (found.partition == line.partition)
            & (found.offset >= line.downstream[0])
            & (found.offset <= line.downstream[-1])
        ]
        offset = mine.offset.to_numpy()
        at = np.searchsorted(line.downstream, offset)
        exact = line.downstream[at] == offset
        assert (mine.status.to_numpy() == np.where(exact, "exact", "in_a_hole")).all(), f"seed {SEED}"
        assert (mine.upstream_offset.to_numpy()[exact] == line.upstream[at[exact]]).all(), f"seed {SEED}"
        assert (mine.generation.to_numpy()[exact] == line.generation).all()


def test_the_newest_life_of_a_topic_is_meant_where_none_is_named(spark: SparkSession, runs: DataFrame) -> None:
    asked = spark.createDataFrame(
        [("transactional", 0, 10, "mine"), ("unheard", 0, 10, "too")],
        "topic string, partition int, offset bigint, note string",
    )
    found = translated(asked, runs)
    assert_rows(
        found.select("topic", "note"), "topic string, note string", [("transactional", "mine"), ("unheard", "too")]
    )
    assert_rows(found.where("note = 'mine'").select("generation"), "generation int", [(2,)])
    unheard = found.where("note = 'too'").select("status", "position")
    assert_rows(unheard, "status string, position bigint", [("unknown_partition", None)])
