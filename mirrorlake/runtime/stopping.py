"""Interrupt Spark's jobs after a stop was requested."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class InterruptibleJobs:
    """The jobs that one thread starts in a `with` block, for another thread to interrupt.

    The session is the caller's alone (`own_session`), because only the thread that started jobs can use Spark's tags for them. Over
    Connect a session is shared, and any thread may use a tag.
    """

    def __init__(self, spark: SparkSession) -> None:
        # Loads pyspark, which a command that only queries does not need.
        from mirrorlake.runtime.session import is_connect

        self._spark = spark
        self._tag = f"mirrorlake-{uuid.uuid4().hex}" if is_connect(spark) else ""

    def __enter__(self) -> InterruptibleJobs:
        if self._tag:
            self._spark.addTag(self._tag)
        return self

    def __exit__(self, *_: object) -> None:
        if self._tag:
            self._spark.removeTag(self._tag)

    def interrupt(self) -> None:
        """Interrupt the jobs that run now."""
        if self._tag:
            self._spark.interruptTag(self._tag)
        else:
            self._spark.interruptAll()


@contextmanager
def interrupt_jobs_on_stop(spark: SparkSession, stop: threading.Event, *, name: str, grace_s: float) -> Iterator[None]:
    """Interrupt all jobs of this thread (`InterruptibleJobs`) if the block runs on for `grace_s` after `stop` was set.

    The thread then gets Spark's own error. A second thread, called `name`, watches the time.
    """
    left = threading.Event()
    with InterruptibleJobs(spark) as jobs:

        def watch() -> None:
            while not left.wait(0.2):
                if stop.is_set():
                    # Repeatedly, because a job may start between two interrupts.
                    while not left.wait(grace_s):
                        jobs.interrupt()
                    return

        watcher = threading.Thread(target=watch, name=name, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            left.set()
            watcher.join()
