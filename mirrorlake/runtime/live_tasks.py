"""Run long-lived tasks until their run marker is deleted, as one Spark job or in threads of this process."""

from __future__ import annotations

import logging
import platform
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from mirrorlake.errors import MirrorlakeError, StoreError
from mirrorlake.runtime.cluster import PAGE, is_cluster, no_slots_error
from mirrorlake.runtime.folders import Folder, open_folder
from mirrorlake.runtime.task_heartbeats import HeartbeatMonitor, TaskHeartbeats, send_heartbeats
from mirrorlake.runtime.tasks import TaskFailed, TaskResult, find_failure, run_in_threads, run_tasks
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# The results of a live task that failed unexpectedly, and of one that cannot read its folder.
_FAILED, _BLIND = "failed", "blind"

# A turn of a live task with this many records belongs to a backlog.
_BACKLOG_RECORDS = 20_000
# At once, and again after the clients' own threads have freed up to 32 MB a partition: the first release left a landing task with
# 420 MB, of which 170 are in use.
_RELEASE_AFTER_S = (0.0, 10.0)

Item = TypeVar("Item")


class RunMarker:
    """A file that long-lived tasks on any machine check: they run as long as it exists.

    `number` increases with every owner. An owner deletes the files of earlier owners, so that tasks whose driver is gone or sleeps
    end too; it does not delete those of later owners. A task checks at most every `interval_s`.
    """

    def __init__(self, address: str | Path, number: int, *, interval_s: float = 0.0) -> None:
        self._address = str(address)
        self._interval_s = interval_s
        self._next_check = 0.0
        self._name = f"{number:020}-{uuid.uuid4().hex}"

    def exists(self) -> bool:
        if time.monotonic() < self._next_check:
            return True
        is_there = self._folder.has(self._name)
        self._next_check = time.monotonic() + self._interval_s if is_there else 0.0
        return is_there

    @property
    def heartbeats(self) -> TaskHeartbeats:
        return TaskHeartbeats(f"{self._address}.beats", self._name)

    def create(self) -> None:
        self._folder.replace_older(self._name)

    def remove(self) -> None:
        self._folder.remove(self._name)

    @cached_property
    def _folder(self) -> Folder:
        return open_folder(self._address)

    def __getstate__(self) -> dict[str, object]:
        # An open file system cannot be pickled, and a monotonic clock is valid in its process only.
        return {"_address": self._address, "_name": self._name, "_interval_s": self._interval_s, "_next_check": 0.0}


class LiveTasks:
    """Run long-lived tasks as one Spark job, or in this process, during a `with` block.

    All tasks end together, because no other task would do the part of an ended one, unless they `end_apart`: then each may wait until
    another one has freed a slot. Nothing else uses the session `spark`, because all its jobs are interrupted if the tasks do not end
    within `grace_s`; None runs them in threads of this process. A task checks `run_marker` regularly.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        work: Sequence[Item],
        run_task: Callable[[Item], Iterator[TaskResult]],
        *,
        run_marker: RunMarker,
        name: str,
        grace_s: float,
        end_apart: bool = False,
    ) -> None:
        self._spark = spark
        self._run_marker = run_marker
        self._grace_s = grace_s
        self._results: list[TaskResult] = []
        self._failure: BaseException | None = None
        self._no_slots: StoreError | None = None
        # A local session has a fixed number of slots, and does not retry tasks.
        on_cluster = spark is not None and is_cluster(spark)
        self._heartbeats = run_marker.heartbeats if on_cluster and not end_apart else None
        self._monitor = HeartbeatMonitor(run_marker.heartbeats.read, len(work), timeout_s=timing().slot_timeout_s)
        self._tasks = len(work)
        self._asked_to_end = False
        tasks = tuple(enumerate(work))
        run = _guard_task(run_task, None if end_apart else run_marker, self._heartbeats)
        self._thread = threading.Thread(target=self._run, args=(tasks, run), name=name, daemon=True)

    def __enter__(self) -> LiveTasks:
        if self._heartbeats is not None:
            self._heartbeats.create()
        self._run_marker.create()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asked_to_end = self._thread.is_alive()
        self._run_marker.remove()
        deadline = time.monotonic() + self._grace_s
        while self._thread.is_alive():
            self._thread.join(0.5)
            if time.monotonic() >= deadline:
                log.info("tasks.interrupted name=%s", self._thread.name)
                if self._spark is None:
                    return
                # Repeatedly, because a job may start between two interrupts.
                self._spark.interruptAll()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for all tasks, and return whether they have ended, or must end for lack of slots."""
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._heartbeats is not None and (silent := self._monitor.silent_tasks()):
            what = f"{len(silent)} of {self._tasks} long-lived tasks got none within {timing().slot_timeout_s:.0f} s"
            self._no_slots = no_slots_error(what)
            # A task that waits for a slot does not check the run marker.
            if self._spark is not None:
                self._spark.interruptAll()
            return True
        return not self._thread.is_alive()

    def results(self) -> list[TaskResult]:
        """Return the results of all tasks, after they have ended; raise a task's own error or Spark's, or that slots were too few."""
        if self._no_slots is not None:
            raise self._no_slots
        if self._failure is not None:
            raise self._failure
        if (failure := find_failure(self._results)) is not None:
            raise failure
        for answer in self._results:
            if answer.kind == _FAILED:
                raise TaskFailed(answer.body.decode())
            if answer.kind == _BLIND and not self._asked_to_end:
                raise StoreError(
                    f"the worker on {answer.body.decode()} does not see the lake's checkpoints",
                    consequence="this worker landed and sent nothing",
                    remedy=f"put the lake on a folder that all machines share, or on an object store ({PAGE})",
                )
        return self._results

    def _run(self, work: Sequence[tuple[int, Item]], each: Callable[[tuple[int, Item]], Iterator[TaskResult]]) -> None:
        try:
            self._results = run_in_threads(work, each) if self._spark is None else run_tasks(self._spark, work, each)
        except BaseException as error:  # passed on to the thread that waits
            self._failure = error


def _guard_task(
    each: Callable[[Item], Iterator[TaskResult]], run_marker: RunMarker | None, heartbeats: TaskHeartbeats | None
) -> Callable[[tuple[int, Item]], Iterator[TaskResult]]:
    def run(numbered: tuple[int, Item]) -> Iterator[TaskResult]:
        number, item = numbered
        try:
            if heartbeats is not None and not heartbeats.are_visible():
                yield TaskResult(_BLIND, platform.node().encode())
                return
            with send_heartbeats(partial(heartbeats.write, number)) if heartbeats is not None else nullcontext():
                yield from each(item)
        except MirrorlakeError:
            raise
        except Exception:
            # If it were raised, a cluster would retry the task, which would end at once by the deleted marker, without an error.
            yield TaskResult(_FAILED, traceback.format_exc().encode())
        finally:
            if run_marker is not None:
                run_marker.remove()

    return run


class BacklogMemory:
    """Return memory to the system after a backlog; malloc would retain some 400 MB of a worker's."""

    def __init__(self) -> None:
        self._worked_off_at = 0.0
        self._waits: tuple[float, ...] = ()

    def record_turn(self, records: int) -> None:
        if records >= _BACKLOG_RECORDS:
            self._worked_off_at, self._waits = time.monotonic(), _RELEASE_AFTER_S
        elif self._waits and time.monotonic() >= self._worked_off_at + self._waits[0]:
            self._waits = self._waits[1:]
            pa.default_memory_pool().release_unused()
