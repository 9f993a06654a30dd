"""Lag, latency and RPO out of generated tables: every figure is known beforehand.

    offset      0    1    2    3         4        5 .. 9      10, 11
    timestamp   +0s  +1s  +2s  +3s       -        +5s .. +9s  not landed
                               filtered  control

Sampling moments: +5 s, +20 s, +30 s (nothing new), +40 s (the source does not answer), +50 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mirrorlake.lag.sql import (
    LAG_COLUMNS,
    LATENCY_COLUMNS,
    RPO_COLUMNS,
    LagQuery,
    LagTables,
    lag,
    latency,
    materialize_hops,
    rpo,
)
from mirrorlake.lag.sql_views import create_views
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.config.loading import loads
from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lake import relay_part
from mirrorlake.lake.duckdb_query import to_rows
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.samples import load_last_samples, prune_samples
from mirrorlake.lake.schema import POSITIONS, SAMPLES
from mirrorlake.model.flow import SourcePartition
from tests.kit.lake import FLOW, NOON, Row, arrow, map_row, position_rows, rows, sample_rows
from tests.spark.frames import assert_rows
from tests.unit.lag.kit import at

LANDED = (0, 1, 2, 3, 5, 6, 7, 8, 9)


def pos(
    seconds: float,
    kind: str,
    position: int | None,
    *,
    topic: str = "t",
    generation: int = 1,
    group: str | None = None,
    cluster: str = "east",
) -> Row:
    [row] = position_rows(at(seconds), topic, generation, **{kind: position})
    return {**row, "source": cluster, "group_id": group}


def looks(seconds: float, *, complete: bool = False, error: str = "") -> list[Row]:
    return sample_rows(at(seconds), complete=complete, error=error)


def record(offset: int, *, generation: int = 1) -> Row:
    return rows("t", 0, offset, generation=generation, timestamp=at(offset), landed_at=at(offset + 1))[0]


Question = Callable[[LagTables], LagQuery]
Ask = Callable[[Question, LagTables], list[Any]]

by_minute = partial(latency, bucket_s=60)


def ask_duckdb(question: Question, about: LagTables) -> list[Any]:
    """Ask as lag of a folder does: where positions stood is made first."""
    return question(materialize_hops(about)).rows()


def ask_spark(question: Question, about: LagTables) -> list[Any]:
    return to_rows(question(about).frame().toArrow())


@pytest.fixture(scope="module", params=[ask_duckdb, ask_spark], ids=["duckdb", "spark"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Ask either engine."""
    return request.param  # type: ignore[no-any-return]


def tables(
    spark: SparkSession,
    positions: list[Row],
    samples: list[Row],
    *,
    relay: Sequence[Row] = (),
    offset_map: Sequence[Row] = (),
    withheld: Sequence[Row] = (),
) -> LagTables:
    held = {"positions": positions, "samples": samples, "offset_map": offset_map, "withheld": withheld, "relay": relay}
    flow = {"flow": FLOW, "source": "east", "target": "central"}
    return LagTables(
        lake=Lake(spark, LakeConfig(root="/nowhere")),
        relays="(SELECT 'east' AS source, topic, generation, partition, `offset`, timestamp FROM {relay})",
        tables={
            **{name: arrow(name, some) for name, some in held.items()},
            "flows": pa.Table.from_pylist([flow]),
        },
    )


@pytest.fixture(scope="module")
def story(spark: SparkSession) -> LagTables:
    """One partition over five moments; group `billing` reads on the source, `audit` on the target."""
    positions = [
        *(pos(5, "last_stable", 5), pos(5, "reached", 3), pos(5, "republished", 2)),
        *(pos(5, "group", 0, group="billing"), pos(5, "group", 102, group="audit", topic="east.t", cluster="central")),
        *(pos(20, "last_stable", 10), pos(20, "reached", 10), pos(20, "republished", 3)),
        *(
            pos(20, "group", 8, group="billing"),
            pos(20, "group", 103, group="audit", topic="east.t", cluster="central"),
        ),
        # Billing was set back; audit went away.
        *(pos(30, "republished", 10), pos(30, "group", 1, group="billing")),
        pos(30, "group", None, group="audit", topic="east.t", cluster="central"),
        *(pos(50, "last_stable", 12), pos(50, "group", 12, group="billing")),
        pos(50, "group", 108, group="audit", topic="east.t", cluster="central"),
        # Another observer wrote this one: it belongs to no look of a sampler.
        pos(21, "group", 9, group="billing"),
    ]
    samples = [*looks(5, complete=True), *looks(20), *looks(30), *looks(40, error="it is away"), *looks(50)]
    kept_back = {"flow": FLOW, "topic": "t", "generation": 1, "partition": 0, "first_offset": 3, "last_offset": 3}
    kept_back |= {"ranges": [{"first": 3, "length": 1}]}
    sent = map_row([0, 1, 2, 5, 6, 7, 8, 9], 100, "t", committed_at=at(30))
    return tables(
        spark,
        positions,
        samples,
        relay=[record(offset) for offset in LANDED],
        offset_map=[sent, sent],
        withheld=[kept_back],
    )


