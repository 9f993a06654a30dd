"""A stop ends what Spark is doing for a flow, and only that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.runtime.stopping import interrupt_jobs_on_stop


def waiting(seconds: float):  # type: ignore[no-untyped-def]
    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return wait


def test_jobs_of_a_session_are_interrupted_after_the_grace_and_others_go_on(spark: SparkSession) -> None:
    stop, own = threading.Event(), spark.newSession()

    def other() -> int:
        return spark.range(0, 1, 1, 1).mapInArrow(waiting(4), "id long").count()

    def stopped() -> None:
        with interrupt_jobs_on_stop(own, stop, name="a flow", grace_s=0.5):
            stop.set()
            own.range(0, 1, 1, 1).mapInArrow(waiting(600), "id long").collect()

    with ThreadPoolExecutor(2) as pool:
        beside, ended = pool.submit(other), pool.submit(stopped)
        with pytest.raises(Exception, match=r"(?i)cancel") as failure:
            ended.result(timeout=120)
        assert beside.result(timeout=120) == 1
    assert isinstance(failure.value, PySparkException) or "Py4J" in type(failure.value).__name__
    with interrupt_jobs_on_stop(own, threading.Event(), name="another", grace_s=0.0):
        assert own.range(3).count() == 3
    assert "another" not in {thread.name for thread in threading.enumerate()}
