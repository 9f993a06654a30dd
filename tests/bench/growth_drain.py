"""How much memory a backlog takes: `run --once` of a new mirror over so many small records, looked at twice a second."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.bench.contest import Contest
from tests.bench.generated import growth_folder
from tests.bench.growth_cost import say
from tests.bench.processes import ProcessTree, watch_to_end
from tests.bench.workload import Topic


def drain(records: int = 10_000_000) -> None:
    """Fill a source, drain it, and print the most memory that the driver, Spark's JVM and the workers held at once."""
    topic = Topic(name="bench.small", records=records, value_bytes=100)
    with (
        growth_folder() as folder,
        Contest([topic], seed=7, directory=Path(folder), say=lambda line: say(said=line)) as contest,
    ):
        contest.create([topic])
        contest.write([topic])
        conf = contest.write_settings([{"source": "east", "target": "central", "topics": topic.name}])
        command = [sys.executable, "-m", "mirrorlake", "run", "--once", "--conf", str(conf)]
        say(records=records, **_ran(command, contest.directory))
        [copy] = contest.copies(lambda name: f"east.{name}")
        copy.await_complete(lambda: None, patience_s=60.0)


def _ran(command: list[str], folder: Path) -> dict[str, float]:
    most = dict.fromkeys(("driver", "jvm", "workers", "all"), 0.0)

    def look() -> None:
        for name, held in _held(process.pid).items():
            most[name] = max(most[name], held)

    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        used = watch_to_end(process, ProcessTree(process.pid), look=look, every_s=0.5)
    if process.returncode:
        raise RuntimeError((folder / "run.log").read_text(errors="replace")[-1000:])
    sizes = {f"{name}_mb": float(round(held / 1e6)) for name, held in most.items()}
    return sizes | {"s": round(used.seconds, 1), "cpu_s": round(used.cpu_seconds, 1)}


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
