"""How much memory a backlog takes: `run --once` of a new mirror over so many small records, looked at twice a second."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.bench.contest import Contest
from tests.bench.growth_cost import say
from tests.bench.processes import ProcessTree
from tests.bench.workload import Topic

_LOOK_S = 0.5


def drain(records: int = 10_000_000) -> None:
    """Fill a source, drain it, and print the most memory that the driver, Spark's JVM and the workers held at once."""
    topic = Topic(name="bench.small", records=records, value_bytes=100)
    with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as folder:
        place = Path(folder)
        with Contest([topic], seed=7, directory=place, say=lambda line: say(said=line)) as contest:
            contest.create([topic])
            contest.write([topic])
            clusters = {one.alias: {"bootstrap_servers": one.bootstrap_servers} for one in contest.clusters}
            flows = [{"source": "east", "target": "central", "topics": topic.name}]
            conf = place / "mirror.yml"
            conf.write_text(json.dumps({"lake": {"root": str(place / "lake")}, "clusters": clusters, "flows": flows}))
            say(
                records=records,
                **_ran([sys.executable, "-m", "mirrorlake", "run", "--once", "--conf", str(conf)], place),
            )
            [copy] = contest.copies(lambda name: f"east.{name}")
            copy.await_complete(lambda: None, patience_s=60.0)


def _ran(command: list[str], folder: Path) -> dict[str, float]:
    began, most = time.monotonic(), dict.fromkeys(("driver", "jvm", "workers", "all"), 0.0)
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        tree = ProcessTree(process.pid)
        while process.poll() is None:
            for name, held in _held(process.pid).items():
                most[name] = max(most[name], held)
            tree.cpu_seconds()
            time.sleep(_LOOK_S)
    if process.returncode:
        raise RuntimeError((folder / "run.log").read_text(errors="replace")[-1000:])
    return {f"{name}_mb": round(held / 1e6) for name, held in most.items()} | {
        "s": round(time.monotonic() - began, 1),
        "cpu_s": round(tree.cpu_seconds(), 1),
    }


def _held(pid: int) -> dict[str, float]:
    """Read proportional set sizes: a page that forked workers share counts once."""
    found = dict.fromkeys(("driver", "jvm", "workers"), 0.0)
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                kind = "driver" if process == root else "jvm" if process.name() == "java" else "workers"
                found[kind] += process.memory_full_info().pss
    return found | {"all": sum(found.values())}
