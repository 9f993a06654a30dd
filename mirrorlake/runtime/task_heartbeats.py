"""Signs of life of long-lived tasks on a cluster, by which their driver sees one that has no slot.

Spark starts a task again whose executor died, and where the cluster has shrunk it waits for a slot, without a word, for ever.
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

log = logging.getLogger(__name__)

INTERVAL_S = 5.0


class TaskHeartbeats:
    """Keep the signs of life of an owner's tasks as small files; `name` begins with the owner's number in twenty digits."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name

    def create(self) -> None:
        """Remove those of owners before, and leave what shows a task that it sees this folder."""
        self._folder.replace_older(self._name)

    def are_visible(self) -> bool:
        """Tell whether this process sees what the owner wrote."""
        return self._folder.has(self._name)

    def write(self, task: int, text: str) -> None:
        """Leave a task's sign of life."""
        self._folder.write(f"{self._name}.{task}", text)

    def read(self, task: int) -> str:
        """Read a task's newest sign of life; empty before there is one."""
        try:
            return self._folder.read(f"{self._name}.{task}")
        except FileNotFoundError:
            return ""

    @cached_property
    def _folder(self) -> Folder:
        return open_folder(self._address)

    def __getstate__(self) -> dict[str, str]:
        # An open file system stays with its process.
        return {"_address": self._address, "_name": self._name}


@contextmanager
def send_heartbeats(write: Callable[[str], None], *, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Say a new text every `every_s` seconds, from a thread of its own, as long as the block lasts."""
    ended = threading.Event()

    def beat() -> None:
        while True:
            try:
                write(uuid.uuid4().hex)
            except Exception as error:
                # A store that is away for a moment; the task itself meets it, too.
                log.info("task.no_beat why=%s", error)
            if ended.wait(interval_s):
                return

    thread = threading.Thread(target=beat, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class HeartbeatMonitor:
    """Tell by their texts which of some tasks are silent for too long; clocks of other machines do not matter.

    Args:
        read: gives the newest text of a task.
        tasks: how many there are.
        timeout_s: how long one may be silent.
        clock: this machine's.

    Example:
        >>> monitor = HeartbeatMonitor(lambda task: "a", 1, timeout_s=60, clock=iter([0.0, 5.0, 5.0, 70.0, 70.0]).__next__)
        >>> monitor.silent_tasks(), monitor.silent_tasks()
        ([], [0])
    """

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
        """Return the tasks that said nothing new for too long; the texts are read now and then only."""
        if self._clock() < self._next:
            return []
        now = self._clock()
        self._next = now + INTERVAL_S
        for task, (before, _) in self._last.items():
            try:
                text = self._read(task)
            except Exception as error:
                # A store that does not answer this process says nothing of the task.
                log.info("task.not_heard task=%s why=%s", task, error)
                self._last[task] = before, now
                continue
            if text != before:
                self._last[task] = text, now
        return [task for task, (_, at) in self._last.items() if now - at > self._timeout_s]
