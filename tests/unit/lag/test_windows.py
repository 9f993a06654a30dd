"""Windows out of the answer of lag: the newest samples of each hop, of each topic's newest life; in a folder, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from mirrorlake.lag.judge import judge_lag, read_windows
from mirrorlake.lag.series import _worst_lags
from mirrorlake.lag.sql import LAG_COLUMNS, LagQuery
from mirrorlake.lag.verdict import WINDOW_SAMPLES, Verdict

from mirrorlake.lake.arrow_types import arrow_type
from tests.kit.lake import NOON, LakeBuilder
from tests.unit.lag.kit import NOWHERE

LAG = pa.schema({name: arrow_type(kind) for name, (kind, _) in LAG_COLUMNS.items()})


def answer(rows: Sequence[Sequence[Any]]) -> LagQuery:
    held = pa.Table.from_pylist([dict(zip(LAG.names, row, strict=False)) for row in rows], LAG)
    return LagQuery(lake=NOWHERE, text="SELECT * FROM {held}", tables={"held": held})


def looked(at: datetime, partition: int, hop: str, group: str | None, *figures: Any, generation: int = 2) -> Any:
    return at, "f", "east", "orders", generation, partition, hop, group, *figures


def test_the_newest_samples_of_each_hop_are_judged(built: LakeBuilder) -> None:
    rows = []
    for minute in range(WINDOW_SAMPLES + 5):
        at = NOON + timedelta(minutes=minute)
        old = NOON - timedelta(minutes=1)
        rows += [
            looked(at, 0, "landed", None, 7, 9, 2, old, 1, generation=1),
            looked(at, 0, "landed", None, 50, 50, 0, None, 0),
            # What moved before the window began does not count.
            looked(at, 0, "consumed", "billing", min(minute, 5), 50, 45, old, (minute + 1) * 60_000),
            looked(at, 0, "consumed", "audit", 50, 50, 0, None, 0),
            looked(at, 1, "landed", None, 40, 50, 10, None, None),
        ]
    asked = answer(rows)
    windows = read_windows(asked)
    assert {(place.generation, place.partition, place.group_id) for place in windows} == {
        (2, 0, None),
        (2, 1, None),
        (2, 0, "billing"),
        (2, 0, "audit"),
    }
    for window in windows.values():
        assert [s.observed_at for s in window] == [NOON + timedelta(minutes=m) for m in range(5, WINDOW_SAMPLES + 5)]
    landed = NOON - timedelta(minutes=20)
    for kind, position, of in [
        ("earliest", 0, None),
        ("landed", 30, NOON - timedelta(hours=9)),
        ("landed", 40, landed),
    ]:
        built.position(kind, position, generation=2, partition=1, record_timestamp=of)
    found = judge_lag(asked, now=at, lake=built.lake, retention_of=lambda places: dict.fromkeys(places, 3_600_000))
    assert [(hop.key.group_id, hop.verdict) for hop in found.hops] == [
        ("billing", Verdict.STALL),
        (None, Verdict.STALL),
        (None, Verdict.OK),
        ("audit", Verdict.OK),
    ]
    [not_landed, group] = sorted(found.hops[:2], key=lambda hop: -hop.key.partition)
    assert group.retention is not None
    assert group.retention.left_ms == 3_600_000 - 15 * 60_000
    assert not_landed.retention is not None
    assert not_landed.retention.left_ms == 3_600_000 - 34 * 60_000, "no older than the last record that was landed"


def test_points_of_a_chart_are_the_worst_of_their_stretch_of_time() -> None:
    rows = []
    for second in range(720):
        at = NOON + timedelta(seconds=second)
        for partition in (0, 1):
            lag = None if (second, partition) == (10, 1) else second * 10 + partition
            rows.append(looked(at, partition, "landed", None, 0, lag, lag, NOON, lag))
    start, end = NOON, NOON + timedelta(seconds=720)
    points = list(_worst_lags(lambda *_: answer(rows), start, end))
    assert len(points) == 240, "three seconds each"
    assert [(p.time_lag_ms, p.offset_lag) for p in points[:5]] == [
        (21, 41),
        (51, 101),
        (81, 161),
        (None, None),
        (141, 281),
    ]
    assert [p.at for p in points[:2]] == [NOON + timedelta(seconds=2), NOON + timedelta(seconds=5)]
    assert {(p.flow, p.hop) for p in points} == {("f", "landed")}
