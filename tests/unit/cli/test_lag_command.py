"""`mirrorlake lag` and a sample as people see them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.cli.commands.lag import _document
from mirrorlake.lag import LagPage
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lake.samples import PositionKey, SubjectSample
from tests.commands import run_cli

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def row(minutes: int, lag_ms: int | None, **other: Any) -> dict[str, Any]:
    return {
        "observed_at": NOON + timedelta(minutes=minutes),
        "flow": "east->central",
        "topic": "orders",
        "generation": 1,
        "partition": 0,
        "hop": "landed",
        "group_id": None,
        "cluster": "east",
        "position": minutes,
        "end_position": 9,
        "offset_lag": 9 - minutes,
        "time_lag_ms": lag_ms,
        **other,
    }


def as_row(given: dict[str, Any]) -> Any:
    return SimpleNamespace(**given)


def test_many_partitions_are_one_page_with_the_longest_waiting_first() -> None:
    hops = [("landed", None), ("republished", None), ("consumed", "billing")]
    rows = [
        row(1, 156_000 if (topic, n, hop) == ("payments", 7, "republished") else 0, topic=topic, partition=n, hop=hop)
        | {"group_id": group, "offset_lag": 8 * (topic == "payments" and n == 7 and hop == "republished")}
        for topic in ("orders", "payments")
        for n in range(16)
        for hop, group in hops
    ]
    shown = LagPage(map(as_row, rows)).sheet().text(rows=None, width=80)
    title, _, first, *others = shown.splitlines()
    assert title == "lag: 96 positions"
    assert first.split() == ["payments", "landed", "16", "0", "0", "ms"]
    assert others[0].split() == ["payments", "republished", "16", "8", "2", "min", "36", "s"]
    assert others[1].split() == ["payments", "consumed", "by", "billing", "on", "east", "16", "0", "0", "ms"]
    assert "longest waiting of 1 position; --by partition shows every one" in shown
    assert "payments-7" in others[-1]
    assert len(others) < 12
    assert len(LagPage(map(as_row, rows), by="partition").sheet().text(rows=None, width=99).splitlines()) == 98


def test_over_time_a_position_shows_its_newest_lag_and_its_longest() -> None:
    rows = [row(2, 20), row(1, 90_000), row(3, 10), row(1, None, generation=2)]
    text = LagPage(map(as_row, rows), by="partition").sheet().text(rows=None, width=200)
    _, heads, first, second, note = text.splitlines()
    assert heads.split() == ["partition", "hop", "position", "end", "offset", "lag", "time", "lag", "at", "most"]
    assert first.split() == ["orders-0", "landed", "3", "9", "6", "10", "ms", "1", "min", "30", "s"]
    assert second.split() == ["orders~2-0", "landed", "1", "9", "8", "–", "–"]
    assert note.strip().startswith("–: not known")


def test_a_lag_without_positions_names_the_next_step() -> None:
    assert str(LagPage([])).startswith("lag: no position is known yet; next: mirrorlake run")


def test_the_command_prints_a_page_or_every_position_and_its_document_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [as_row(row(1, 1_500, topic=f"t{n}", partition=0)) for n in range(60)]
    none = SimpleNamespace(tables=())
    mirror = SimpleNamespace(lag=SimpleNamespace(rows=lambda _: rows), tables=lambda: none)
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: mirror)
    conf = ("--conf", str(tmp_path / "mirror.yml"))
    page, full, document = (run_cli("lag", *conf, *more) for more in ((), ("--by", "partition"), ("--json",)))
    assert len(page.stdout.splitlines()) <= 36
    assert "… and 36 more rows of 60" in page.stdout
    assert sum("landed" in line for line in full.stdout.splitlines()) == 60
    assert {one["time_lag_ms"] for one in json.loads(document.stdout)["lag"]} == {1_500}


def test_times_in_json_are_utc() -> None:
    east = timezone(timedelta(hours=5))
    assert _document(as_row(row(0, 1, observed_at=NOON.astimezone(east))))["observed_at"] == "2026-01-01T12:00:00Z"


def test_a_sample_tells_who_did_not_answer_and_prints_no_position() -> None:
    key = PositionKey("east", None, "orders", 1, 0, "last_stable", None)
    sample = PositionSnapshot(
        observed_at=NOON,
        looks=(
            SubjectSample(subject="cluster", name="east", positions={key: 5}, rows={key: 5}, complete=True),
            SubjectSample(subject="cluster", name="west", error="cluster west is not reachable"),
        ),
    )
    assert str(sample) == "positions: 1 seen, 1 written\ncluster west: cluster west is not reachable"
    assert "orders" not in repr(sample), "a notebook would print thousands"
