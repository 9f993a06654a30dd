"""Run work of our own as Spark tasks, a task an item: a batch of it, or tasks that live until they are asked to end.

A task answers with rows of a kind and a body. An own error is such a row, too: Spark passes on the text of an exception only.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from mirrorlake import errors
from mirrorlake.runtime.folders import Folder, folder_of
from mirrorlake.runtime.stores import attach_stores, attached_stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

OUTPUT = "kind string, body binary"
_OUTPUT = pa.schema([("kind", pa.string()), ("body", pa.binary())])
_ERROR = "error"

# A turn of a live task with so many records is one of a backlog.
_BACKLOG_RECORDS = 20_000

Item = TypeVar("Item")


class TaskAnswer(NamedTuple):
    """What a task says."""

    kind: str
    body: bytes = b""


def run_tasks(
    spark: SparkSession, work: Sequence[Item], each: Callable[[Item], Iterator[TaskAnswer]]
) -> list[TaskAnswer]:
    """Run one Spark task for each item, side by side as slots allow, and return their answers in no order."""
    frame = spark.range(0, len(work), 1, len(work)).mapInArrow(_job(tuple(work), each), OUTPUT)
    return [TaskAnswer(row.kind, bytes(row.body)) for row in frame.collect()]


def _job(
    work: tuple[Item, ...], each: Callable[[Item], Iterator[TaskAnswer]]
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    stores = attached_stores()

    def job(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attach_stores(*stores)
        for part in numbers:
            for index in part.column(0).to_pylist():
                yield from rows(each(work[index]))

    return job


def rows(answers: Iterator[TaskAnswer]) -> Iterator[pa.RecordBatch]:
    """Write the answers of a task as `OUTPUT`; an own error of theirs is the last of them."""
    try:
        for answer in answers:
            yield _row(answer)
    except errors.MirrorlakeError as error:
        yield _row(TaskAnswer(_ERROR, json.dumps(error.as_dict() | {"facts": _plain(error.facts)}).encode()))


def failure_of(answers: Sequence[TaskAnswer]) -> errors.MirrorlakeError | None:
    """Build the first error among the answers again; None without one."""
    for answer in answers:
        if answer.kind == _ERROR:
            document = json.loads(answer.body)
            kind = getattr(errors, document["error"], errors.MirrorlakeError)
            error: errors.MirrorlakeError = kind(
                document["cause"], consequence=document["consequence"], remedy=document["remedy"], **document["facts"]
            )
            return error
    return None


def _row(answer: TaskAnswer) -> pa.RecordBatch:
    columns = [pa.array([answer.kind]), pa.array([answer.body], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if isinstance(value, str | int | float | None)}


class BacklogMemory:
    """Give memory back to the system once a backlog is worked off; malloc keeps some 400 MB of a worker's otherwise."""

    def __init__(self) -> None:
        self._was_large = False

    def worked(self, records: int) -> None:
        """Take note of how many records a turn of a task had."""
        if self._was_large and records < _BACKLOG_RECORDS:
            pa.default_memory_pool().release_unused()
        self._was_large = records >= _BACKLOG_RECORDS


class GoesOn:
    """Tell long-lived tasks, wherever they run, whether to go on: as long as a file of theirs is there.

    `number` grows with every owner. An owner removes the files of those before it, so that tasks whose driver is gone, or
    sleeps, end too; it leaves those of owners after it alone.
    """

    def __init__(self, address: str | Path, number: int) -> None:
        self._address = str(address)
        self._name = f"{number:020}-{uuid.uuid4().hex}"

    def __call__(self) -> bool:
        """Tell whether to go on."""
        return self._folder.has(self._name)

    def begin(self) -> None:
        """Let these tasks go on, and none of an owner before."""
        for other in self._folder.names():
            # A name with a dot is a file that another owner is writing.
            if not other.startswith(".") and other[:20] <= self._name[:20]:
                self._folder.remove(other)
        self._folder.write(self._name, "")

    def end(self) -> None:
        """Ask the tasks to end."""
        self._folder.remove(self._name)

    @cached_property
    def _folder(self) -> Folder:
        return folder_of(self._address)

    def __getstate__(self) -> dict[str, str]:
        # An open file system stays with its process.
        return {"_address": self._address, "_name": self._name}


