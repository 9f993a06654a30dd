"""The oldest record that waits, and how many do, at every position of partitions with holes; without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lag.sql import LagTables, lag, materialize_hops, rpo, waiting_bounds
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import OFFSET_MAP, POSITIONS, RELAY, SAMPLES, WITHHELD

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
FLOW, END, LAST_END = "east->central", 12, 15
# Offsets and, in seconds before the first look, timestamps, which need not rise; between them stand markers. A position stands at
# every offset up to an end; at the last look the end is another one, and what is past the end of a look does not count.
LOGS: Mapping[int, Mapping[int, int]] = {
    0: {0: 5, 1: 9, 2: 4, 5: 8, 6: 2, 9: 30, 12: 50, 14: 60},
    1: {3: 7, 4: 1, 10: 6, 11: 3},
    2: {12: 70},
}
SUBJECTS = (("cluster", "east"), ("cluster", "central"), ("relay", "east"), ("flow", FLOW))


def _no_spark() -> Any:
    raise AssertionError("Spark was started")


@pytest.fixture(scope="module")
def tables() -> LagTables:
    looks = [NOON + timedelta(seconds=number) for number in range(END + 2)]
    positions = [
        {"source": "east", "flow": flow, "topic": "t", "generation": 1, "partition": partition, "kind": kind}
        | {"position": min(number, END) if kind == "republished" else _end(number), "observed_at": look}
        for number, look in enumerate(looks)
        for partition in LOGS
        for kind, flow in (("last_stable", None), ("reached", None), ("republished", FLOW))
    ]
    samples = [
        {"observed_at": look, "subject": subject, "name": name, "complete": look == NOON}
        for look in looks
        for subject, name in SUBJECTS
    ]
    records = [
        {"topic": "t", "generation": 1, "partition": partition, "offset": offset, "timestamp": NOON - _s(stamp)}
        for partition, log in LOGS.items()
        for offset, stamp in log.items()
    ]
    return _tables(positions, samples, records)


def _tables(positions: list[Any], samples: list[Any], records: list[Any]) -> LagTables:
    rows = [(POSITIONS, positions), (SAMPLES, samples), (RELAY, records), (OFFSET_MAP, []), (WITHHELD, [])]
    return LagTables(
        lake=Lake(_no_spark, LakeConfig(root="/nowhere")),
        relays="(SELECT 'east' AS source, topic, generation, partition, `offset`, timestamp FROM {relay})",
        tables={
            **{table.name: arrow_table(table, held) for table, held in rows},
            "flows": pa.Table.from_pylist([{"flow": FLOW, "source": "east", "target": "central"}]),
        },
    )


def _s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _end(number: int) -> int:
    return END if number <= END else LAST_END


def _waiting(partition: int, number: int) -> list[int]:
    return [stamp for offset, stamp in LOGS[partition].items() if min(number, END) <= offset < _end(number)]


def _number(row: Any) -> int:
    return int((row.observed_at - NOON).total_seconds())


@pytest.mark.law("E")
@pytest.mark.parametrize("is_made", [False, True], ids=["in one question", "made before"])
def test_law_e_at_a_marker_the_next_record_waits(tables: LagTables, is_made: bool) -> None:
    asked = materialize_hops(tables) if is_made else tables
    found = {(row.partition, _number(row)): row for row in lag(asked).rows() if row.hop == "republished"}
    assert found.keys() == {(partition, number) for partition in LOGS for number in range(END + 2)}
    for (partition, number), row in found.items():
        oldest = next(iter(_waiting(partition, number)), None)
        since = None if oldest is None else NOON - _s(oldest)
        waited = 0 if since is None else (NOON + _s(number) - since) // _s(0.001)
        assert (row.waiting_since, row.time_lag_ms) == (since, waited)
        assert (row.position, row.offset_lag) == (min(number, END), _end(number) - min(number, END))
    for row in rpo(asked).rows():
        waiting = [stamps for partition in LOGS if (stamps := _waiting(partition, _number(row)))]
        data_ms = max(((stamps[0] + _number(row)) * 1000 for stamps in waiting), default=0)
        assert (row.records, row.data_ms) == (sum(map(len, waiting)), data_ms)
        assert row.is_exact


def test_no_other_records_are_needed(tables: LagTables) -> None:
    low = {(row.scope, row.partition): (row.lowest, row.highest) for row in waiting_bounds(tables).rows()}
    assert low == {(FLOW, partition): (0, LAST_END) for partition in LOGS}


@pytest.mark.law("E")
@pytest.mark.parametrize("is_made", [False, True], ids=["in one question", "made before"])
@pytest.mark.parametrize(("held", "is_exact"), [((2, 3, 5, 6, 7), False), ((2, 3, 5, 6, 7, 8, 9), True)])
def test_law_e_what_was_landed_since_the_last_account_is_lost_once(
    held: tuple[int, ...], is_exact: bool, is_made: bool
) -> None:
    """The relay holds more than `positions` say: those are written every few seconds. 4 is a marker."""
    place = {"source": "east", "topic": "t", "generation": 1, "partition": 0, "observed_at": NOON}
    stood = {"last_stable": 10, "reached": 4, "republished": 2}
    positions = [
        {**place, "kind": kind, "position": at, "flow": FLOW if kind == "republished" else None}
        for kind, at in stood.items()
    ]
    samples = [{"observed_at": NOON, "subject": s, "name": name, "complete": True} for s, name in SUBJECTS]
    records = [
        {"topic": "t", "generation": 1, "partition": 0, "offset": offset, "timestamp": NOON - _s(10 - offset)}
        for offset in held
    ]
    about = _tables(positions, samples, records)
    [row] = rpo(materialize_hops(about) if is_made else about).rows()
    assert (row.records, row.data_ms, row.is_exact) == (7, 8000, is_exact), "8 and 9 are on the source, landed or not"
