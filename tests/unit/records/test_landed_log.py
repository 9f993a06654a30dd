"""Pages of a relay in a folder, without Spark: offsets, times, lives, odd records, and why offsets hold none (law E)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.lake import Lake
from mirrorlake.records import LandedLog, Match, Page, Seek, read_page
from tests.kit.lake import LakeBuilder

START = datetime(2026, 11, 22, 3, 0, 0, 500_000, tzinfo=timezone.utc)


def land(built: LakeBuilder, *rows: dict[str, Any], topic: str = "orders", generation: int = 1) -> None:
    plain = {"topic": topic, "generation": generation, "partition": 0, "timestamp_type": 0, "key": b"k", "value": b"v"}
    plain |= {"landed_at": START + timedelta(hours=2, microseconds=999)}
    built.turn([{**plain, "timestamp": START + timedelta(minutes=row["offset"]), **row} for row in rows])


def offsets(page: Page) -> list[int]:
    return [one.offset for one in page.records]


@pytest.mark.law("C", "E")
def test_law_c_records_come_as_they_were_landed_and_others_are_explained(built: LakeBuilder, lake: Lake) -> None:
    odd = [(("h", None), ("h", b""), ("h", b"\xff")), (), None]
    values = [None, b"", b"\xff\x00"]
    rows = [
        {"offset": n, "key": value, "value": value, "headers": pairs and [{"key": k, "value": v} for k, v in pairs]}
        for n, (value, pairs) in enumerate(zip(values, odd, strict=True))
    ]
    land(built, *rows, {"offset": 6})
    land(built, {"offset": 9, "partition": 1}, {"offset": 0}, topic="other")
    built.add("gaps", first_offset=3, last_offset=4, kind="compacted")
    page = read_page(LandedLog(lake, "east", "orders", 0), Seek(partition=0, offset=0))
    assert [(one.key, one.value, one.headers) for one in page.records[:3]] == [
        (None, None, odd[0]),
        (b"", b"", ()),
        (b"\xff\x00", b"\xff\x00", ()),
    ]
    assert page.records[2].timestamp_ms == round((START + timedelta(minutes=2)).timestamp() * 1000)
    assert page.records[0].landed_at_ms == round(START.timestamp() * 1000) + 2 * 3_600_000, "cut, not rounded"
    assert [(one.first, one.last, one.kind) for one in page.missing] == [(3, 4, "compacted"), (5, 5, "unexplained")]
    assert (page.start, page.next, page.end, page.first, page.generation) == (0, 7, 7, None, 1)


def test_the_newest_life_is_meant_unless_another_is_named(built: LakeBuilder, lake: Lake) -> None:
    land(built, *({"offset": n} for n in range(5)))
    land(built, *({"offset": n, "value": b"second"} for n in range(2)), generation=2)
    found = read_page(LandedLog(lake, "east", "orders"), Seek(partition=0))
    assert (found.generation, [one.value for one in found.records]) == (2, [b"second"] * 2)
    assert offsets(read_page(LandedLog(lake, "east", "orders", generation=1), Seek())) == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="of generation 3"):
        LandedLog(lake, "east", "orders", generation=3)
    with pytest.raises(UsageError, match="nothing of orders-7"):
        LandedLog(lake, "east", "orders", 7)


def test_partitions_are_read_together_and_filtered_as_on_a_cluster(built: LakeBuilder, lake: Lake) -> None:
    rows = [
        {"offset": n, "partition": p, "value": f'{{"n": {n}, "p": {p}}}'.encode(), "key": f"k{n % 3}".encode()}
        for p in range(2)
        for n in range(30)
    ]
    land(built, *rows)
    log = LandedLog(lake, "east", "orders")
    page = read_page(log, Seek(match=Match.of(key="k1", contains=None, where="$.n > 20"), count=4))
    assert [(one.partition, one.offset) for one in page.records] == [(0, 25), (1, 25), (0, 28), (1, 28)]
    assert page.looked == 60


def test_large_records_come_a_few_at_a_time_and_twice_landed_ones_once(built: LakeBuilder, lake: Lake) -> None:
    land(built, *({"offset": n, "value": b"x" * 2**20} for n in range(9)))
    land(built, {"offset": 3, "value": b"again"})
    log = LandedLog(lake, "east", "orders")
    page = read_page(log, Seek(offset=0, partition=0, max_bytes=2**30))
    assert offsets(page) == list(range(9))
    assert offsets(read_page(log, Seek(partition=0, max_bytes=2**21 + 10))) == [7, 8]
