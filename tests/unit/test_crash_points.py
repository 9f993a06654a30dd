"""Crash points: a process dies at one, another process acts at one, and the source passes each that is listed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mirrorlake
from mirrorlake.crash_points import POINTS, acting, crash_point
from mirrorlake.errors import UsageError
from tests.kit.deaths import dying
from tests.kit.processes import environment

PASSES = """
from mirrorlake.crash_points import crash_point
for number in range(3):
    crash_point("land.claimed")
    print(number, flush=True)
    crash_point("send.claimed")
"""


def passes(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PASSES], env=environment(**variables), capture_output=True, text=True)


def test_every_point_that_the_source_passes_is_listed_and_no_other() -> None:
    sources = [file.read_text() for file in Path(mirrorlake.__file__).parent.rglob("*.py")]
    passed = {name for text in sources for name in re.findall(r'crash_point\("([^"]+)"\)', text)}
    assert sorted(POINTS) == sorted(passed)


@pytest.mark.law("F")
def test_a_process_dies_where_it_is_told_to_with_nothing_cleaned_up() -> None:
    assert passes().stdout.split() == ["0", "1", "2"]
    for at, printed in (("land.claimed", []), ("land.claimed:3", ["0", "1"]), ("send.claimed:2", ["0", "1"])):
        done = passes(MIRRORLAKE_DIE_AT=at)
        assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, printed)


def test_another_acts_to_its_end_and_neither_dies_nor_acts_itself(tmp_path: Path) -> None:
    inner = tmp_path / "passes.py"
    inner.write_text(PASSES)
    act = f"{sys.executable} {inner} > {tmp_path}/out; echo aside"
    done = passes(MIRRORLAKE_ACT_AT=f"land.claimed:2={act}", MIRRORLAKE_DIE_AT="send.claimed:2")
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["0", "1"])
    assert done.stderr.split() == ["aside"], "standard output may be a document"
    assert (tmp_path / "out").read_text().split() == ["0", "1", "2"]


@pytest.mark.parametrize("given", ["land.nowhere", "land.claimed:soon", "land.claimed:2:3"])
@pytest.mark.parametrize("variable", ["MIRRORLAKE_DIE_AT", "MIRRORLAKE_ACT_AT"])
def test_a_name_that_is_no_point_starts_nothing(variable: str, given: str) -> None:
    value = given if variable == "MIRRORLAKE_DIE_AT" else f"{given}=true"
    command = [sys.executable, "-m", "mirrorlake", "status"]
    done = subprocess.run(command, env=environment(**{variable: value}), capture_output=True, text=True)
    assert (done.returncode, f"{variable} has {given}, which is no point" in done.stderr) == (2, True), done.stderr


def test_a_test_acts_within_its_process_once_and_inside_its_block_only() -> None:
    acted: list[str] = []
    with (
        acting("send.begun", lambda: acted.append("second"), nth=2),
        acting("send.begun", lambda: acted.append("first")),
    ):
        for _ in range(3):
            crash_point("send.begun")
            crash_point("send.flushed")
    crash_point("send.begun")
    assert acted == ["first", "second"]
    with dying("send.begun"):
        crash_point("send.begun")
    with pytest.raises(UsageError, match="acting has land"), acting("land.nowhere", list):
        pass
