"""The mirror under test: a process of its own, kept running as systemd would keep it."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.history import History
from tests.kit.processes import Process

_RESTART_S = 1.0
# What SIGTERM may take (docs/operations.md), and what a machine under load adds.
_GRACE_S = 40.0
# Exit codes with which it may end by itself: a cluster or a store failed.
_ALLOWED = {4}


class Incarnation(Process):
    """One process of the mirror with all that it started."""

    def __init__(self, log: Path, conf: Path) -> None:
        super().__init__(log, "run", "--conf", str(conf), SPARK_LOCAL_DIRS=str(log.parent / "spark"))
        self.killed = False
        self._root = psutil.Process(self.popen.pid)
        self._seen: dict[int, psutil.Process] = {}

    def tree(self) -> list[psutil.Process]:
        """Return its living processes, those whose parent is gone included."""
        with suppress(psutil.NoSuchProcess):
            for process in [self._root, *self._root.children(recursive=True)]:
                self._seen[process.pid] = process
        return [one for one in self._seen.values() if _lives(one)]

    def send(self, number: signal.Signals) -> None:
        """Signal all of them."""
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """End the main process as the kernel's memory killer would; what it started is left to itself."""
        self.tree()
        self.killed = True
        super().kill()

    def ask_to_end(self, history: History) -> None:
        """Ask it to end, as systemd does."""
        self.tree()
        self.killed = True
        asked = time.monotonic()
        try:
            code = self.terminate(_GRACE_S)
        except subprocess.TimeoutExpired:
            history.find("SIGTERM", f"the mirror still ran {_GRACE_S:.0f} s after SIGTERM")
            self.kill()
            return
        history.say(f"mirror ended {time.monotonic() - asked:.0f} s after SIGTERM with {code}")
        # Before it had put its handler in place, the signal itself ends it.
        if code not in (0, 4, -signal.SIGTERM):
            history.find("SIGTERM", f"the mirror ended with {code}")

    def jvms(self) -> list[psutil.Process]:
        return [one for one in self.tree() if one.name().startswith("java")]

    def workers(self) -> list[psutil.Process]:
        """Return Spark's Python workers and their daemon."""
        return [one for jvm in self.jvms() for one in jvm.children(recursive=True)]


def _lives(process: psutil.Process) -> bool:
    # It may end between the two questions.
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


class Keeper(threading.Thread):
    """Start the mirror, and start it again when it has ended."""

    def __init__(self, folder: Path, conf: Path, history: History) -> None:
        super().__init__(daemon=True, name="keeper")
        self._folder, self._conf, self._history = folder, conf, history
        self._ends = threading.Event()
        self.lock = threading.RLock()
        self.all: list[Incarnation] = []
        self.now = self.begin()

    def begin(self) -> Incarnation:
        """Start one more process of the mirror."""
        self.all.append(Incarnation(self._folder / f"mirror-{len(self.all) + 1}.log", self._conf))
        return self.all[-1]

    def run(self) -> None:
        while not self._ends.wait(0.2):
            with self.lock:
                code = self.now.popen.poll()
                if code is None:
                    self.now.tree()
                    continue
                if not self.now.killed:
                    self._history.say(f"mirror ended by itself with {code}")
                    if code not in _ALLOWED:
                        last = " / ".join(self.now.output.splitlines()[-3:])[:600]
                        self._history.find("ended", f"{self.now.log.name} ended by itself with {code}: {last}")
            if self._ends.wait(_RESTART_S):
                return
            with self.lock:
                if not self.now.is_running:
                    self.now = self.begin()
                    self._history.say("mirror started again")

    def end(self) -> None:
        """End everything that was started; what outlives its main process by a minute is a finding."""
        self._ends.set()
        self.join()
        if self.now.is_running:
            self.now.ask_to_end(self._history)
        deadline = time.monotonic() + 60
        while (left := [one for each in self.all for one in each.tree()]) and time.monotonic() < deadline:
            time.sleep(0.5)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                self._history.find("left running", f"{process.pid} {' '.join(process.cmdline())[:160]}")
                process.kill()
        for each in self.all:
            for text in each.output.split("Traceback")[1:]:
                # pyspark's own server prints one when its JVM is killed.
                if "pyspark/accumulators.py" not in text:
                    self._history.find("traceback", f"{each.log.name}: {text[:3000]}")
