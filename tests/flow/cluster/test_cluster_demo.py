"""The script that shows a mirror on a Spark cluster of one machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from mirrorlake.sandbox.ports import free_ports

SCRIPT = Path(__file__).parents[3] / "jobs/cluster-demo"


def test_the_demo_of_a_cluster_mirrors_every_record_and_leaves_nothing_running(tmp_path: Path) -> None:
    demo = subprocess.run(
        [SCRIPT, tmp_path / "demo", *map(str, free_ports(3))], capture_output=True, text=True, timeout=600, check=False
    )
    log = f"{demo.stdout[-3000:]}{demo.stderr[-3000:]}"
    assert demo.returncode == 0, log
    assert "2 000 records landed · 2 000 records republished" in demo.stdout, log
    assert "✓ equal · 2 flows · 2 000 records verified" in demo.stdout, log
    # As docs/logs.md says: spark-submit prints its driver's standard error on its own standard output.
    assert "settings: 2 flows of" in demo.stdout, log
    assert "log of clients:" in demo.stdout, log
    assert "settings: " not in demo.stderr, log
    left = [
        one.info
        for one in psutil.process_iter(["pid", "cmdline"])
        if str(tmp_path) in " ".join(one.info["cmdline"] or ())
    ]
    assert not left


def test_the_demo_leaves_a_folder_alone_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mirror.yml").write_text("mine")
    demo = subprocess.run([SCRIPT, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert (demo.returncode, demo.stderr) == (1, f"{tmp_path} is not empty; next: name a new folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mirror.yml"]
