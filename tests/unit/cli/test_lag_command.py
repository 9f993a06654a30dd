"""`mirrorlake lag` and `mirrorlake sample` as people see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.cli.commands.lag import _document, _show, as_document
from mirrorlake.cli.output import Output
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lake.samples import PositionKey, SubjectSample
from tests.commands import run_cli

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def row(minutes: int, lag_ms: int | None, **other: Any) -> Any:
    given = {
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
    return SimpleNamespace(**given, asDict=lambda: given)


def test_a_position_is_one_line_with_how_it_was_last_and_how_it_was_worst(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _show(Output(as_json=False), [row(2, 20), row(1, 90_000), row(3, 10), row(1, None, generation=2)])
    title, _, first, second, note = capsys.readouterr().out.splitlines()
    assert title == "lag"
    assert first.split() == ["east->central", "orders-0", "landed", "east", "3", "9", "6", "10", "90", "000"]
    assert second.split() == ["east->central", "orders~2-0", "landed", "east", "1", "9", "8", "–", "–"]
    assert note.startswith("–: not known")


def test_times_in_json_are_utc() -> None:
    east = timezone(timedelta(hours=5))
    assert _document(row(0, 1, observed_at=NOON.astimezone(east)))["observed_at"] == "2026-01-01T12:00:00Z"


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
    document = as_document(sample)
    assert document["changed"] == 1
    assert [look["error"] for look in document["looks"]] == [None, "cluster west is not reachable"]  # type: ignore[attr-defined]


def test_an_interval_goes_with_staying_on() -> None:
    done = run_cli("sample", "--once", "--every", "5s")
    assert done.returncode == 2
    assert "--every and --once exclude each other" in done.stderr


def test_each_look_of_a_sampler_that_stays_on_is_a_document_of_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = PositionSnapshot(observed_at=NOON, looks=(SubjectSample(subject="cluster", name="east"),))

    class Sampling:
        def sample(self, *, tell: Callable[[PositionSnapshot], None], **_: object) -> None:
            tell(seen)
            tell(seen)

    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: Sampling())
    done = run_cli("sample", "--every", "30s", "--json", "--conf", str(tmp_path / "mirror.yml"))
    assert [json.loads(line)["looks"][0]["name"] for line in done.stdout.splitlines()] == ["east", "east"]
