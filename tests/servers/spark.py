"""One local Spark session for every test that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from mirrorlake.context.context import _WORKERS_LOAD
    from mirrorlake.runtime import session as own

    # Every event of every test's queries is kept: what must not be told can be looked for (`event_log`).
    folder = tmp_path_factory.mktemp("event_log")
    settings = {"enabled": "true", "dir": folder.as_uri(), "compress": "false"}
    given = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in settings.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
        # Sessions of other processes make the same schemas.
        patch.setitem(own._LOCAL, "spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        session = own.local_session(cores=2, workers_load=_WORKERS_LOAD)
    yield session
    session.stop()


@pytest.fixture
def event_log(spark: SparkSession) -> Path:
    """Where Spark's event log is."""
    place = spark.conf.get("spark.eventLog.dir", "")
    assert place, "a test before this one has made a session of its own: it must take that of the fixture"
    return Path(place.removeprefix("file://"))