@pytest.fixture(scope="module")
def frame_of(story: LagTables) -> Callable[[Question], DataFrame]:
    """Each question about the story, which Spark analyses once."""
    return cache(lambda question: question(story).frame())


@pytest.fixture(scope="module")
def told(story: LagTables, ask: Ask, frame_of: Callable[[Question], DataFrame]) -> Callable[[Question], list[Any]]:
    """What either engine answers about the story."""
    return lambda question: to_rows(frame_of(question).toArrow()) if ask is ask_spark else ask(question, story)


@pytest.fixture(scope="module")
def lags(told: Callable[[Question], list[Any]]) -> dict[tuple[float, str, str | None], Any]:
    rows = told(lag)
    assert list(vars(rows[0])) == list(LAG_COLUMNS)
    found = {((row.observed_at - NOON).total_seconds(), row.hop, row.group_id): row for row in rows}
    assert len(found) == len(rows), "each moment, hop and group has one row"
    return found


def test_the_columns_of_a_frame_have_the_types_of_the_docs(frame_of: Callable[[Question], DataFrame]) -> None:
    for question, columns in ((lag, LAG_COLUMNS), (rpo, RPO_COLUMNS), (by_minute, LATENCY_COLUMNS)):
        held = [(field.name, field.dataType.simpleString()) for field in frame_of(question).schema]
        assert held == [(name, kind) for name, (kind, _) in columns.items()]


def brief(row: Any) -> tuple[Any, ...]:
    """Position, offset lag, seconds after noon since which a record waited, time lag in seconds."""
    since = row.waiting_since and (row.waiting_since - NOON).total_seconds()
    return row.position, row.offset_lag, since, None if row.time_lag_ms is None else row.time_lag_ms / 1000


@pytest.mark.parametrize(
    ("seconds", "hop", "group", "expected"),
    [
        # What was not landed then is in the relay now: the past is exact.
        (5, "landed", None, (3, 2, 3, 2)),
        (5, "republished", None, (2, 3, 2, 3)),
        (5, "consumed", "billing", (0, 5, 0, 5)),
        # 102 on the target is 2 on the source.
        (5, "consumed", "audit", (2, 3, 2, 3)),
        (20, "landed", None, (10, 0, None, 0)),
        # Nobody waits for record 3, a rule kept it from the target; 4 is a marker: 5 is the oldest that waits.
        (20, "republished", None, (3, 7, 5, 15)),
        (20, "consumed", "billing", (8, 2, 8, 12)),
        # It has read everything that was republished.
        (20, "consumed", "audit", (3, 7, 5, 15)),
        # Idle: nothing was written of the ends, and it was looked at.
        (30, "landed", None, (10, 0, None, 0)),
        (30, "republished", None, (10, 0, None, 0)),
        # A rewind is a position like any other.
        (30, "consumed", "billing", (1, 9, 1, 29)),
        # The source did not answer: its end is not known; nothing that is landed waits.
        (40, "landed", None, (10, None, None, 0)),
        (40, "republished", None, (10, None, None, 0)),
        # 10 and 11 are not landed yet: how long they wait is not known, and not made up.
        (50, "landed", None, (10, 2, None, None)),
        (50, "republished", None, (10, 2, None, None)),
        (50, "consumed", "billing", (12, 0, None, 0)),
        (50, "consumed", "audit", (10, 2, None, None)),
    ],
)
def test_lag_of_each_hop_at_each_moment(
    lags: dict[tuple[float, str, str | None], Any],
    seconds: float,
    hop: str,
    group: str | None,
    expected: tuple[Any, ...],
) -> None:
    assert brief(lags[seconds, hop, group]) == expected


