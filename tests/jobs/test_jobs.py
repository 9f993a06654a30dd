"""Each job is the command of its name and nothing else."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.py"))


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_a_job_runs_the_step_of_its_name(job: Path) -> None:
    tree = ast.parse(job.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [ast.literal_eval(call.args[0]) for call in calls] == [job.stem]


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_a_job_hands_its_arguments_on(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = {
        "land": ["--source", "east"],
        "republish": ["--flow", "east->central"],
        "groups": ["--flow", "east->central"],
        "failover": ["--flow", "east->central"],
        "failback": ["--flow", "east->central"],
        "cutover": ["--flow", "east->central"],
        "drill": ["--flow", "east->central"],
        "erase": ["--source", "east", "--topic", "orders", "--reason", "request 1", "--key", "ada"],
        "restore": ["--source", "east", "--topics", "orders", "--at", "-2h", "--into", "scratch"],
    }.get(job.stem, [])
    monkeypatch.setattr(sys, "argv", [str(job), *extra, "--conf", str(tmp_path / "missing.yml")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(job), run_name="__main__")
    assert ended.value.code == 2
    assert "missing.yml" in capsys.readouterr().err
