"""Our session of Spark: its cores, its workers, and what a stop ends of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.runtime import own_session
from tests.spark.frames import assert_rows


def test_more_tasks_than_cores_run_at_once_and_ordinary_work_is_cut_for_the_cores(
    spark: SparkSession, tmp_path: Path
) -> None:
    def meet(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (tmp_path / str(batch.column(0)[0])).touch()
            latest = time.monotonic() + 60
            while len(list(tmp_path.iterdir())) < 3:
                assert time.monotonic() < latest, "the tasks did not run at once"
                time.sleep(0.05)
            yield batch

    assert spark.range(0, 3, 1, 3).mapInArrow(meet, "id long").count() == 3
    assert spark.range(100).rdd.getNumPartitions() == 2
    files = spark.range(0, 400_000, 1, 8).write.mode("overwrite")
    files.parquet(str(tmp_path / "files"))
    assert spark.read.parquet(str(tmp_path / "files")).rdd.getNumPartitions() == 2


def test_workers_import_from_the_package_and_not_from_a_zip(spark: SparkSession) -> None:
    def zips(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        found = [
            name for name, module in sys.modules.items() if ".zip/pyspark" in (getattr(module, "__file__", "") or "")
        ]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"module": found}, pa.schema([("module", pa.string())]))

    assert_rows(spark.range(1).mapInArrow(zips, "module string"), "module string", [])


def waiting(seconds: float):  # type: ignore[no-untyped-def]
    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return wait


def test_jobs_of_a_session_are_interrupted_and_others_go_on(spark: SparkSession) -> None:
    own = own_session(spark)

    def other() -> int:
        return spark.range(0, 1, 1, 1).mapInArrow(waiting(4), "id long").count()

    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(other)
        ended = pool.submit(own.range(0, 1, 1, 1).mapInArrow(waiting(600), "id long").collect)
        while not ended.done():
            time.sleep(0.5)
            own.interruptAll()
        with pytest.raises(Exception, match=r"(?i)cancel") as failure:
            ended.result()
        assert beside.result(timeout=120) == 1
    assert isinstance(failure.value, PySparkException) or "Py4J" in type(failure.value).__name__
    assert own.range(3).count() == 3
