"""The views of a folder: Spark's tasks ask it piece by piece, and together say what one question says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from mirrorlake.lag.lag_queries import LagQueries
from mirrorlake.lag.sql import LAG_COLUMNS, LATENCY_COLUMNS, RPO_COLUMNS, LagQuery
from mirrorlake.lag.sql_views import create_views
from pyspark.sql import SparkSession

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lake.lake import Lake
from tests.hourly_looks import FLOW, HOURS, hourly_looks
from tests.kit.lake import LakeBuilder
from tests.spark.frames import assert_frames

DAYS = 2


@pytest.fixture
def lake(spark: SparkSession, built: LakeBuilder) -> Iterator[Lake]:
    yield Lake(spark, LakeConfig(root=str(built.root)))
    for name in ("lag", "latency", "rpo"):
        spark.catalog.dropTempView(name)


def test_views_of_a_folder_say_what_one_question_says(spark: SparkSession, built: LakeBuilder, lake: Lake) -> None:
    assert create_views(lake, [FLOW], days=DAYS) == ["lag", "latency", "rpo"]
    for name, columns in (("lag", LAG_COLUMNS), ("latency", LATENCY_COLUMNS), ("rpo", RPO_COLUMNS)):
        frame = spark.table(name)
        held = [(field.name, field.dataType.simpleString()) for field in frame.schema]
        assert held == [(column, kind) for column, (kind, _) in columns.items()]
        assert frame.count() == 0, "nothing was sampled yet"

    now = datetime.now(timezone.utc)
    # Half past, so that no look comes to lie at an end of the time while this runs.
    first = (now - timedelta(hours=HOURS - 1, minutes=30)).replace(microsecond=0)
    for table, rows in hourly_looks(first).items():
        built.add(table, *rows)
    asked = LagQueries(lake, [FLOW], now=lambda: now)
    start = (now - timedelta(days=DAYS)).replace(microsecond=0)
    questions: dict[str, LagQuery] = {
        "lag": asked.over(start, now),
        "latency": asked.latency(start, now, bucket_s=60),
        "rpo": asked.rpo(start, now),
    }
    for name, question in questions.items():
        shown = spark.table(name)
        assert_frames(shown, spark.createDataFrame(question.table()))
        assert shown.count() == DAYS * 24 * (2 if name == "lag" else 1), "a view looks again whenever it is asked"
