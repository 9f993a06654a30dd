"""The job hands its arguments on to the command line, and ends with its exit code."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "jobs" / "mirrorlake.py"


@pytest.mark.parametrize("command", ["run", "tables --run", "land --source east"])
def test_the_job_runs_a_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(JOB), *command.split(), "--conf", str(tmp_path / "missing.yml")])
    # As Python starts a script: its folder, which holds a module of the package's name, comes first.
    monkeypatch.setattr(sys, "path", [str(JOB.parent), *sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOB), run_name="__main__")
    assert ended.value.code == 2
    assert "missing.yml" in capsys.readouterr().err
    assert str(JOB.parent) not in sys.path
