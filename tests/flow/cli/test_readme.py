"""Every command of the README does what it says.

Each line of its bash blocks is run as it stands, but for what a machine without a cluster needs: `.venv/bin/` is this
environment, conf/demo.yml listens on free ports, and the demo writes fewer records. Commands that need a Spark session share
one in this process: that a process of its own starts one is shown by the demo.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit.commands import copy_demo_conf, run_cli
from tests.kit.processes import environment

ROOT = Path(__file__).parents[3]


def readme_commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.strip().splitlines() if line and not line.startswith("#")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    copy_demo_conf(tmp_path)
    yield tmp_path
    subprocess.run(
        [sys.executable, "-m", "mirrorlake", "sandbox", "down", "--purge", "--conf", "conf/demo.yml"],
        cwd=tmp_path,
        check=False,
    )


def readme_python() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def as_run_here(line: str) -> list[str]:
    words = shlex.split(line)
    if words == ["make", "demo"]:
        return [sys.executable, str(ROOT / "notebooks" / "demo"), "--conf", "conf/demo.yml", "--records", "2000"]
    assert words[0] == ".venv/bin/mirrorlake", f"how is this run? {line}"
    return [sys.executable, "-m", "mirrorlake", *words[1:]]


def run_as_process(line: str, place: Path) -> tuple[int, str]:
    # Spark generates code here, as it does for users (tests/conftest.py).
    env = environment(PYTHONPATH=str(ROOT), SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1")
    result = subprocess.run(
        as_run_here(line), cwd=place, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    return result.returncode, result.stdout[-2000:] + result.stderr[-3000:]


def run_here(line: str) -> tuple[int, str]:
    done = run_cli(*shlex.split(line)[1:])
    return done.returncode, done.stdout + done.stderr


def test_every_command_of_the_readme_works(place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = readme_commands()
    assert "sandbox down" in lines[-1]
    monkeypatch.chdir(place)
    for line in lines:
        is_alone = line == "make demo" or " sandbox " in line
        code, said = run_as_process(line, place) if is_alone else run_here(line)
        # A doctor that looks at empty clusters finds that no topic is there yet.
        allowed = (0, 1) if " doctor " in line else (0,)
        assert code in allowed, f"{line}\n{said}"
        assert "Traceback" not in said, line
        if " verify " in line:
            # As `make lab` starts: in a folder of notebooks, below the one with the settings.
            (place / ".git").mkdir()
            (place / "notebooks").mkdir()
            monkeypatch.chdir(place / "notebooks")
            for block in readme_python():
                exec(block, {})  # noqa: S102  the README is ours
            monkeypatch.chdir(place)
            assert (place / "lake" / "relay" / "east").is_dir()
            assert not (place / "notebooks" / "lake").exists()
