"""Law E: what has left the source of a broken file is one gap, whoever mends the file, and however often."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.lake import BrokenFile, Lake, broken_files, gap_row
from mirrorlake.landing import Mending, mending
from mirrorlake.model.flow import SourcePartition
from tests.builders import NOON
from tests.kit.lake import rows
from tests.unit.lake.kit import Relay

RECORDS = 40
# One file holds them all.
SOURCES = [SourcePartition("clicks", 1, 2), SourcePartition("orders", 1, 0), SourcePartition("orders", 1, 1)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Make a relay of one file, which is empty."""
    relay = Relay(tmp_path).turn(*(rows(source.topic, source.partition, *range(RECORDS)) for source in SOURCES))
    for file in Path(relay.path).glob("*.parquet"):
        file.write_bytes(b"")
    return relay.lake


def broken(lake: Lake) -> list[BrokenFile]:
    table = lake.open_maintenance(lake.relay_location("east"))
    assert table is not None
    return list(broken_files(table))


def mend(lake: Lake, file: BrokenFile) -> Any:
    """Mend a file whose topic the source has no more."""
    return Mending(lake, None, {}, alias="east", now=lambda: NOON).mend(file)  # type: ignore[arg-type]


def gaps(lake: Lake) -> list[int]:
    return [int(row.missing) for row in lake.query("SELECT missing FROM {gaps} WHERE kind = 'expired'")]


@pytest.mark.law("E", "F")
def test_law_e_two_repairs_at_the_same_moment_explain_what_left_the_source_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, turns = Barrier(2), itertools.count()

    def together(*given: Any) -> Any:
        if next(turns) < both.parties:
            both.wait(60)
        return gap_row(*given)

    monkeypatch.setattr(mending, "gap_row", together)
    [file] = broken(lake)
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(mend, lake, file) for _ in range(both.parties)]
        failures = [call.exception(timeout=120) for call in calls]
    assert sorted(type(one) for one in failures if one is not None) == [StoreError], failures
    assert (gaps(lake), broken(lake)) == ([RECORDS] * len(SOURCES), [])


@pytest.mark.law("E", "F")
def test_law_e_a_repair_that_died_after_its_gap_is_repeated_without_another_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise InterruptedError

    [file] = broken(lake)
    with monkeypatch.context() as patch:
        patch.setattr(mending, "write_files", killed)
        with pytest.raises(InterruptedError):
            mend(lake, file)
    assert mend(lake, file).lost == RECORDS * len(SOURCES)
    assert (gaps(lake), broken(lake)) == ([RECORDS] * len(SOURCES), [])
