"""Each job is the command of its name and nothing else."""

from __future__ import annotations

import ast
import subprocess
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
def test_a_job_hands_its_arguments_on(job: Path, tmp_path: Path) -> None:
    extra = {
        "land": ["--source", "east"],
        "republish": ["--flow", "east->central"],
        "groups": ["--flow", "east->central"],
    }.get(job.stem, [])
    missing = tmp_path / "missing.yml"
    result = subprocess.run(
        [sys.executable, str(job), *extra, "--conf", str(missing)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 2
    assert "missing.yml" in result.stderr
