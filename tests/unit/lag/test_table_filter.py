"""How often a question about lag reads what it needs, in a folder and without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from mirrorlake.lag import sql, table_filter
from mirrorlake.lag.dense_ranges import RangesByRoute
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.sql import LagTables

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import FolderTables, Lake
from tests.kit.lake import NOON, LakeBuilder, position_rows
from tests.unit.lag.kit import landed


def unused(*_: Any) -> Any:
    raise AssertionError("nothing but the lake is asked")


def minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


SEEN = {"last_stable": 5, "reached": 5, "republished": 2}


@pytest.fixture
def lake(built: LakeBuilder) -> Lake:
    """Topic `gone` is named by the first complete look, and by none after it."""
    built.turn(*(landed(dict.fromkeys(range(5), NOON), topic=topic) for topic in ("t", "gone")))
    built.add("positions", *position_rows(minute(0), topic="gone", **SEEN))
    for number in range(3):
        built.sample(minute(number), complete=number != 1, **SEEN)
    return built.lake


@pytest.fixture
def lag(lake: Lake) -> Lag:
    flow = FlowConfig(source="east", target="central", topics="t|gone")
    return Lag(lake, [flow], look=unused, runs=unused, readers=unused, now=lambda: minute(60))


def lags(lag: Lag, begin: int, end: int) -> set[tuple[int, str, str, int | None]]:
    return {
        (int((row.observed_at - NOON).total_seconds() // 60), row.topic, row.hop, row.time_lag_ms)
        for row in lag.query_over(minute(begin), minute(end)).rows()
    }


def test_where_positions_stood_is_made_once_where_a_topic_has_gone(lag: Lag, monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = [], sql.materialize_hops

    def counted(tables: LagTables, **given: Any) -> LagTables:
        made.append(tables)
        return make(tables, **given)

    monkeypatch.setattr(sql, "materialize_hops", counted)
    assert lags(lag, 1, 1) == {
        (1, topic, hop, lag_ms) for topic in ("t", "gone") for hop, lag_ms in (("landed", 0), ("republished", 60_000))
    }
    assert len(made) == 1, "the question is the dearest of all, and what changed has no part in it"


def test_a_complete_look_that_came_since_is_known(built: LakeBuilder, lag: Lag) -> None:
    assert {row[:2] for row in lags(lag, 3, 3)} == set(), "nobody looked"
    built.sample(minute(3), **SEEN)
    near = lag.query_over(minute(3), minute(4)).values["near"]
    assert near == minute(3) - timedelta(seconds=1)


@pytest.mark.parametrize("is_withheld", [False, True])
def test_a_backlog_is_not_read_for_what_waits_longest(
    built: LakeBuilder, lake: Lake, lag: Lag, monkeypatch: pytest.MonkeyPatch, is_withheld: bool
) -> None:
    for first in range(100, 200, 10):
        # A file each, and a marker after each record.
        built.turn(landed({offset: minute(-offset) for offset in range(first, first + 10, 2)}, generation=2))
    if is_withheld:
        built.withhold(*range(142, 160, 2), topic="t", generation=2)
    built.sample(minute(4), generation=2, last_stable=200, reached=200, republished=141)
    everything = {row for row in lags(lag, 4, 4) if row[1] == "t"}
    waited = 4 + (160 if is_withheld else 142)
    assert everything == {(4, "t", "landed", 0), (4, "t", "republished", waited * 60_000)}
    monkeypatch.setattr(table_filter, "_MANY_OFFSETS", 20)
    assert {row for row in lags(lag, 4, 4) if row[1] == "t"} == everything
    asked = lag._asked.filter.limit_to_waiting(lag._asked.filter.limit_to_time(minute(4), minute(4)), oldest=True)
    [(_, part)] = asked.parts.values()
    assert part is not None
    # And one that holds two topics.
    assert FolderTables().files(lake.relay_location("east"), part)[1].num_rows == 1 + (6 if is_withheld else 1)


def test_the_offset_map_is_read_once_for_the_pieces_of_a_time(
    built: LakeBuilder, lag: Lag, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, make = [], sql.read_dense_ranges

    def counted(rows: pa.Table) -> RangesByRoute:
        read.append(rows)
        return make(rows)

    def consumed(minutes: int) -> set[int]:
        rows = lag.query_over(minute(minutes), minute(minutes)).where("hop = 'consumed'").rows()
        return {row.position for row in rows}

    monkeypatch.setattr(sql, "read_dense_ranges", counted)
    for number in (0, 2):
        built.position("group", 1, source="central", topic="east.t", group_id="billing", observed_at=minute(number))
    built.send([0], 0, topic="t")
    assert (consumed(0), consumed(2)) == ({2}, {2}), "all that was sent"
    assert len(read) == 1, "no time cuts the map, and it grows for as long as the mirror runs"
    built.send([1], 1, topic="t")
    assert consumed(2) == {1}
    assert len(read) == 2, "a map with newer runs is read again"


def test_a_flow_that_left_the_settings_does_not_make_questions_read_from_its_last_look_on(
    built: LakeBuilder, lag: Lag
) -> None:
    at = minute(-60 * 24 * 30)
    built.add("samples", observed_at=at, subject="flow", name="east->gone", complete=True)
    tables = lag._asked.filter.limit_to_time(minute(2), minute(2))
    assert minute(2) - tables.values["near"] <= timedelta(seconds=1)
