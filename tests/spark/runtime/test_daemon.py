from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_workers_import_from_the_package_and_not_from_a_zip(spark: SparkSession) -> None:
    def zips(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        found = [
            name for name, module in sys.modules.items() if ".zip/pyspark" in (getattr(module, "__file__", "") or "")
        ]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"module": found}, pa.schema([("module", pa.string())]))

    assert [row.module for row in spark.range(1).mapInArrow(zips, "module string").collect()] == []
