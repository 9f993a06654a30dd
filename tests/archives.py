"""Make the archives of classes that the JVMs of the suite start from, before its tests take the machine.

    python -m tests.archives

A JVM writes its archive when it ends, and the workers' Sparks end with the suite: beside tests that leave no core idle, Spark's was
there after 26 minutes (2 cores, an empty cache, 2026-11-30), and each JVM before needed 13 CPU-s more. Each takes one core.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext

from mirrorlake.runtime import session
from mirrorlake.runtime.jar_files import jars
from mirrorlake.sandbox import KafkaCluster
from tests import conftest  # noqa: F401  sets Spark's options of the tests


def main() -> None:
    # Two downloads at once would share one cache of Ivy's.
    jars("broker"), jars("spark")
    broker = ThreadPoolExecutor(1).submit(lambda: KafkaCluster("archives").start().stop(timeout=300))
    spark = session.local_session(cores=2)
    with TemporaryDirectory() as folder:
        table = Path(folder, "table").as_uri()
        spark.range(9).selectExpr("id", "id % 2 AS half").write.format("delta").save(table)
        spark.sql(f"SELECT half, count(*) FROM delta.`{table}` GROUP BY half").collect()  # noqa: S608
    jvm = SparkContext._gateway.proc
    spark.stop()
    # The JVM ends with its input.
    jvm.stdin.close()
    jvm.wait()
    broker.result()


if __name__ == "__main__":
    main()
