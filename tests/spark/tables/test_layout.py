"""How typed tables lie and are asked: partitions, columns of the settings, rules before all of these, and SQL."""

from __future__ import annotations

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.tables import plan_tables
from tests.kit.typed import BOTH, UPSERT, World
from tests.kit.typed_fold import Record
from tests.spark.frames import assert_frames

ODD = "a/b=ü %25"
QUESTION = """
    SELECT who.name, day, sum(amount) AS amount, count(*) AS sales, max(n) AS n, '{sales_eu}' AS braces
    FROM sales_eu WHERE _offset >= :first AND `_key` <> 'x' GROUP BY who.name, day ORDER BY who.name"""


@pytest.mark.law("E", "F")
def test_law_f_a_partitioned_table_keeps_its_partitions_until_it_is_built_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    derived = {**BOTH[0], "columns": {"share": "100 DIV id"}, "partition_by": ["c", "id", "share"]}
    world = World(tmp_path, spark, derived, {**BOTH[1], "partition_by": "_source, id"})
    odd = [{"c": ODD, "id": 1}, Record({"c": "x", "id": 2}, "b"), Record(None, "c"), Record({"id": 3}, "d", "west")]
    for batch in ([{"c": "plain", "id": 1, "n": 1}], odd, [*odd, {"c": "plain", "id": 2, "n": 0.5}]):
        world.land(*batch)
        world.keep()
    world.check("newest", proves=True)
    query = f"SELECT count(*) AS n FROM sales WHERE c = '{ODD}' AND id = 1 AND share = 100"  # noqa: S608
    frame = world.open().sql(query)
    assert "PartitionFilters: [isnotnull(c#" in frame._jdf.queryExecution().toString()
    assert world.open().query(query).to_pylist() == [{"n": 2}] == [row.asDict() for row in frame.collect()]

    def partitions() -> list[tuple[str, ...]]:
        return [world.open().lake.partition_by(str(world.location(name))) for name in world.entries]

    world.set_tables({**derived, "partition_by": ["_source"]}, world.entries["newest"])
    [note] = plan_tables(world.open()._context).notes
    assert "all rows, also new ones, lie as they did until it is built again" in note.reason
    world.keep()
    assert partitions() == [("c", "id", "share"), ("_source", "id")]
    world.rebuild("sales")
    assert partitions() == [("_source",), ("_source", "id")]
    assert world.open().verify_table("sales").equal


@pytest.mark.law("E", "F")
def test_law_f_columns_of_the_settings_have_their_types_and_a_record_that_one_fails_for_is_bad_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    schema = "amount DECIMAL(12,2), sold_at TIMESTAMP, prices MAP<STRING, DOUBLE>, n STRING"
    columns = {"cents": "CAST(amount * 100 AS BIGINT)", "day": "to_date(sold_at)", "next": "CAST(n AS INT) + 1"}
    given = {"schema": schema, "columns": columns}
    nulls = {"topics": "sales", "name": "nulls", "bad_records": "null", **given, **UPSERT}
    world = World(tmp_path, spark, {"topics": "sales", **given}, nulls, sources=("east",))
    good = {"amount": 12.34, "sold_at": "2026-07-01T23:59:59Z", "prices": {"EUR": 1}, "n": 5, "left out": 1}
    for several in (({"amount": 0.001}, {"n": "x"}), ({"sold_at": 5},)):
        world.land(Record(good, "a"), *(Record(bad, "b") for bad in several), Record(None, "c"))
        world.keep()
    row = (Decimal("12.34"), [("EUR", 1.0)], "5", 1234, date(2026, 7, 1), 6)
    names = ("amount", "prices", "n", "cents", "day", "next")
    assert world.columns("sales", *names) == [row, (None,) * 6] * 2
    assert [reason for _, reason in sorted(world.bad("sales").items())] == [
        "amount is a number, which DECIMAL(12,2) does not hold exactly",
        "the column next of the settings cannot be computed of it",
        "sold_at is a number, which is not TIMESTAMP",
    ]
    assert world.columns("nulls", "_offset", *names) == [(4, *row), (5, *(None,) * 6)]
    assert all(world.open().verify_table(name).equal for name in world.entries)


