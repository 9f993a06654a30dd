"""Tasks of our own that live until they are asked to end: as one Spark job, or in threads of this process."""

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
from mirrorlake.runtime.beats import Beats, SilenceWatch, beating
from mirrorlake.runtime.cluster import PAGE, SLOT_WITHIN_S, is_cluster, no_slots
from mirrorlake.runtime.folders import Folder, folder_of
from mirrorlake.runtime.stopping import OwnJobs
from mirrorlake.runtime.tasks import TaskAnswer, TaskFailed, failure_of, run_here, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# What a live task says that failed by something unforeseen, and one that sees nothing of its folder.
_FAILED, _BLIND = "failed", "blind"

# A turn of a live task with so many records is one of a backlog.
_BACKLOG_RECORDS = 20_000
# At once, and when the clients' own threads have freed what they held, up to 32 MB a partition: the first time 420 MB of a landing
# task stayed, where 170 are in use.
_RELEASE_AFTER_S = (0.0, 10.0)

Item = TypeVar("Item")


class GoesOn:
    """Tell long-lived tasks, wherever they run, whether to go on: as long as a file of theirs is there.

    `number` grows with every owner. An owner removes the files of those before it, so that tasks whose driver is gone, or
    sleeps, end too; it leaves those of owners after it alone. A task looks at most each `every_s`.
    """

    def __init__(self, address: str | Path, number: int, *, every_s: float = 0.0) -> None:
        self._address = str(address)
        self._every_s = every_s
        self._next_look = 0.0
        self._name = f"{number:020}-{uuid.uuid4().hex}"

    def __call__(self) -> bool:
        """Tell whether to go on."""
        if time.monotonic() < self._next_look:
            return True
        goes_on = self._folder.has(self._name)
        self._next_look = time.monotonic() + self._every_s if goes_on else 0.0
        return goes_on

    @property
    def beats(self) -> Beats:
        """The signs of life of these tasks."""
        return Beats(f"{self._address}.beats", self._name)

    def begin(self) -> None:
        """Let these tasks go on, and none of an owner before."""
        self._folder.take_over(self._name)

    def end(self) -> None:
        """Ask the tasks to end."""
        self._folder.remove(self._name)

    @cached_property
    def _folder(self) -> Folder:
        return folder_of(self._address)

    def __getstate__(self) -> dict[str, object]:
        # An open file system stays with its process, and so does its clock.
        return {"_address": self._address, "_name": self._name, "_every_s": self._every_s, "_next_look": 0.0}


