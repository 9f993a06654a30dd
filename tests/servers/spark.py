"""One local Spark session for every test that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from mirrorlake.context.context import _WORKERS_LOAD
    from mirrorlake.runtime import session as own

    with pytest.MonkeyPatch.context() as patch:
        # Sessions of other processes make the same schemas.
        patch.setitem(own._LOCAL, "spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        session = own.local_session(cores=2, workers_load=_WORKERS_LOAD)
    yield session
    session.stop()


@pytest.fixture
def event_log(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Log every event of this test's queries, to look for what must not be told; a log of all tests costs 5 % of the JVM's CPU."""
    jvm: Any = spark._jvm
    context, folder = spark.sparkContext._jsc.sc(), tmp_path / "event_log"
    folder.mkdir()
    settings = context.conf().set("spark.eventLog.compress", "false")
    place = ("events", jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri()))
    log = jvm.org.apache.spark.scheduler.EventLoggingListener(*place, settings, context.hadoopConfiguration())
    log.start()
    context.addSparkListener(log)
    yield folder
    context.removeSparkListener(log)
    log.stop()
