"""Who runs a flow on this machine: seen while it runs, and no longer."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from mirrorlake.mirror.presence import announced, running

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def now() -> datetime:
    return NOON


def test_a_flow_that_runs_is_seen_with_its_process_until_it_ends(tmp_path: Path) -> None:
    flows = ["east->central", "west->central"]
    assert running(tmp_path, flows) == {}
    with announced(tmp_path, flows[:1], now=now):
        found = running(tmp_path, flows)
        assert list(found) == ["east->central"]
        assert "process " in found["east->central"]
        assert "12:00:00" in found["east->central"]
        with announced(tmp_path, flows, now=now):
            assert list(running(tmp_path, flows)) == flows, "the one that takes over does not wait"
        assert list(running(tmp_path, flows)) == ["east->central"]
    assert running(tmp_path, flows) == {}, "what a killed process left behind is no lock"


def test_a_lake_elsewhere_or_one_that_takes_no_file_keeps_nobody_from_running(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("a file in the place of the folder")
    with announced(None, ["a"], now=now), announced(tmp_path, ["a"], now=now):
        assert running(None, ["a"]) == {}
