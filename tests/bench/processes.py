"""CPU-seconds of a process tree, how busy the rest of the machine was meanwhile, and what machine it is."""

from __future__ import annotations

import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.results import per_million


class ProcessTree:
    """Count the CPU time of a process and of all that descend from it.

    Linux adds the time of an ended child to its parent when the parent collects it, so short-lived children are in the
    sum although nobody saw them. A parent that ignores SIGCHLD collects nobody, as PySpark's daemon does with its workers
    (`pyspark/daemon.py`): what such a child took is kept as it was last seen, by a look each half second.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._most = 0.0
        self._uncollected: dict[psutil.Process, float] = {}
        self._ended = 0.0
        self._look = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def memory_gb(self) -> float:
        """Return what the tree holds of the machine's memory now; a page that forked workers share counts once."""
        total = 0
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                found = process.memory_full_info()
                total += getattr(found, "pss", found.rss)
        return total / 1e9

    def cpu_seconds(self) -> float:
        """Return user and system time so far; it never falls, also when the tree has ended."""
        with self._look:
            total, uncollected = 0.0, dict[psutil.Process, float]()
            for process in self._family():
                with suppress(psutil.NoSuchProcess):
                    took = float(sum(process.cpu_times()[:4]))
                    total += took
                    if _ignores_children(process.ppid()):
                        uncollected[process] = took
            self._ended += sum(took for process, took in self._uncollected.items() if process not in uncollected)
            self._uncollected = uncollected
            self._most = max(self._most, total + self._ended)
            return self._most

    def _watch(self) -> None:
        while self._root.is_running():
            self.cpu_seconds()
            time.sleep(0.5)

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _ignores_children(pid: int) -> bool:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        mask = next(line.split()[1] for line in lines if line.startswith("SigIgn:"))
        return bool(int(mask, 16) >> (signal.SIGCHLD - 1) & 1)
    return False


def machine_cpu_seconds() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Guests' time is in the user time already.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used between two moments."""

    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float
    strangers_cores: float

    def values(self, records: int) -> dict[str, float]:
        """Name the use per million records, and the rate."""
        return {
            "CPU-s per M": per_million(self.cpu_seconds, records),
            "records/s": records / self.seconds,
            "brokers' CPU-s per M": per_million(self.broker_cpu_seconds, records),
        }

    @property
    def cost(self) -> dict[str, float]:
        """Name the use of what is done once."""
        return {"seconds": self.seconds, "CPU-s": self.cpu_seconds}


class Stopwatch:
    """Measure one mirror from the making of this object, or from `restart`, to `read`."""

    def __init__(self, mirror: ProcessTree, brokers: Sequence[ProcessTree]) -> None:
        self._mirror = mirror
        self._brokers = brokers
        self.restart()

    def restart(self) -> None:
        self._start = self._now()

    def read(self) -> Usage:
        seconds, mirror, brokers, own, machine = (
            after - before for before, after in zip(self._start, self._now(), strict=True)
        )
        strangers = max(0.0, machine - mirror - brokers - own)
        return Usage(
            seconds=seconds,
            cpu_seconds=mirror,
            broker_cpu_seconds=brokers,
            strangers_cores=strangers / seconds if seconds > 0 else 0.0,
        )

    def _now(self) -> tuple[float, float, float, float, float]:
        return (
            time.monotonic(),
            self._mirror.cpu_seconds(),
            sum(broker.cpu_seconds() for broker in self._brokers),
            time.process_time(),
            machine_cpu_seconds(),
        )


def watch_to_end(
    process: subprocess.Popen[bytes],
    tree: ProcessTree,
    *,
    look: Callable[[], object],
    every_s: float,
) -> Usage:
    """Measure a process until it has ended; `look` is called meanwhile."""
    watch = Stopwatch(tree, [])
    while process.poll() is None:
        # What a process used after the last look at it is lost.
        tree.cpu_seconds()
        look()
        with suppress(subprocess.TimeoutExpired):
            process.wait(every_s)
    return watch.read()


def this_machine() -> str:
    """Say where the figures come from."""
    memory_gib = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{_cpu_model()}, {psutil.cpu_count() or 1} cores, {memory_gib:.0f} GiB, {system}"


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
