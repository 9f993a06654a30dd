"""What runs beside a test: commands as processes, a part of a mirror in a thread, and how a test waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pyspark.sql import SparkSession

from mirrorlake import Mirror
from mirrorlake.crash_points import acting

_T = TypeVar("_T")


def queries(spark: SparkSession) -> dict[str, str]:
    """Return an id of each running stream by its name: Spark's queries, flows that send batches, and long-lived tasks."""
    names = [(*one.name.partition("@"), one) for one in threading.enumerate()]
    own = {
        name: owner or str(one.native_id) for name, _, owner, one in names if name.startswith(("land ", "republish "))
    }
    return {**{query.name: query.runId for query in spark.streams.active}, **own}


def wait_until(condition: Callable[[], Any], what: str, *, timeout: float = 900.0) -> Any:
    """Poll a condition; fails with its name when it does not come true."""
    deadline = time.monotonic() + timeout
    while (begun := time.monotonic()) < deadline:
        if result := condition():
            return result
        # A look that reads a topic or asks for the status costs CPU that what is waited for needs.
        took = time.monotonic() - begun
        time.sleep(max(0.1, took + min(took, 0.5)))
    raise AssertionError(f"never came true: {what}")


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **extra}


_ELSEWHERE = """
import fcntl, socket
socket.gethostname, fcntl.flock = (lambda: {host!r}), (lambda *_: None)
from mirrorlake.cli import main
main()
"""


class Process:
    """A mirrorlake command that stays on; its output is kept for the failure message."""

    def __init__(self, log: Path, *arguments: str, host: str = "", **environ: str) -> None:
        """Start it; with `host`, as if on another machine: under that name, and seen by no lock of this one."""
        self.arguments, self.log = arguments, log
        self._open = log.open("ab")
        begin = ["-c", _ELSEWHERE.format(host=host)] if host else ["-m", "mirrorlake"]
        command = [sys.executable, *begin, *arguments]
        if host:
            environ["MIRRORLAKE_TIMING"] = "process_sign_interval_s=1"
        self.popen = subprocess.Popen(command, stdout=self._open, stderr=subprocess.STDOUT, env=environment(**environ))

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def signal_tree(self, number: signal.Signals) -> None:
        """Stop or wake the command with its JVM and its Python workers."""
        root, reached = psutil.Process(self.popen.pid), set[psutil.Process]()
        # Whoever is not stopped yet may start others, and some end meanwhile.
        while new := {root, *root.children(recursive=True)} - reached:
            reached |= new
            for process in new:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._open.close()

    def terminate(self, timeout: float = 400) -> int:
        if self.is_running:
            self.popen.terminate()
        code = self.popen.wait(timeout)
        self._open.close()
        return code

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running(log: Path, *arguments: str, host: str = "") -> Iterator[Process]:
    process = Process(log, *arguments, host=host)
    try:
        yield process
    finally:
        if process.is_running:
            process.kill()


def ended(log: Path, *arguments: str, **environ: str) -> Process:
    """Run a command in a process of its own to its end, wherever `MIRRORLAKE_DIE_AT` says that this is."""
    process = Process(log, *arguments, **environ)
    try:
        process.popen.wait(400)
    finally:
        process.kill()
    return process


@contextmanager
def beside(run: Callable[[threading.Event], object]) -> Iterator[list[BaseException]]:
    """Run a call until the block ends, which sets its event; gives the list into which its failure is put, if it fails."""
    stop, failures = threading.Event(), list[BaseException]()

    def call() -> None:
        try:
            run(stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


def staying_on(mirror: Mirror) -> AbstractContextManager[list[BaseException]]:
    """Run a mirror in this process until the block ends (see `beside`)."""
    return beside(lambda stop: mirror.run(stop=stop))


class Killed(Exception):
    """A call was killed here."""


def kill() -> None:
    raise Killed


def killed_between_steps(
    call: Callable[[], _T],
    *,
    points: Sequence[str] = ("step.done", "step.written"),
    meanwhile: Mapping[int, Callable[[], object]] | None = None,
) -> tuple[_T, int]:
    """Call again and again what is killed before and after the row of each of its steps; return what it returns, and how often it died.

    `meanwhile` is done after the death of that number.
    """
    for deaths, point in enumerate(islice(cycle(points), 40)):
        if deaths and (act := (meanwhile or {}).get(deaths)):
            act()
        try:
            with acting(point, kill):
                return call(), deaths
        except Killed:
            continue
    raise AssertionError("law F: what is killed again and again goes on where it was")