def test_who_was_not_looked_at_and_who_was_gone_has_no_row(lags: dict[tuple[float, str, str | None], Any]) -> None:
    assert (40, "consumed", "billing") not in lags, "the source did not answer"
    assert (30, "consumed", "audit") not in lags, "the group was gone"
    assert len(lags) == 17


def test_a_position_says_which_cluster_holds_it(lags: dict[tuple[float, str, str | None], Any]) -> None:
    assert {(hop, group): row.cluster for (_, hop, group), row in lags.items()} == {
        ("landed", None): "east",
        ("republished", None): "central",
        ("consumed", "billing"): "east",
        ("consumed", "audit"): "central",
    }


def test_rpo_counts_the_records_that_the_target_lacked(told: Callable[[Question], list[Any]]) -> None:
    found = {(row.observed_at - NOON).total_seconds(): (row.records, row.data_ms, row.is_exact) for row in told(rpo)}
    assert found == {
        # 2 alone: 3 was filtered, 4 is a marker.
        5: (1, 3000, True),
        20: (5, 15_000, True),
        30: (0, 0, True),
        40: (0, 0, True),
        50: (2, None, False),
    }


def test_latency_is_told_from_every_record_once(told: Callable[[Question], list[Any]]) -> None:
    [row] = told(by_minute)
    # Records 0, 1, 2, 5 .. 9 arrived at +30 s.
    assert (row.bucket, row.flow, row.topic, row.records) == (NOON, FLOW, "t", 8)
    assert (row.p50_ms, row.max_ms) == (24_500, 30_000)
    assert row.p95_ms == pytest.approx(29_650)


def test_lives_of_a_topic_markers_at_an_end_and_a_sampler_that_was_started_again(spark: SparkSession) -> None:
    positions = [
        # `gone` was deleted while nobody looked; `t` was made again with one record in the old life not sent yet.
        *(pos(1, kind, 1, topic="gone") for kind in ("last_stable", "reached", "republished")),
        *(pos(1, "last_stable", 3), pos(1, "reached", 3), pos(1, "republished", 3)),
        *(pos(9, "last_stable", 3), pos(9, "reached", 3), pos(9, "republished", 2)),
        *(pos(9, kind, 6, generation=2) for kind in ("last_stable", "reached", "republished")),
        # 6 in the new life, and nothing but markers past 4: nobody waits for them.
        pos(9, "group", 4, generation=2, group="billing"),
    ]
    relay = [*(record(n) for n in range(3)), *(record(n, generation=2) for n in range(4))]
    about = tables(spark, positions, [*looks(1, complete=True), *looks(9, complete=True)], relay=relay)
    # By DuckDB alone: that Spark says the same of a text, the story shows, for ten seconds of CPU a question.
    rows = ask_duckdb(lag, about)
    found = {(row.topic, row.generation, row.hop): brief(row) for row in rows if row.observed_at == at(9)}
    assert found == {
        ("t", 1, "landed"): (3, 0, None, 0),
        ("t", 1, "republished"): (2, 1, 2, 7),
        ("t", 2, "landed"): (6, 0, None, 0),
        ("t", 2, "republished"): (6, 0, None, 0),
        ("t", 2, "consumed"): (4, 2, None, 0),
    }


@pytest.mark.parametrize("reached", ["by delta-rs", "by Spark only"])
def test_old_rows_go_and_the_newest_of_each_position_stays(
    spark: SparkSession, tmp_path: Path, reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path)))
    if reached == "by Spark only":
        monkeypatch.setattr(Lake, "open_maintenance", lambda *_: None)
    for table in (POSITIONS, SAMPLES):
        lake.create_side_table(table)
    positions = [
        *(pos(second, "last_stable", second) for second in (1, 2, 3, 9)),
        *(pos(second, "group", second, group="billing") for second in (1, 2)),
        pos(2, "landed", 2),
    ]
    lake.append_rows(POSITIONS, positions)
    lake.append_rows(SAMPLES, [*looks(1, complete=True), *looks(2), *looks(9)])
    assert not prune_samples(lake, before=at(5), now=at(10)), "a new lake holds nothing old"
    day = timedelta(days=1)
    assert prune_samples(lake, before=at(5), now=at(10) + day)
    assert not prune_samples(lake, before=at(10), now=at(11) + day), "once a day is enough"
    left = [("last_stable", 3), ("last_stable", 9), ("group", 2), ("landed", 2)]
    assert_rows(lake.meta(POSITIONS).select("kind", "position"), "kind string, position bigint", left)
    assert_rows(lake.meta(SAMPLES).select("observed_at").distinct(), "observed_at timestamp", [(at(9),)])


