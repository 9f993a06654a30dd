"""Who carries a stream, on this machine and on others: seen while it runs, and not for ever after it died."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake.context import running_flows
from mirrorlake.context.running_flows import RunningFlows
from mirrorlake.model.owner import new_owner, said_owner, temporary_sign
from mirrorlake.timing import Timing
from tests.builders import NOON

FLOWS = ["east->central", "west->central"]


class Clock:
    """A clock of one machine; `beats` are the files that others write again while somebody waits."""

    def __init__(self) -> None:
        self.s = 0.0
        self.beats: list[Path] = []

    def __call__(self) -> float:
        return self.s

    def wait(self, seconds: float) -> None:
        self.s += seconds
        for file in self.beats:
            file.write_text(json.dumps({**json.loads(file.read_text()), "beat": self.s}))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))


def seen_from(lake: Path, clock: Clock, *, here: bool = True) -> RunningFlows:
    """Look at a lake from this machine, or from one that sees none of its locks."""
    return RunningFlows(
        lambda: f"{lake}/checkpoints", lake if here else None, now=lambda: NOON, clock=clock, wait=clock.wait
    )


def left_behind(monkeypatch: pytest.MonkeyPatch, lake: Path, *streams: str) -> Path:
    """Return the sign that a process of another machine leaves where it is killed."""
    with monkeypatch.context() as patch:
        patch.setattr(running_flows.socket, "gethostname", lambda: "elsewhere")
        with seen_from(lake, Clock(), here=False).announce_running(streams) as sign:
            file = lake / "checkpoints" / "running" / sign
            text = file.read_text()
    assert not file.exists()
    file.write_text(text)
    return file


def test_a_stream_that_runs_here_is_seen_with_its_process_until_it_ends(tmp_path: Path) -> None:
    at, beside = seen_from(tmp_path, Clock()), seen_from(tmp_path, Clock())
    assert at.find_running(FLOWS) == {}
    with at.announce_running(FLOWS[:1]):
        found = beside.await_running(FLOWS)
        assert list(found) == FLOWS[:1]
        assert "process " in found[FLOWS[0]]
        assert "12:00:00" in found[FLOWS[0]]
        with beside.announce_running(FLOWS):
            assert list(at.on_this_machine(FLOWS)) == FLOWS, "the one that takes over does not wait"
        assert list(at.on_this_machine(FLOWS)) == FLOWS[:1]
    assert beside.on_this_machine(FLOWS) == {}, "what a killed process left behind is no lock"
    assert not [*(tmp_path / "checkpoints" / "running").iterdir()], "the signs are gone"


@pytest.mark.law("F")
def test_law_f_a_process_of_another_machine_is_seen_by_a_sign_that_changes_and_forgotten_once_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    reader, file = seen_from(tmp_path, clock), left_behind(monkeypatch, tmp_path, *FLOWS[:1])
    assert list(reader.find_running(FLOWS)) == FLOWS[:1], "it may live"
    clock.beats = [file]
    assert "on elsewhere" in reader.await_running(FLOWS)[FLOWS[0]]
    for _ in range(100):
        clock.wait(1)
        assert list(reader.find_running(FLOWS)) == FLOWS[:1]
    clock.beats, began = [], clock.s
    another, text = seen_from(tmp_path, clock), file.read_text()
    assert another.await_running(FLOWS) == {}
    assert 2 < (clock.s - began) / Timing().process_sign_interval_s < 3
    assert not file.exists(), "the next command does not wait for it again"
    # Where it cannot be removed.
    file.write_text(text)
    clock.wait(1)
    assert another.find_running(FLOWS) == {}


@pytest.mark.law("F")
@pytest.mark.parametrize("here", [True, False], ids=["a folder of this machine", "a lake elsewhere"])
def test_law_f_the_sign_of_a_command_ends_with_it_and_that_of_one_killed_here_at_once(
    tmp_path: Path, here: bool
) -> None:
    clock, locks = Clock(), tmp_path / "running" if here else tmp_path / "cache" / "running"
    command, lander = seen_from(tmp_path, Clock(), here=here), seen_from(tmp_path, clock, here=here)
    with command.announce_running(["land east"], temporary=True) as sign:
        owner = new_owner(sign)
        assert temporary_sign(owner) == sign
        assert "process " in said_owner(owner)
        assert lander.is_alive(sign)
        assert lander.find_running(["land east"]) == {}, "it carries the stream for nobody to wait for"
        left = (tmp_path / "checkpoints" / "running" / sign).read_bytes()
    clock.s += 2
    assert not lander.is_alive(sign)
    assert not [*locks.iterdir()]
    (tmp_path / "checkpoints" / "running" / sign).write_bytes(left)
    (locks / f"{sign}.lock").write_text("of a process that is gone")
    clock.s += 2
    assert not lander.is_alive(sign), "no lock, no process"
    assert not temporary_sign(new_owner())


def test_a_lake_that_takes_no_file_keeps_nobody_from_running(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("a file in the place of the folder")
    (tmp_path / "checkpoints").write_text("another one")
    found = seen_from(tmp_path, Clock())
    with found.announce_running(["a"]):
        assert found.await_running(["a"]) == {}
