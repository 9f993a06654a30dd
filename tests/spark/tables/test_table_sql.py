"""Questions to typed tables: one text, whichever engine reads the files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror, from_settings
from tests.spark.frames import assert_frames, assert_rows
from tests.spark.tables.kit import Regions

SETTINGS: dict[str, Any] = {
    "clusters": {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "central")},
    "flows": [{"source": "east", "target": "central", "topics": ".*"}],
    "tables": [{"topics": "sales.eu|gaps", "columns": {"day": "to_date(_timestamp)"}}],
}
QUESTION = """
    SELECT who.name, day, sum(amount) AS amount, count(*) AS sales, max(n) AS n, max(_timestamp) AS newest,
        '{sales_eu}' AS braces
    FROM sales_eu WHERE _offset >= :first AND `_key` <> 'x'
    GROUP BY who.name, day ORDER BY who.name"""


@pytest.fixture(scope="module")
def sold(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a lake whose typed tables hold the sales of one region."""
    folder = tmp_path_factory.mktemp("sold") / "lake"
    shutil.copytree(empty_lake, folder)
    mirror = from_settings({"lake": {"root": str(folder)}, **SETTINGS}, spark=spark)
    values = [
        b'{"n": 9007199254740993, "amount": 1.5, "who": {"name": "a"}, "lines": [{"item": "book"}]}',
        b'{"n": 1, "amount": 2, "who": {"name": "b"}, "lines": []}',
        b'{"n": 2, "amount": 4.25, "who": {"name": "b"}}',
        b"{}",
    ]
    regions = Regions(mirror)
    for topic in ("sales.eu", "gaps"):
        regions.land("east", topic, *(("k", value) for value in values))
    mirror.keep_tables(once=True)
    return folder


@pytest.fixture
def mirror(spark: SparkSession, sold: Path, tmp_path: Path) -> Mirror:
    """Return a mirror of a copy of that lake."""
    shutil.copytree(sold, tmp_path / "lake")
    return from_settings({"lake": {"root": str(tmp_path / "lake")}, **SETTINGS}, spark=spark)


def test_spark_and_duckdb_answer_one_text_alike(mirror: Mirror) -> None:
    by_spark, by_duckdb = mirror.sql(QUESTION, first=0), mirror.query(QUESTION, first=0)
    assert_frames(by_spark, mirror.spark.createDataFrame(by_duckdb))
    assert by_duckdb.select(["name", "amount", "sales", "n"]).to_pylist() == [
        {"name": None, "amount": None, "sales": 1, "n": None},
        {"name": "a", "amount": 1.5, "sales": 1, "n": 2**53 + 1},
        {"name": "b", "amount": 6.25, "sales": 2, "n": 2},
    ]
    assert mirror.query("SELECT count(*) AS n FROM records").to_pylist() == [{"n": 8}]


def test_a_query_by_duckdb_starts_no_spark(mirror: Mirror) -> None:
    def refuse() -> SparkSession:
        raise AssertionError("Spark was asked")

    alone = from_settings({"lake": {"root": mirror.lake.address}, **SETTINGS}, spark=refuse)  # type: ignore[arg-type]
    assert alone.query("SELECT count(*) AS n FROM sales_eu").to_pylist() == [{"n": 4}]


def test_delta_rs_duckdb_and_spark_read_the_same_rows(mirror: Mirror) -> None:
    location = mirror.lake.typed_location("sales.eu")
    by_spark = mirror.sql("SELECT * FROM sales_eu")
    by_delta_rs = DeltaTable(location).to_pyarrow_table().sort_by("_offset")
    dataset = DeltaTable(location).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("sales", dataset)
        by_duckdb = connection.sql("SELECT * FROM sales ORDER BY _offset").to_arrow_table()
    for found in (by_delta_rs, by_duckdb):
        assert_frames(by_spark, mirror.spark.createDataFrame(found))
    assert by_delta_rs["lines"].to_pylist() == [[{"item": "book"}], [], None, None]


def test_a_side_table_hides_a_typed_table_of_its_name_and_the_log_says_where_it_is(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    assert mirror.query("SELECT count(*) AS n FROM gaps").to_pylist() == [{"n": 0}]
    assert_rows(mirror.sql("SELECT count(*) AS n FROM gaps"), "n bigint", [(0,)])
    assert f"the typed table is delta.`{mirror.lake.typed_location('gaps')}`" in caplog.text


def test_what_is_no_question_or_asks_for_nothing_that_is_there_is_refused(mirror: Mirror) -> None:
    with pytest.raises(UsageError, match="query takes a SELECT"):
        mirror.query("CREATE TABLE x AS SELECT 1")
    with pytest.raises(UsageError, match=r"DuckDB cannot answer .*nowhere"):
        mirror.query("SELECT * FROM nowhere")
    shutil.rmtree(mirror.lake.typed_location("sales.eu"))
    for ask in (mirror.query, mirror.sql):
        with pytest.raises(UsageError, match="sales_eu is not in the lake yet"):
            ask("SELECT * FROM sales_eu")
