"""Run one task an item: as Spark tasks, or in threads of this process for little work.

A task returns rows of a kind and a body. A `MirrorlakeError` is such a row, too, because Spark passes on only an exception's text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from mirrorlake import errors
from mirrorlake.runtime.stores import attach_stores, attached_stores
from mirrorlake.runtime.worker_log import WorkerLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUT = "kind string, body binary"
_OUTPUT = pa.schema([("kind", pa.string()), ("body", pa.binary())])
_ERROR = "error"


Item = TypeVar("Item")


class TaskResult(NamedTuple):
    kind: str
    body: bytes = b""


class TaskFailed(Exception):
    """A long-lived task failed unexpectedly; the text is its traceback."""


def run_tasks(
    spark: SparkSession, work: Sequence[Item], run_task: Callable[[Item], Iterator[TaskResult]]
) -> list[TaskResult]:
    """Run one Spark task for each item, in parallel as slots allow, and return their results in no order."""
    frame = spark.range(0, len(work), 1, len(work)).mapInArrow(_job(tuple(work), run_task), OUTPUT)
    return [TaskResult(row.kind, bytes(row.body)) for row in frame.collect()]


def _job(
    work: tuple[Item, ...], run_task: Callable[[Item], Iterator[TaskResult]]
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    stores, worker_log = attached_stores(), WorkerLog.from_environment()

    def job(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attach_stores(*stores)
        worker_log.attach()
        for part in numbers:
            for index in part.column(0).to_pylist():
                yield from result_batches(run_task(work[index]))

    return job


def run_in_threads(work: Sequence[Item], run_task: Callable[[Item], Iterator[TaskResult]]) -> list[TaskResult]:
    """Run each item in a thread of this process, and return the results in no order; for little work cheaper than a Spark job."""
    results: list[TaskResult] = []
    failures: list[BaseException] = []

    def run(item: Item) -> None:
        try:
            for answer in _with_error(run_task(item)):
                results.append(answer)
        except BaseException as error:  # passed on to the thread that waits
            failures.append(error)

    # Daemon threads, so that a task that hangs on an unreachable cluster does not block the process' end.
    threads = [threading.Thread(target=run, args=(item,), name="mirrorlake here", daemon=True) for item in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def result_batches(results: Iterator[TaskResult]) -> Iterator[pa.RecordBatch]:
    """Yield the results of a task as `OUTPUT` batches; a `MirrorlakeError` is the last."""
    yield from map(_row, _with_error(results))


def _with_error(results: Iterator[TaskResult]) -> Iterator[TaskResult]:
    try:
        yield from results
    except errors.MirrorlakeError as error:
        yield TaskResult(_ERROR, json.dumps(error.as_dict() | {"facts": _plain(error.facts)}).encode())


def find_failure(results: Sequence[TaskResult]) -> errors.MirrorlakeError | None:
    """Return the first `MirrorlakeError` among the results, or None without one."""
    for answer in results:
        if answer.kind == _ERROR:
            document = json.loads(answer.body)
            kind = getattr(errors, document["error"], errors.MirrorlakeError)
            error: errors.MirrorlakeError = kind(
                document["cause"], consequence=document["consequence"], remedy=document["remedy"], **document["facts"]
            )
            return error
    return None


def _row(answer: TaskResult) -> pa.RecordBatch:
    columns = [pa.array([answer.kind]), pa.array([answer.body], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if isinstance(value, str | int | float | None)}
