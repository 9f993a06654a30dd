"""The lag of a moment: how parts are added up, and the law of time lag against a plain count over records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mirrorlake.lag.time_lag import (
    _WAITING,
    FlowPosition,
    Total,
    age_ms,
    read_next_timestamps,
    read_time_lags,
    sum_lags,
)

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.lake import Lake
from mirrorlake.lake.duckdb_query import query_files, to_rows
from mirrorlake.model.flow import SourcePartition
from tests.builders import NOON, ORDERS
from tests.kit.lake import FLOW, LakeBuilder, arrow
from tests.unit.lag.kit import at, landed

KEY = {"topic": "orders", "generation": 1, "partition": 0}

lags = st.builds(Total, st.none() | st.integers(0, 1000), st.none() | st.integers(0, 1000))


@given(st.lists(st.lists(st.lists(lags), max_size=4), max_size=4))
def test_the_total_of_flows_is_that_of_their_partitions_and_what_is_unknown_makes_it_unknown(
    flows: list[list[list[Total]]],
) -> None:
    partitions = [one for flow in flows for topic in flow for one in topic]
    found = sum_lags(partitions)
    assert found == sum_lags(sum_lags(sum_lags(topic) for topic in flow) for flow in flows)
    assert found == sum_lags(reversed(partitions))
    for name, whole in found._asdict().items():
        assert (whole is None) == any(getattr(one, name) is None for one in partitions)
    for one in partitions:
        assert found.offset_lag is None or (one.offset_lag or 0) <= found.offset_lag
        assert found.time_lag_ms is None or (one.time_lag_ms or 0) <= found.time_lag_ms


def withheld(first: int, last: int, offsets: Iterable[int], flow: str = FLOW) -> dict[str, Any]:
    ranges = [{"first": offset, "length": 1} for offset in offsets]
    return {**KEY, "flow": flow, "first_offset": first, "last_offset": last, "ranges": ranges, "withheld_at": NOON}


def records(offsets: Iterable[int]) -> list[dict[str, Any]]:
    return landed({offset: at(offset) for offset in offsets}, topic="orders")


def expected(records: Sequence[int], kept_back: set[int], position: int, landed: int, end: int, now: int) -> int | None:
    """Return the time lag of a hop as the law words it, in milliseconds."""
    waiting = [offset for offset in records if position <= offset < end and offset not in kept_back]
    if position >= end:
        return 0
    if waiting:
        return max(0, now - min(waiting)) * 1000
    return 0 if landed >= end else None


@settings(max_examples=60, deadline=None)
@given(
    offsets=st.sets(st.integers(0, 12)),
    kept_back=st.sets(st.integers(0, 12)),
    position=st.integers(0, 14),
    unlanded=st.integers(0, 3),
    now=st.integers(0, 20),
)
@pytest.mark.law("E")
def test_law_e_a_time_lag_is_the_age_of_the_oldest_record_that_waits(
    offsets: set[int], kept_back: set[int], position: int, unlanded: int, now: int
) -> None:
    reached = max(offsets, default=-1) + 1
    end = reached + unlanded
    flow_position = {**KEY, "position": position, "landed": reached, "known_end": end, "observed_at": at(now)}
    tables = {
        "relay": arrow("relay", records(sorted(offsets))),
        # Another flow's records wait in that flow only.
        "withheld": arrow(
            "withheld",
            [
                withheld(min(kept_back, default=0), max(kept_back, default=0), sorted(kept_back)),
                withheld(0, 12, range(13), flow="east->west"),
            ],
        ),
        "flow_positions": pa.Table.from_pylist([flow_position]),
    }
    [found] = to_rows(query_files(_WAITING, tables, {"flow": FLOW, "lowest": position, "highest": end}))
    assert found.time_lag_ms == expected(sorted(offsets), kept_back, position, reached, end, now)


def test_time_lags_are_read_from_the_lake_without_spark(built: LakeBuilder, lake: Lake) -> None:
    def lags_of(row: FlowPosition, reached: int, second: float) -> dict[SourcePartition, int | None]:
        return dict(read_time_lags(lake, "east", FLOW, [row], landed={ORDERS: reached}, now=at(second)))

    row = FlowPosition(ORDERS, republished=1, landed=4, end=6)
    assert read_time_lags(lake, "east", FLOW, [row], landed={}, now=NOON) == {ORDERS: None}, "nothing was ever landed"
    built.turn(records(range(4))).withhold(1)
    idle = SourcePartition("idle", 1, 0)
    rows = [row, FlowPosition(idle, republished=9, landed=9, end=9)]
    assert read_time_lags(lake, "east", FLOW, rows, landed={ORDERS: 4, idle: 9}, now=at(10)) == {ORDERS: 8000, idle: 0}
    far = row._replace(landed=6_000, end=6_000)
    built.turn(records([5_000]))
    assert lags_of(far, 6_000, 10) == {ORDERS: 8000}, "near by, in a backlog"
    assert lags_of(far._replace(republished=4), 6_000, 5_010) == {ORDERS: 10_000}, "past a long hole"
    assert lags_of(far._replace(republished=5_001), 6_000, 10) == {ORDERS: 0}, "markers do not wait"
    assert lags_of(row._replace(republished=4), 4, 10) == {ORDERS: None}


def test_a_source_that_does_not_answer_leaves_the_age_of_what_is_not_landed_unknown() -> None:
    def away(alias: str) -> Any:
        raise ClusterUnreachable(f"{alias} is away", consequence="", remedy="", alias=alias)

    assert read_next_timestamps(away, {("east", ORDERS): 5}) == {}
    assert age_ms(None, NOON) == 0, "nothing but markers follows"
    assert age_ms(int(NOON.timestamp() * 1000) + 5, NOON) == 0, "a timestamp ahead of the clock"