class LiveTasks:
    """Run long-lived tasks as one Spark job in a thread of its own, from the start of a `with` block to its end.

    They end together: where one ends by itself, or with an error, nobody does its part any more.

    Args:
        spark: a session that nothing else uses: all its jobs are interrupted where the tasks do not end in time.
        work: an item a task.
        each: the task; it asks `goes_on` again and again.
        goes_on: what tells the tasks to end.
        name: the name of the thread.
        grace_s: how long the tasks may take to end.
    """

    def __init__(
        self,
        spark: SparkSession,
        work: Sequence[Item],
        each: Callable[[Item], Iterator[TaskAnswer]],
        *,
        goes_on: GoesOn,
        name: str,
        grace_s: float,
    ) -> None:
        self._spark = spark
        self._goes_on = goes_on
        self._grace_s = grace_s
        self._answers: list[TaskAnswer] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work, _together(each, goes_on)), name=name, daemon=True)

    def __enter__(self) -> LiveTasks:
        self._goes_on.begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._goes_on.end()
        deadline = time.monotonic() + self._grace_s
        while self._thread.is_alive():
            self._thread.join(0.5)
            if time.monotonic() >= deadline:
                log.warning("tasks.interrupted name=%s", self._thread.name)
                # Again and again: a job may begin between two of them.
                self._spark.interruptAll()

    def wait(self, timeout_s: float) -> bool:
        """Wait a while for the end of all tasks; tell whether they have ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def answers(self) -> list[TaskAnswer]:
        """Return all that the tasks said, after they have ended.

        Raises:
            MirrorlakeError: a task's own error.
            Exception: Spark's, such as after the death of a worker.
        """
        if self._failure is not None:
            raise self._failure
        if (failure := failure_of(self._answers)) is not None:
            raise failure
        return self._answers

    def _run(self, work: Sequence[Item], each: Callable[[Item], Iterator[TaskAnswer]]) -> None:
        try:
            self._answers = run_tasks(self._spark, work, each)
        except BaseException as error:  # passed on to the thread that waits
            self._failure = error


def _together(each: Callable[[Item], Iterator[TaskAnswer]], goes_on: GoesOn) -> Callable[[Item], Iterator[TaskAnswer]]:
    def run(item: Item) -> Iterator[TaskAnswer]:
        try:
            yield from each(item)
        finally:
            goes_on.end()

    return run


class _Slots:
    """The slots of this process' Spark that long-lived tasks hold; as many as there are cores stay free for all other work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = 0

    def take(self, spark: SparkSession, count: int) -> bool:
        with self._lock:
            if self._held + count > _live_slots(spark):
                return False
            self._held += count
            return True

    def give_back(self, count: int) -> None:
        with self._lock:
            self._held -= count


_SLOTS = _Slots()


class HeldSlots:
    """Hold slots for long-lived tasks in a `with` block; `enough` tells whether there were as many.

    The session is asked for only where slots are.
    """

    def __init__(self, spark: Callable[[], SparkSession], count: int) -> None:
        self._spark = spark
        self._count = count
        self.enough = False

    def __enter__(self) -> HeldSlots:
        self.enough = not self._count or _SLOTS.take(self._spark(), self._count)
        return self

    def __exit__(self, *_: object) -> None:
        if self.enough:
            _SLOTS.give_back(self._count)


def _live_slots(spark: SparkSession) -> int:
    """Tell how many slots long-lived tasks may hold: those past the cores of a local session, on a cluster what it says."""
    said = spark.conf.get("spark.mirrorlake.liveSlots", "")
    if said:
        return int(said)
    master = spark.conf.get("spark.master", "")
    with suppress(ValueError):
        if master.startswith("local["):
            return max(0, int(master[6:-1].partition(",")[0]) - (os.cpu_count() or 1))
    return 0
