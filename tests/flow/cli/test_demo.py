"""The demo leaves no process behind, whenever it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.flow.cli.test_readme import ROOT
from tests.kit.commands import copy_demo_conf
from tests.kit.processes import environment, wait_until


def test_ctrl_c_in_the_middle_leaves_nothing_running(tmp_path: Path) -> None:
    copy_demo_conf(tmp_path)
    with (tmp_path / "demo.log").open("wb") as log:
        demo = subprocess.Popen(
            [sys.executable, str(ROOT / "notebooks" / "demo"), "--conf", "conf/demo.yml", "--records", "2000"],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(),
        )
        family: list[psutil.Process] = []
        try:
            wait_until(lambda: b"landing" in (tmp_path / "demo.log").read_bytes(), "the demo lands")
            family = psutil.Process(demo.pid).children(recursive=True)
            assert family
            demo.send_signal(signal.SIGINT)
            assert demo.wait(400) != 0
        finally:
            if demo.poll() is None:
                demo.kill()
        wait_until(lambda: not any(_lives(one) for one in family), "every process of the demo is gone")
    assert "Traceback" not in (tmp_path / "demo.log").read_text(errors="replace")


def _lives(process: psutil.Process) -> bool:
    # It may end between the two questions.
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
