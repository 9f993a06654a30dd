"""End Spark's work after a stop was asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def jobs_end(spark: SparkSession, stop: threading.Event, *, name: str, grace_s: float) -> Iterator[None]:
    """Interrupt all jobs of a session, when `stop` was set and the grace has passed before the block ends.

    Their thread then gets Spark's own error. The session is the caller's alone (`SparkSession.newSession`): Spark's tags would
    name single jobs, but can only be used by the thread that started them. A second thread watches the time, and has the name.
    """
    left = threading.Event()

    def watch() -> None:
        while not left.wait(0.2):
            if stop.is_set():
                # Again and again: a job may begin between two of them.
                while not left.wait(grace_s):
                    spark.interruptAll()
                return

    watcher = threading.Thread(target=watch, name=name, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        left.set()
        watcher.join()
