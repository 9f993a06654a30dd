"""Heartbeats of long-lived tasks on a cluster, by which their driver detects a task without a slot.

Spark restarts a task whose executor died. On a cluster that has shrunk it waits for a slot silently and for ever.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from mirrorlake.runtime.folders import Folder, open_folder
from mirrorlake.timing import timing

log = logging.getLogger(__name__)


class TaskHeartbeats:
    """The heartbeats of an owner's tasks, as small files; `name` begins with the owner's number in twenty digits."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name

    def create(self) -> None:
        """Delete the files of earlier owners, and write one by which a task checks that it reads this folder."""
        self._folder.replace_older(self._name)

    def are_visible(self) -> bool:
        """Return whether this process can read the owner's file."""
        return self._folder.has(self._name)

    def write(self, task: int, text: str) -> None:
        self._folder.write(f"{self._name}.{task}", text)

    def read(self, task: int) -> str:
        try:
            return self._folder.read(f"{self._name}.{task}")
        except FileNotFoundError:
            return ""

    @cached_property
    def _folder(self) -> Folder:
        return open_folder(self._address)

    def __getstate__(self) -> dict[str, str]:
        # An open file system cannot be pickled.
        return {"_address": self._address, "_name": self._name}


@contextmanager
def send_heartbeats(write: Callable[[str], None], *, interval_s: float | None = None) -> Iterator[None]:
    """Write a new text every `interval_s` seconds from a thread, during the block."""
    ended, between_s = threading.Event(), interval_s or timing().heartbeat_interval_s

    def beat() -> None:
        while True:
            try:
                write(uuid.uuid4().hex)
            except Exception as error:
                # A store may be briefly unreachable; the task itself fails with it, too.
                log.info("task.no_beat why=%s", error)
            if ended.wait(between_s):
                return

    thread = threading.Thread(target=beat, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class HeartbeatMonitor:
    """Detect silent tasks by unchanged texts, independent of other machines' clocks."""

    def __init__(
        self,
        read: Callable[[int], str],
        tasks: int,
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._timeout_s = timeout_s
        self._clock = clock
        self._last = dict.fromkeys(range(tasks), ("", clock()))
        self._next = 0.0

    def silent_tasks(self) -> list[int]:
        """Return the tasks without a new text for `timeout_s`; texts are read every 5 s at most."""
        if self._clock() < self._next:
            return []
        now = self._clock()
        self._next = now + timing().heartbeat_interval_s
        for task, (before, _) in self._last.items():
            try:
                text = self._read(task)
            except Exception as error:
                # A failed read is no evidence that the task is silent.
                log.info("task.not_heard task=%s why=%s", task, error)
                self._last[task] = before, now
                continue
            if text != before:
                self._last[task] = text, now
        return [task for task, (_, at) in self._last.items() if now - at > self._timeout_s]
