"""Law F: a republisher that slept while another one took over writes nothing when it wakes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.flow.kit import Process, count, wait_until
from tests.servers.lakes import Pair


@pytest.mark.law("C", "D", "F")
def test_law_f_a_woken_zombie_writes_nothing(pair: Pair, tmp_path: Path) -> None:
    pair.create()
    pair.mirror(chunk_records=100)

    def land(records: int, seed: int) -> None:
        pair.produce(records, seed=seed)
        landed = pair.cli("land", "--source", "east", "--once")
        assert landed.returncode == 0, landed.stderr

    def arrived() -> int:
        return count(pair.central, pair.remote)

    land(2000, 1)
    arguments = ("republish", "--flow", "east->central", "--conf", pair.conf)
    zombie = Process(tmp_path / "zombie.log", *arguments)
    heir = None
    try:
        wait_until(lambda: arrived() > 0, "the first republisher has sent something")
        zombie.signal_tree(signal.SIGSTOP)
        land(2000, 2)
        heir = Process(tmp_path / "heir.log", *arguments)
        wait_until(lambda: arrived() == 4000, "the second republisher has sent everything")
        zombie.signal_tree(signal.SIGCONT)
        land(500, 3)
        wait_until(lambda: not zombie.is_running, "the zombie notices that it was replaced")
        assert zombie.popen.returncode == 3, zombie.output
        assert "belongs to another republisher" in zombie.output
        wait_until(lambda: arrived() == 4500, "the heir goes on")
        assert heir.is_running, f"the heir was fenced by the zombie:\n{heir.output}"
        assert heir.terminate() == 0, heir.output
        pair.check(with_map=True)
    finally:
        for process in (zombie, heir):
            if process is not None and process.is_running:
                process.signal_tree(signal.SIGCONT)
                process.kill()
