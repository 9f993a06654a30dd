import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from mirrorlake.runtime.cache import cache_directory
from tests.archives import wait_for_archives


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


def test_an_archive_of_the_classes_of_spark_can_be_made(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    wait_for_archives("spark")
    assert [path for path in (cache_directory() / "class-data").glob("spark-*.jsa") if path.stat().st_size > 50 << 20]
