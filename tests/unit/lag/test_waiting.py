"""The oldest record that waits, and how many do, at every position of partitions with holes; without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from mirrorlake.lag.sql import LagTables, lag, materialize_hops, rpo, waiting_bounds

from tests.kit.lake import FLOW, NOON, position_rows, sample_rows
from tests.unit.lag.kit import at, landed, question

END, LAST_END = 12, 15
# Offsets and, in seconds before the first look, timestamps, which need not rise; between them stand markers. A position stands at
# every offset up to an end; at the last look the end is another one, and what is past the end of a look does not count.
LOGS: Mapping[int, Mapping[int, int]] = {
    0: {0: 5, 1: 9, 2: 4, 5: 8, 6: 2, 9: 30, 12: 50, 14: 60},
    1: {3: 7, 4: 1, 10: 6, 11: 3},
    2: {12: 70},
}


@pytest.fixture(scope="module")
def tables() -> LagTables:
    positions = [
        row
        for n in range(END + 2)
        for number in LOGS
        for row in position_rows(at(n), partition=number, last_stable=_end(n), reached=_end(n), republished=min(n, END))
    ]
    samples = [row for n in range(END + 2) for row in sample_rows(at(n), complete=n == 0)]
    records = [
        row
        for partition, log in LOGS.items()
        for row in landed({o: at(-stamp) for o, stamp in log.items()}, partition=partition, source="east")
    ]
    return question(records, positions=positions, samples=samples)


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
        since = None if oldest is None else at(-oldest)
        waited = 0 if oldest is None else (number + oldest) * 1000
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
    about = question(
        landed({offset: at(offset - 10) for offset in held}, source="east"),
        positions=position_rows(NOON, last_stable=10, reached=4, republished=2),
        samples=sample_rows(NOON),
    )
    [row] = rpo(materialize_hops(about) if is_made else about).rows()
    assert (row.records, row.data_ms, row.is_exact) == (7, 8000, is_exact), "8 and 9 are on the source, landed or not"
