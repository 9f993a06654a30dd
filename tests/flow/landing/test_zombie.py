"""Law F: a mirror that slept while another one took over writes nothing when it wakes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.flow.kit import Process, count, wait_until
from tests.servers.lakes import Pair


@pytest.mark.law("C", "D", "F")
def test_law_f_a_woken_zombie_writes_nothing(pair: Pair, tmp_path: Path) -> None:
    pair.create(2000)
    mirror = pair.mirror(chunk_records=100)

    def arrived() -> int:
        return count(pair.central, pair.remote)

    zombie = Process(tmp_path / "zombie.log", "run", "--conf", pair.conf)
    heir = None
    try:
        wait_until(lambda: arrived() > 0, "the first mirror has sent something")
        zombie.signal_tree(signal.SIGSTOP)
        pair.produce(2000, seed=2)
        heir = Process(tmp_path / "heir.log", "run", "--conf", pair.conf)
        wait_until(lambda: arrived() == 4000, "the second mirror has sent everything")
        zombie.signal_tree(signal.SIGCONT)
        pair.produce(500, seed=3)
        wait_until(lambda: not zombie.is_running, "the zombie notices that it was replaced")
        assert zombie.popen.returncode == 3, zombie.output
        assert "belongs to another republisher" in zombie.output
        assert "another lander of east has taken its relay over" in zombie.output
        wait_until(lambda: arrived() == 4500, "the heir goes on")
        for drain in (["run"], ["land", "--source", "east"], ["republish", "--flow", "east->central"]):
            refused = pair.cli(*drain, "--once")
            assert (refused.returncode, f"is carried by process {heir.popen.pid}" in refused.stderr) == (3, True)
        assert heir.is_running, f"the heir was fenced by the zombie:\n{heir.output}"
        assert heir.terminate() == 0, heir.output
        pair.check(with_map=True)
        held = mirror.lake.ask(
            "SELECT count(*) AS all, count(DISTINCT `partition`, `offset`) AS each FROM {relay}", relay="east"
        )
        assert (held[0].all, held[0].each) == (4500, 4500), "each record was landed once"
    finally:
        for process in (zombie, heir):
            if process is not None and process.is_running:
                process.signal_tree(signal.SIGCONT)
                process.kill()
