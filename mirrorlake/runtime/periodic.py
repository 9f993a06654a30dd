"""Run a flow's periodic tasks in the background: groups, configurations, ACLs, heartbeats.

A task may fail without stopping the records: it is tried again at its next turn, and its error is logged once. After a drain
(`--once`) every task runs once, and its failure is the step's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirrorlake.errors import ClusterUnreachable, MirrorlakeError
from mirrorlake.progress import log_context

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicTask:
    """A task to run every `interval_s` seconds, first after `first_delay_s`; `name` appears in the log."""

    name: str
    interval_s: float
    run: Callable[[], object]
    first_delay_s: float = 0.0


class PeriodicTasks:
    """Run the periodic tasks of one flow, or of a mirror.

    Args:
        flow: the flow, for the log; or `mirror`.
        tasks: the tasks; they run one after another, so they need no locks among themselves.

    Example:
        >>> done = []
        >>> PeriodicTasks("east->central", [PeriodicTask(name="groups", interval_s=10, run=lambda: done.append(1))]).run_all()
        >>> done
        [1]
    """

    def __init__(self, flow: str, tasks: Sequence[PeriodicTask]) -> None:
        self._flow = flow
        self._tasks = tuple(tasks)
        self._logged_causes: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run each task at its interval, on a thread, until `stop`."""
        if self._tasks:
            self._thread = threading.Thread(target=self._work, name=f"duties of {self._flow}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its running task has finished."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def run_all(self) -> None:
        """Run each task once.

        Raises:
            MirrorlakeError: the first failure, after all tasks have run.
        """
        failures = [failure for duty in self._tasks if (failure := self._run(duty)) is not None]
        if failures:
            raise failures[0]

    def _work(self) -> None:
        due = {duty.name: time.monotonic() + duty.first_delay_s for duty in self._tasks}
        with log_context(duties=self._flow):
            while not self._ended.is_set():
                for duty in self._tasks:
                    if self._ended.is_set() or due[duty.name] > time.monotonic():
                        continue
                    self._run(duty)
                    due[duty.name] = time.monotonic() + duty.interval_s
                self._ended.wait(max(0.05, min(due.values()) - time.monotonic()))

    def _run(self, task: PeriodicTask) -> MirrorlakeError | None:
        try:
            task.run()
        except MirrorlakeError as error:
            # A missing permission would otherwise be logged at every interval.
            if self._logged_causes.get(task.name) != error.cause:
                # The flow's stream warns of an unreachable cluster; only a periodic task detects a missing permission.
                level = logging.INFO if type(error) is ClusterUnreachable else logging.WARNING
                text = "duty.failed flow=%s duty=%s why=%s next=%s"
                log.log(level, text, self._flow, task.name, error.cause, error.remedy)
            self._logged_causes[task.name] = error.cause
            return error
        except Exception as error:
            # Even an unexpected error must not stop the records.
            log.exception("duty.failed flow=%s duty=%s", self._flow, task.name)
            return MirrorlakeError(
                f"{task.name} of {self._flow} failed: {type(error).__name__}: {error}",
                consequence="the records themselves were republished",
                remedy="set MIRRORLAKE_LOG=INFO to see where, then run the same command again",
            )
        self._logged_causes.pop(task.name, None)
        return None
