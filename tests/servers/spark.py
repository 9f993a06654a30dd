"""One local Spark session for every test that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from mirrorlake.wiring import local_session

    session = local_session(cores="2")
    yield session
    session.stop()
