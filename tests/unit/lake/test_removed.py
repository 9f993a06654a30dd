"""What left a relay: read back as written, of an act the row that says it is done, and nothing from older lakes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from mirrorlake.lake import Lake, left_before, removed_from, write_removed
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import ERASED, EXPIRED, Removed
from tests.lakes import lake_in

AT = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
ORDERS = SourcePartition("orders", 1, 0)
EXPIRY = Removed(
    removal="a",
    source=ORDERS,
    first_offset=0,
    last_offset=99,
    kind=EXPIRED,
    records=90,
    removed_at=AT,
    reason="age: 1d",
)
ERASURE = Removed(
    removal="b",
    source=ORDERS,
    first_offset=120,
    last_offset=140,
    kind=ERASED,
    records=3,
    removed_at=AT.replace(hour=10),
    ranges=((120, 2), (140, 1)),
    evidence={"key": "sha256:aa"},
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_in(tmp_path, relays=["east"])


@pytest.mark.law("E")
def test_an_act_is_read_once_and_says_whether_it_is_done(lake: Lake) -> None:
    assert removed_from(lake, "east") == []
    assert left_before(lake, "east") == {}
    write_removed(lake, "east", [ERASURE, EXPIRY])
    assert removed_from(lake, "east") == [EXPIRY, ERASURE]
    done = replace(EXPIRY, relay_version=7)
    write_removed(lake, "east", [done])
    assert removed_from(lake, "east") == [done, ERASURE]
    assert [one.is_done for one in removed_from(lake, "east")] == [True, False]
    assert removed_from(lake, "west") == []


def test_only_retention_moves_what_left_before(lake: Lake) -> None:
    later = replace(EXPIRY, removal="c", first_offset=100, last_offset=119)
    write_removed(lake, "east", [EXPIRY, later, ERASURE])
    assert left_before(lake, "east") == {ORDERS: 120}


def test_what_two_upkeeps_announced_at_the_same_moment_left_once(lake: Lake) -> None:
    wider = replace(EXPIRY, removal="d", last_offset=109, records=100, relay_version=8)
    write_removed(lake, "east", [EXPIRY, wider])
    write_removed(lake, "east", [replace(EXPIRY, relay_version=9)])
    assert removed_from(lake, "east") == [wider]


def test_it_holds_the_offsets_of_its_ranges() -> None:
    assert [offset for offset in range(118, 143) if ERASURE.holds(offset)] == [120, 121, 140]
    assert EXPIRY.holds(50)
    assert not EXPIRY.holds(100)