@pytest.mark.law("E")
def test_law_e_what_rules_hide_or_withhold_is_in_no_row_and_in_no_bad_record(
    tmp_path: Path, spark: SparkSession
) -> None:
    through = {"through": ["east->central", "west->central"]}
    world = World(tmp_path, spark, *({**entry, **through} for entry in BOTH))
    world.flow = {"rules": [{"name": "small", "keep": "value.amount > 10"}, {"name": "private", "remove": "email"}]}

    def sale(amount: int, **of: Any) -> Record:
        return Record({"amount": amount, "email": "ann@example.com"}, **of)

    world.land(sale(11), sale(5, key="b"), Record(b'{"email": "ann@', "c"), sale(12, source="west"))
    world.keep()
    world.land(sale(1, key="d", source="west"), sale(13, source="west"), Record(b"ann@example.com", source="west"))
    world.keep()
    for name, amounts in (("sales", [11, 12, 13]), ("newest", [11, 13])):
        assert world.columns(name, "amount") == [(amount,) for amount in amounts]
        assert {*world.bad(name)} == {("east", "sales", 0, 2), ("west", "sales", 0, 3)}
        assert all("the rule small cannot judge it" in reason for reason in world.bad(name).values())
        proof = world.open().verify_table(name)
        assert (proof.equal, proof.filtered) == (True, 2)
    assert [one.offset_lag for one in world.open().tables().tables] == [0, 0]
    files = [file for file in world.lake.root.rglob("*") if file.is_file() and "relay" not in file.parts]
    assert not any(b"ann@" in file.read_bytes() for file in files)
    world.set_tables({**BOTH[0], "through": "east->central"})
    with pytest.raises(ConfigError, match=r"tables\[0\].through: records of west would be rows without rules"):
        world.open()


def test_engines_read_a_typed_table_alike_by_its_name(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, spark, {"topics": "sales.eu|gaps", "columns": {"day": "to_date(_timestamp)"}})
    sold = [{"n": 2**53 + 1, "amount": 1.5, "who": {"name": "a"}, "lines": [{"item": "book"}]}]
    sold += [{"n": 1, "amount": 2, "who": {"name": "b"}, "lines": []}, {"n": 2, "amount": 4.25, "who": {"name": "b"}}]
    world.land(*(Record(value, topic=topic) for topic in ("sales.eu", "gaps") for value in [*sold, {}]))
    world.keep()
    mirror = world.open()
    by_duckdb = mirror.query(QUESTION, first=0)
    assert_frames(mirror.sql(QUESTION, first=0), spark.createDataFrame(by_duckdb))
    assert [(row["name"], row["n"]) for row in by_duckdb.to_pylist()] == [(None, None), ("a", 2**53 + 1), ("b", 2)]
    whole = "SELECT * FROM sales_eu ORDER BY _offset"
    for found in (DeltaTable(world.location("sales.eu")).to_pyarrow_table(), mirror.query(whole)):
        assert_frames(mirror.sql(whole), spark.createDataFrame(found))
        assert found.sort_by("_offset")["lines"].to_pylist() == [[{"item": "book"}], [], None, None]
    # A side table hides a typed table of its name, and the log says where that is.
    hidden = "SELECT count(*) AS n FROM gaps"
    assert [row.n for row in mirror.sql(hidden).collect()] == mirror.query(hidden)["n"].to_pylist() == [0]
    assert f"the typed table is delta.`{world.location('gaps')}`" in caplog.text
    shutil.rmtree(world.location("sales.eu"))
    for ask in (mirror.query, mirror.sql):
        with pytest.raises(UsageError, match="sales_eu is not in the lake yet"):
            ask("SELECT * FROM sales_eu")
    for text, why in (
        ("CREATE TABLE x AS SELECT 1", "query takes a SELECT"),
        ("SELECT * FROM nowhere", "DuckDB .*nowhere"),
    ):
        with pytest.raises(UsageError, match=why):
            mirror.query(text)