def test_a_sampler_remembers_what_was_seen_since_the_last_complete_look(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path)))
    for table in (POSITIONS, SAMPLES):
        lake.create_side_table(table)
    assert load_last_samples(lake).positions == {}
    positions = [
        *(pos(1, "last_stable", 1, topic=topic) for topic in ("gone", "t")),
        *(pos(2, kind, 2) for kind in ("last_stable", "earliest", "reached", "republished")),
        pos(3, "earliest", None),
        pos(3, "last_stable", 3),
        # Killed before it wrote the moment, and another observer.
        pos(4, "last_stable", 4),
        pos(5, "group", 5, group="billing"),
    ]
    lake.append_rows(POSITIONS, positions)
    lake.append_rows(SAMPLES, [*looks(1, complete=True), *looks(2, complete=True), *looks(3)])
    found = load_last_samples(lake)
    assert {(key.kind, offset) for held in found.positions.values() for key, offset in held.items()} == {
        ("last_stable", 3),
        ("reached", 2),
        ("republished", 2),
    }
    assert found.completed_at["cluster", "east"] == at(2)


def test_views_stay_in_a_catalog_and_the_sql_of_the_docs_runs(spark: SparkSession) -> None:
    config = loads(
        """
        lake: {catalog: spark_catalog, schema: lag_views, checkpoints: /nowhere}
        clusters: {east: {bootstrap_servers: "e:1"}, central: {bootstrap_servers: "c:1"}}
        flows: [{source: east, target: central, topics: t}]
        """
    )
    spark.sql("CREATE SCHEMA IF NOT EXISTS lag_views")
    try:
        lake = Lake(spark, config.lake)
        lake.create_all(["east"])
        created = create_views(lake, config.flows, days=1)
        assert created == [f"`spark_catalog`.`lag_views`.`{name}`" for name in ("lag", "latency", "rpo")]
        assert spark.table(created[1]).count() == 0
        spark.sql("USE lag_views")
        for name, columns in zip(created, (LAG_COLUMNS, LATENCY_COLUMNS, RPO_COLUMNS), strict=True):
            # Of the catalog: to analyse a view takes seconds.
            held = [(one.name, one.dataType) for one in spark.catalog.listColumns(name)]
            assert held == [(column, kind) for column, (kind, _) in columns.items()]
            # In place of the view, whose question the tests above ask: the SQL of the docs needs its columns.
            empty = spark.createDataFrame([], ", ".join(f"{column} {kind}" for column, kind in held))
            empty.createOrReplaceTempView(name.rpartition(".")[2].strip("`"))
        page = (Path(__file__).parents[3] / "docs" / "lag.md").read_text()
        statements = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
        assert len(statements) >= 5
        for statement in statements:
            assert spark.sql(statement).collect() == []
        asked = {re.findall(r"FROM (\w+)", statement)[0] for statement in statements}
        assert asked == {"lag", "latency", "rpo", "samples"}
    finally:
        for name in ("lag", "latency", "rpo"):
            spark.catalog.dropTempView(name)
        spark.sql("USE default")
        spark.sql("DROP SCHEMA lag_views CASCADE")


def test_relays_are_cut_to_what_waited_by_partition_and_where_these_are_many_by_topic(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = spark.createDataFrame(
        [(topic, 1, p, offset) for topic in "ab" for p in (0, 1) for offset in range(5)],
        "topic string, generation int, partition int, offset long",
    )
    first, second = SourcePartition("a", 1, 0), SourcePartition("a", 1, 1)
    part = RelayPart({first: 1, second: 0}, ends={first: 4, second: 1}, others=False)

    def check(part: RelayPart, *left: tuple[str, int, int, int]) -> None:
        assert_rows(part.rows(held), "topic string, generation int, partition int, offset bigint", left)

    check(part, ("a", 1, 0, 1), ("a", 1, 0, 2), ("a", 1, 0, 3), ("a", 1, 1, 0))
    monkeypatch.setattr(relay_part, "_MAX_CONDITIONS", 1)
    check(part, *(("a", 1, p, offset) for p in (0, 1) for offset in range(4)))
    check(RelayPart({}, others=False))
