"""End Spark's work after a stop was asked for."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def jobs_end(spark: SparkSession, stop: threading.Event, *, name: str, grace_s: float) -> Iterator[None]:
    """Interrupt the jobs that this thread has started in the block, when `stop` was set and the grace has passed.

    The thread then gets Spark's own error. A second thread watches the time, and has the name.
    """
    tag, left = f"mirrorlake-{uuid.uuid4().hex}", threading.Event()

    def watch() -> None:
        while not left.wait(0.2):
            if stop.is_set():
                if not left.wait(grace_s):
                    spark.interruptTag(tag)
                return

    watcher = threading.Thread(target=watch, name=name, daemon=True)
    spark.addTag(tag)
    watcher.start()
    try:
        yield
    finally:
        left.set()
        spark.removeTag(tag)
        watcher.join()