class LiveTasks:
    """Run long-lived tasks as one Spark job, or in this process, from the start of a `with` block to its end.

    They end together, unless they `end_apart`: where one ends by itself, or with an error, nobody does its part any more.

    Args:
        spark: a session that nothing else uses: all its jobs are interrupted where the tasks do not end in time. None runs
            them in threads of this process.
        work: an item a task.
        each: the task; it asks `goes_on` again and again.
        goes_on: what tells the tasks to end.
        name: the name of the thread.
        grace_s: how long the tasks may take to end.
        end_apart: each task has an end of its own, and may wait until another one's has freed a slot for it.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        work: Sequence[Item],
        each: Callable[[Item], Iterator[TaskAnswer]],
        *,
        goes_on: GoesOn,
        name: str,
        grace_s: float,
        end_apart: bool = False,
    ) -> None:
        self._spark = spark
        self._jobs = OwnJobs(spark) if spark is not None else None
        self._goes_on = goes_on
        self._grace_s = grace_s
        self._answers: list[TaskAnswer] = []
        self._failure: BaseException | None = None
        self._lack: StoreError | None = None
        # A local session has the slots that it was given, and tries nothing a second time.
        on_cluster = spark is not None and is_cluster(spark)
        self._beats = goes_on.beats if on_cluster and not end_apart else None
        self._heard = SilenceWatch(goes_on.beats.heard, len(work), within_s=SLOT_WITHIN_S)
        self._tasks = len(work)
        self._asked_to_end = False
        tasks = tuple(enumerate(work))
        run = _watched(each, None if end_apart else goes_on, self._beats)
        self._thread = threading.Thread(target=self._run, args=(tasks, run), name=name, daemon=True)

    def __enter__(self) -> LiveTasks:
        if self._beats is not None:
            self._beats.begin()
        self._goes_on.begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asked_to_end = self._thread.is_alive()
        self._goes_on.end()
        deadline = time.monotonic() + self._grace_s
        while self._thread.is_alive():
            self._thread.join(0.5)
            if time.monotonic() >= deadline:
                log.info("tasks.interrupted name=%s", self._thread.name)
                if self._jobs is None:
                    return
                # Again and again: a job may begin between two of them.
                self._jobs.interrupt()

    def wait(self, timeout_s: float) -> bool:
        """Wait a while for the end of all tasks; tell whether they have ended, or are to end for want of slots."""
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._beats is not None and (silent := self._heard.silent()):
            what = f"{len(silent)} of {self._tasks} long-lived tasks got none within {SLOT_WITHIN_S:.0f} s"
            self._lack = no_slots(what)
            # One that waits for a slot would wait on.
            if self._jobs is not None:
                self._jobs.interrupt()
            return True
        return not self._thread.is_alive()

    def answers(self) -> list[TaskAnswer]:
        """Return all that the tasks said, after they have ended.

        Raises:
            MirrorlakeError: a task's own error, or there were too few slots.
            Exception: Spark's, such as after the death of a worker; a task's unforeseen one.
        """
        if self._lack is not None:
            raise self._lack
        if self._failure is not None:
            raise self._failure
        if (failure := failure_of(self._answers)) is not None:
            raise failure
        for answer in self._answers:
            if answer.kind == _FAILED:
                raise TaskFailed(answer.body.decode())
            if answer.kind == _BLIND and not self._asked_to_end:
                raise StoreError(
                    f"the worker on {answer.body.decode()} does not see the lake's checkpoints",
                    consequence="it landed and sent nothing",
                    remedy=f"put the lake on a folder that all machines share, or on an object store ({PAGE})",
                )
        return self._answers

    def _run(self, work: Sequence[tuple[int, Item]], each: Callable[[tuple[int, Item]], Iterator[TaskAnswer]]) -> None:
        try:
            if self._spark is None or self._jobs is None:
                self._answers = run_here(work, each)
                return
            with self._jobs:
                self._answers = run_tasks(self._spark, work, each)
        except BaseException as error:  # passed on to the thread that waits
            self._failure = error


def _watched(
    each: Callable[[Item], Iterator[TaskAnswer]], goes_on: GoesOn | None, beats: Beats | None
) -> Callable[[tuple[int, Item]], Iterator[TaskAnswer]]:
    def run(numbered: tuple[int, Item]) -> Iterator[TaskAnswer]:
        number, item = numbered
        try:
            if beats is not None and not beats.are_seen():
                yield TaskAnswer(_BLIND, platform.node().encode())
                return
            with beating(partial(beats.say, number)) if beats is not None else nullcontext():
                yield from each(item)
        except MirrorlakeError:
            raise
        except Exception:
            # Raised, a cluster would try it again, meet the end of all tasks, and answer that nothing was wrong.
            yield TaskAnswer(_FAILED, traceback.format_exc().encode())
        finally:
            if goes_on is not None:
                goes_on.end()

    return run


class BacklogMemory:
    """Give memory back to the system once a backlog is worked off; malloc keeps some 400 MB of a worker's otherwise."""

    def __init__(self) -> None:
        self._worked_off_at = 0.0
        self._waits: tuple[float, ...] = ()

    def worked(self, records: int) -> None:
        """Take note of how many records a turn of a task had."""
        if records >= _BACKLOG_RECORDS:
            self._worked_off_at, self._waits = time.monotonic(), _RELEASE_AFTER_S
        elif self._waits and time.monotonic() >= self._worked_off_at + self._waits[0]:
            self._waits = self._waits[1:]
            pa.default_memory_pool().release_unused()
