"""Check the workers of a cluster before its first task: a fault would later appear as an obscure failure of a task.

In a local session tasks share this machine, its folders and this package; on a cluster they may not.
"""

from __future__ import annotations

import json
import logging
import platform
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from time import sleep
from typing import TYPE_CHECKING

import mirrorlake
from mirrorlake.errors import MirrorlakeError, SafetyError, StoreError
from mirrorlake.model.causes import root_cause
from mirrorlake.runtime.cluster import PAGE, is_cluster, no_slots_error
from mirrorlake.runtime.folders import open_folder
from mirrorlake.runtime.tasks import TaskResult, find_failure, run_tasks
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# A task sleeps a little, so that the next one goes to another executor.
_TASKS, _SPREAD_S = 8, 0.2


def require_usable_workers(spark: SparkSession, addresses: Sequence[str]) -> None:
    """Check that a cluster's workers run this package and reach this process' folders of the lake.

    Law F: two simultaneous attempts of one lane would fence each other, so speculation is refused. A local session is not checked,
    nor one of Spark Connect, which runs no tasks of this package.
    """
    # Loads pyspark, which a command that only queries does not need.
    from mirrorlake.runtime.session import is_connect

    if is_connect(spark) or not is_cluster(spark):
        return
    if spark.conf.get("spark.speculation", "false") == "true":
        raise SafetyError(
            "Spark runs slow tasks a second time (spark.speculation=true)",
            consequence="two attempts of one lane would fence each other, so nothing was started",
            remedy="--conf spark.speculation=false",
        )
    sign, folders = f"look-{uuid.uuid4().hex}", [open_folder(place) for place in addresses]
    for folder in folders:
        folder.write(sign, "")
    try:
        answers = _run_with_timeout(
            spark, lambda own: run_tasks(own, range(_TASKS), _inspect_worker(tuple(addresses), sign))
        )
    finally:
        for folder in folders:
            folder.remove(sign)
    if (failure := find_failure(answers)) is not None:
        raise failure
    for answer in sorted(set(answers)):
        seen = json.loads(answer.body)
        log.info("worker.seen host=%s python=%s package=%s", answer.kind, seen["python"], seen["package"])
        _require_usable(answer.kind, seen["version"], seen["unseen"])


def _inspect_worker(addresses: tuple[str, ...], sign: str) -> Callable[[int], Iterator[TaskResult]]:
    def look(_: int) -> Iterator[TaskResult]:
        unseen = [place for place in addresses if not open_folder(place).has(sign)]
        seen = {
            "version": mirrorlake.__version__,
            "python": platform.python_version(),
            "package": mirrorlake.__file__,
            "unseen": unseen,
        }
        sleep(_SPREAD_S)
        yield TaskResult(platform.node(), json.dumps(seen).encode())

    return look


def _require_usable(host: str, version: str, unseen: Sequence[str]) -> None:
    if version != mirrorlake.__version__:
        raise StoreError(
            f"the worker on {host} has mirrorlake {version}, but this process {mirrorlake.__version__}",
            consequence="nothing was started",
            remedy=f"install the same version on both ({PAGE})",
        )
    if unseen:
        raise SafetyError(
            f"the worker on {host} does not see this process's files in {unseen[0]}",
            consequence="it would write records where nobody reads them, so nothing was started",
            remedy=f"put the lake on a folder that all machines share, or on an object store ({PAGE})",
        )


def _run_with_timeout(spark: SparkSession, run: Callable[[SparkSession], list[TaskResult]]) -> list[TaskResult]:
    from mirrorlake.runtime.session import own_session

    answers: list[TaskResult] = []
    failures: list[Exception] = []
    own = own_session(spark)

    def work() -> None:
        try:
            answers.extend(run(own))
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="check the workers", daemon=True)
    thread.start()
    thread.join(timing().slot_timeout_s)
    if thread.is_alive():
        own.interruptAll()
        raise no_slots_error(f"no task began within {timing().slot_timeout_s:.0f} s")
    for failure in failures:
        if isinstance(failure, MirrorlakeError):
            raise failure
        cause = root_cause(str(failure))
        lacks = "No module named" in cause
        raise StoreError(
            f"the workers cannot run mirrorlake's tasks: {cause}",
            consequence="nothing was started",
            remedy=f"install mirrorlake there ({PAGE})" if lacks else "read an executor's stderr",
        ) from failure
    return answers
