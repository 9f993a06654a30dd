"""Lag, RPO and latency of a lake whose every figure is known beforehand, as DuckDB answers and as Spark does through the views.

    offset      0    1    2    3         4        5 .. 9      10, 11
    timestamp   +0s  +1s  +2s  +3s       -        +5s .. +9s  not landed
                               filtered  control

Looks: +5 s, +20 s, +30 s (nothing new), +40 s (the source does not answer), +50 s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.loading import loads
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake import relay_part
from mirrorlake.lake.duckdb_query import to_rows
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.samples import load_last_samples, prune_samples
from mirrorlake.lake.schema import POSITIONS, SAMPLES
from mirrorlake.model.flow import SourcePartition
from mirrorlake.status.history import Lag, windows_of
from mirrorlake.status.queries import LAG_COLUMNS
from tests.kit.commands import run_cli
from tests.kit.lake import FLOW, NOON, LakeBuilder, Row, at, landed, position_rows, sample_rows
from tests.spark.frames import assert_rows

FLOWS = [FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})]
_MS = {"p50_ms": "double", "p95_ms": "double", "p99_ms": "double", "max_ms": "bigint"}
VIEWS = {
    "lag": LAG_COLUMNS,
    "latency": {"bucket": "timestamp", "flow": "string", "topic": "string", "records": "bigint", **_MS},
    "rpo": {"observed_at": "timestamp", "flow": "string", "records": "bigint", "data_ms": "bigint"},
}
# So many days that the views show the first of January.
DAYS = 10_000


def lag_of(lake: Lake, flows: Iterable[FlowConfig] = FLOWS, *, now: datetime | None = None) -> Lag:
    unused: Any = None
    config = SimpleNamespace(sampling=SimpleNamespace(every=timedelta(seconds=30)))
    context: Any = SimpleNamespace(lake=lake, now=lambda: now or at(10_000), config=config)
    return Lag(context, list(flows), read=unused, judge=unused)


def pos(
    seconds: float,
    kind: str,
    position: int | None,
    since: float | None = None,
    *,
    topic: str = "t",
    generation: int = 1,
    group: str | None = None,
    waits: bool | None = None,
) -> Row:
    """Return a position at a look; a record waits there since a moment, or none does where it is not said to be unknown."""
    [row] = position_rows(at(seconds), topic, generation, **{kind: position})
    flow = FLOW if kind in ("republished", "consumed") else None
    found = {
        "waiting_since": None if since is None else at(since),
        "waits": since is not None if waits is None else waits,
    }
    return {**row, "flow": flow, "group_id": group, **found}


def unknown(seconds: float, kind: str, position: int, **more: Any) -> Row:
    return {**pos(seconds, kind, position, **more), "waits": None}


def looks(seconds: float, *, complete: bool = False, error: str = "", scope: str = "mine") -> list[Row]:
    return sample_rows(at(seconds), complete=complete, error=error, scope=scope)


@pytest.fixture
def story(built: LakeBuilder) -> LakeBuilder:
    """One partition over five looks; group `billing` reads on the source, `audit` on the target."""
    built.turn(landed({n: at(n) for n in (0, 1, 2, 3, 5, 6, 7, 8, 9)})).withhold(3, topic="t")
    # The table may hold a row of the ledger twice.
    for _ in range(2):
        built.send([0, 1, 2, 5, 6, 7, 8, 9], 100, source_topic="t", committed_at=at(30))
    built.add(
        "positions",
        *(pos(5, "last_stable", 5), pos(5, "reached", 3, 3), pos(5, "republished", 2, 2)),
        *(pos(5, "group", 0, 0, group="billing"), pos(5, "consumed", 2, 2, group="audit")),
        *(pos(20, "last_stable", 10), pos(20, "reached", 10), pos(20, "republished", 3, 5)),
        *(pos(20, "group", 8, 8, group="billing"), pos(20, "consumed", 3, 5, group="audit")),
        # Billing was set back; audit went away.
        *(pos(30, "republished", 10), pos(30, "group", 1, 1, group="billing")),
        pos(30, "consumed", None, group="audit"),
        *(pos(50, "last_stable", 12), unknown(50, "reached", 10), unknown(50, "republished", 10)),
        *(pos(50, "group", 12, group="billing"), unknown(50, "consumed", 10, group="audit")),
        # Another observer wrote this one: it belongs to no look of a sampler.
        pos(21, "group", 9, group="billing"),
    )
    built.add("samples", *looks(5, complete=True), *looks(20), *looks(30), *looks(40, error="it is away"), *looks(50))
    return built


@pytest.fixture
def views(spark: SparkSession, story: LakeBuilder) -> Iterator[SparkSession]:
    lake = Lake(spark, LakeConfig(root=str(story.root)))
    assert lag_of(lake).create_views(days=DAYS) == ["lag", "latency", "rpo"]
    yield spark
    for name in VIEWS:
        spark.catalog.dropTempView(name)


def brief(row: Any) -> tuple[Any, ...]:
    """Position, offset lag, seconds after noon since which a record waited, time lag in seconds."""
    since = row.waiting_since and (row.waiting_since - NOON).total_seconds()
    return row.position, row.offset_lag, since, None if row.time_lag_ms is None else row.time_lag_ms / 1000


EXPECTED = {
    (5, "landed", None): (3, 2, 3, 2),
    (5, "republished", None): (2, 3, 2, 3),
    (5, "consumed", "billing"): (0, 5, 0, 5),
    (5, "consumed", "audit"): (2, 3, 2, 3),
    (20, "landed", None): (10, 0, None, 0),
    # Nobody waits for record 3, a rule kept it from the target; 4 is a marker: 5 is the oldest that waits.
    (20, "republished", None): (3, 7, 5, 15),
    (20, "consumed", "billing"): (8, 2, 8, 12),
    (20, "consumed", "audit"): (3, 7, 5, 15),
    # Idle: nothing was written of the ends, and it was looked at. The group audit was gone.
    (30, "landed", None): (10, 0, None, 0),
    (30, "republished", None): (10, 0, None, 0),
    # A rewind is a position like any other.
    (30, "consumed", "billing"): (1, 9, 1, 29),
    # The source did not answer: its end and its groups are not known.
    (40, "landed", None): (10, None, None, None),
    (40, "republished", None): (10, None, None, None),
    # 10 and 11 were not landed, and could not be read: how long they waited is not known, and not made up.
    (50, "landed", None): (10, 2, None, None),
    (50, "republished", None): (10, 2, None, None),
    (50, "consumed", "billing"): (12, 0, None, 0),
    (50, "consumed", "audit"): (10, 2, None, None),
}
RPO = {5: (3, 3000), 20: (7, 15_000), 30: (0, 0), 40: (None, None), 50: (2, None)}


def check(answers: Callable[[str], list[Any]]) -> None:
    """Compare what an engine answers with what is known."""
    rows = answers("lag")
    assert list(vars(rows[0])) == list(LAG_COLUMNS)
    found = {((row.observed_at - NOON).total_seconds(), row.hop, row.group_id): brief(row) for row in rows}
    assert len(found) == len(rows), "each look, hop and group has one row"
    assert found == EXPECTED
    assert {(row.hop, row.group_id): row.cluster for row in rows} == {
        ("landed", None): "east",
        ("republished", None): "central",
        ("consumed", "billing"): "east",
        ("consumed", "audit"): "central",
    }
    rpo = {(row.observed_at - NOON).total_seconds(): (row.records, row.data_ms) for row in answers("rpo")}
    assert rpo == RPO
    # Records 0, 1, 2, 5 .. 9 arrived at +30 s, once.
    [row] = answers("latency")
    assert (row.bucket, row.flow, row.topic, row.records) == (NOON, FLOW, "t", 8)
    assert (row.p50_ms, row.max_ms) == (24_500, 30_000)
    assert row.p95_ms == pytest.approx(29_650)


@pytest.mark.law("E")
def test_law_e_lag_rpo_and_latency_of_each_look_are_those_that_are_known(story: LakeBuilder) -> None:
    lag = lag_of(story.lake)
    questions = {"lag": lag.over, "rpo": lag.rpo, "latency": lag.latency}
    check(lambda name: questions[name](NOON, at(100)).rows())


@pytest.mark.law("E")
def test_law_e_the_views_say_the_same_in_the_types_of_the_docs(views: SparkSession) -> None:
    for name, columns in VIEWS.items():
        held = [(field.name, field.dataType.simpleString()) for field in views.table(name).schema]
        assert held == [*columns.items()]
    check(lambda name: to_rows(views.table(name).toArrow()))


def test_a_part_of_the_time_starts_with_what_was_known_and_a_group_is_found_at_a_moment(
    story: LakeBuilder, views: SparkSession
) -> None:
    part = lag_of(story.lake).over(at(25), at(45))
    found = {((row.observed_at - NOON).total_seconds(), row.hop, row.group_id): brief(row) for row in part.rows()}
    assert found == {place: of for place, of in EXPECTED.items() if place[0] in (30, 40)}
    lag = lag_of(Lake(views, LakeConfig(root=str(story.root))))
    [then] = lag.at("billing", at(45)).collect()
    moved_at = then.observed_at.replace(tzinfo=NOON.tzinfo)
    assert (then.position, moved_at) == (1, at(30)), "the last that its cluster answered"
    [lost] = lag.loss_at(at(25)).collect()
    assert (lost.records, lost.data_ms) == (7, 15_000)
    with pytest.raises(UsageError, match="nothing was sampled up to"):
        lag.over(at(-100), at(-50))
    with pytest.raises(AttributeError, match="an answer has no 'colect'"):
        part.colect()


@pytest.mark.parametrize("by", ["topic", "partition"])
def test_the_largest_lags_add_partitions_and_count_what_was_not_known(
    story: LakeBuilder, spark: SparkSession, by: Any
) -> None:
    other = [pos(20, "last_stable", 9), pos(20, "reached", 4, 4), pos(20, "republished", 4, 4)]
    story.add("positions", *({**row, "partition": 1} for row in other))
    found = lag_of(Lake(spark, LakeConfig(root=str(story.root)))).longest(at(0), by=by)
    for rows in (found.rows(), found.collect()):
        sent = {row.place: (row.offset_lag, row.time_lag_ms, row.unknown) for row in rows if row.hop == "republished"}
        of_both = {"t-0": (7, 15_000, 2), "t-1": (5, 46_000, 1)}
        assert sent == ({"t": (12, 46_000, 2)} if by == "topic" else of_both)
        assert [row.unknown for row in rows if row.group_id == "billing"] == [1], "its cluster did not answer once"
    away = ({**row, "error": "it is away"} for row in looks(60) if row["subject"] == "flow")
    story.add("samples", *away, *(row for row in looks(60) if row["subject"] != "flow"))
    told = {row.hop: (row.place, row.unknown) for row in lag_of(story.lake).longest(at(55), by=by).rows()}
    assert told["republished"] == ("*", 1), "nothing is known of it, so it is told"


def test_the_newest_looks_are_the_window_of_a_verdict_and_old_ones_are_none(story: LakeBuilder) -> None:
    lag = lag_of(story.lake, now=at(60))
    first = windows_of(lag.recent([]))
    assert {(key.hop, key.group_id): [one.position for one in window] for key, window in first.items()} == {
        ("landed", None): [3],
        ("republished", None): [2],
        ("consumed", "billing"): [0],
        ("consumed", "audit"): [2],
    }, "of those that nobody asks for the first"
    recent = windows_of(lag.recent(list(first)))
    windows = {(place.hop, place.group_id): [one.position for one in window] for place, window in recent.items()}
    assert windows == {
        ("landed", None): [3, 10, 10, 10, 10],
        ("republished", None): [2, 3, 10, 10, 10],
        ("consumed", "billing"): [0, 8, 1, 12],
        ("consumed", "audit"): [2, 3, 10],
    }
    assert windows_of(lag.recent(None)) == recent, "all of them, where a cluster does not answer"
    assert [key.hop for key in windows_of(lag.recent(list(first), sent_only=True))] == ["republished"]
    assert not lag_of(story.lake, now=at(10_000)).recent(list(first)), "the sampler rested"


@pytest.mark.law("E")
def test_law_e_what_would_have_been_lost_is_unknown_where_nobody_looked(story: LakeBuilder) -> None:
    lag = lag_of(story.lake)

    def lost(seconds: float) -> tuple[Any, ...]:
        [found] = lag.loss_at(at(seconds)).rows()
        return found.flow, found.observed_at, found.records, found.data_ms

    assert lost(25) == (FLOW, at(20), 7, 15_000)
    assert lost(39)[2:] == (0, 0)
    assert lost(45)[1:] == (at(40), None, None), "the source did not answer"
    assert lost(60)[2:] == (2, None)
    for moment in (4, 50 + 61):
        assert lost(moment) == (FLOW, None, None, None), f"nobody looked at {moment}"


def test_the_command_tells_the_largest_lags_by_hop_and_a_loss_by_flow(story: LakeBuilder, tmp_path: Path) -> None:
    conf, noon = tmp_path / "mirror.yml", "2026-01-01 12:00"
    clusters = {alias: {"bootstrap_servers": "127.0.0.1:1"} for alias in ("east", "central")}
    flows = [{"source": "east", "target": "central", "topics": "t"}]
    conf.write_text(json.dumps({"lake": {"root": str(story.root)}, "clusters": clusters, "flows": flows}))

    def told(*options: str, code: int = 0) -> str:
        done = run_cli("lag", *options, "--conf", str(conf))
        assert done.returncode == code, done.stderr
        return str(done.stdout)

    assert re.search(r"t +republished +7 +15\.0 s +2 samples", told("--since", noon))
    assert re.search(r"t-0 +consumed by billing on east +", told("--since", noon, "--by", "partition", "--wide"))
    assert len(json.loads(told("--since", noon, "--json"))["lag"]) == len(EXPECTED)
    assert "nothing was sampled since then" in told("--since", "1h")
    assert re.search(r"east->central +7 +15\.0 s +.*12:00:20", told("--at", f"{noon}:25"))
    [lost] = json.loads(told("--at", f"{noon}:45", "--json"))["flows"]
    assert (lost["flow"], lost["records"], lost["data_ms"]) == ("east->central", None, None)
    told("--at", noon, "--since", noon, code=2)


def test_points_of_a_chart_are_the_worst_of_their_stretch_of_time(story: LakeBuilder) -> None:
    lines = lag_of(story.lake, now=at(720)).lines(at(0))
    sent = lines[lines.hop == "republished"]
    assert len(sent) == 5, "three seconds each"
    assert sent.offset_lag.fillna(-1).tolist() == [3, 7, 0, -1, 2]
    assert sent.time_lag_ms.fillna(-1).tolist() == [3_000, 15_000, 0, -1, -1]


def test_lives_of_a_topic_and_a_sampler_that_was_started_again(built: LakeBuilder) -> None:
    built.add(
        "positions",
        # `gone` was deleted while nobody looked; `t` was made again with one record in the old life not sent yet.
        *(pos(1, kind, 1, topic="gone") for kind in ("last_stable", "reached", "republished")),
        *(pos(1, "last_stable", 3), pos(1, "reached", 3), pos(1, "republished", 3)),
        *(pos(9, "last_stable", 3), pos(9, "reached", 3), pos(9, "republished", 2, 2)),
        *(pos(9, kind, 6, generation=2) for kind in ("last_stable", "reached", "republished")),
        # Nothing but markers past 4: nobody waits for them.
        pos(9, "group", 4, generation=2, group="billing", waits=False),
    )
    built.add("samples", *looks(1, complete=True), *looks(9, complete=True))
    rows = lag_of(built.lake).over(at(0), at(10)).rows()
    found = {(row.topic, row.generation, row.hop): brief(row) for row in rows if row.observed_at == at(9)}
    assert found == {
        ("t", 1, "landed"): (3, 0, None, 0),
        ("t", 1, "republished"): (2, 1, 2, 7),
        ("t", 2, "landed"): (6, 0, None, 0),
        ("t", 2, "republished"): (6, 0, None, 0),
        ("t", 2, "consumed"): (4, 2, None, 0),
    }


@pytest.mark.law("E")
def test_law_e_the_looks_of_another_settings_file_end_no_position_of_this_one(built: LakeBuilder) -> None:
    built.add("positions", *(pos(1, kind, 3) for kind in ("last_stable", "reached", "republished")))
    built.add("positions", pos(1, "group", 2, 2, group="billing"))
    built.add("positions", *(pos(second, "last_stable", 8, topic="other") for second in (2, 6)))
    built.add("samples", *looks(1, complete=True), *looks(4), *looks(9))
    others = [row for second in (2, 6) for row in looks(second, complete=True, scope="theirs")]
    # It has another flow.
    built.add("samples", *(row for row in others if row["subject"] == "cluster"))
    lag = lag_of(built.lake)
    assert {(row.topic, row.hop): brief(row) for row in lag.over(at(8), at(10)).rows()} == {
        ("t", "landed"): (3, 0, None, 0),
        ("t", "republished"): (3, 0, None, 0),
        ("t", "consumed"): (2, 1, 2, 7),
    }, "it rests, and was looked at"
    [then] = lag.at("billing", at(7)).rows()
    assert (then.position, then.observed_at) == (2, at(4)), "the other's look is none of this group"
    topics = {
        scope: {key.topic for held in load_last_samples(built.lake, scope).standings.values() for key in held}
        for scope in ("mine", "theirs")
    }
    assert topics == {"mine": {"t"}, "theirs": {"other"}}, "a sampler that starts finds none of the other's gone"


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
    lake.append(POSITIONS, positions)
    lake.append(SAMPLES, [*looks(1, complete=True), *looks(2), *looks(9)])
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
    assert load_last_samples(lake, "mine").standings == {}
    positions = [
        *(pos(1, "last_stable", 1, topic=topic) for topic in ("gone", "t")),
        *(pos(2, kind, 2) for kind in ("last_stable", "earliest", "reached", "republished")),
        pos(3, "earliest", None),
        pos(3, "last_stable", 3),
        # Killed before it wrote the moment, and another observer.
        pos(4, "last_stable", 4),
        pos(5, "group", 5, group="billing"),
    ]
    lake.append(POSITIONS, positions)
    lake.append(SAMPLES, [*looks(1, complete=True), *looks(2, complete=True), *looks(3)])
    found = load_last_samples(lake, "mine")
    assert {(key.kind, of[0]) for held in found.standings.values() for key, of in held.items()} == {
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
        created = lag_of(lake, config.flows).create_views(days=1)
        assert created == [f"`spark_catalog`.`lag_views`.`{name}`" for name in ("lag", "latency", "rpo")]
        assert spark.table(created[1]).count() == 0
        spark.sql("USE lag_views")
        for name, columns in zip(created, VIEWS.values(), strict=True):
            # Of the catalog: to analyse a view takes seconds.
            held = [(one.name, one.dataType) for one in spark.catalog.listColumns(name)]
            assert held == [*columns.items()]
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
