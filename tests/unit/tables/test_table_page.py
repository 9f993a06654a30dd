"""The page of a typed table: columns, rows, bad records by reason, and the newest rows, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS, FolderTables
from mirrorlake.tables import TablePage, read_page
from mirrorlake.tables.table_page import MAX_SHOWN
from tests.builders import NOON
from tests.kit.commands import told
from tests.unit.tables.kit import keep, mirror


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return mirror(tmp_path, {"topics": "sales"}, topics=["sales"])


SALES = pa.schema(
    [
        pa.field("_source", pa.string(), metadata={"comment": "Alias of the source cluster"}),
        pa.field("_topic", pa.string()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("lines", pa.list_(pa.struct({"item": pa.string()}))),
    ]
)


def sale(offset: int, at: datetime | None, *, topic: str = "sales") -> dict[str, Any]:
    return {
        "_source": "east",
        "_topic": topic,
        "_offset": offset,
        "_timestamp": at,
        "amount": Decimal(offset) / 4,
        "lines": [{"item": "<b>"}],
    }


def keep_sales(context: Context, *batches: Sequence[dict[str, Any]]) -> None:
    for number, rows in enumerate(batches, 1):
        keep(context, "sales", position=number, rows=pa.Table.from_pylist([*rows], SALES))


def offsets(page: TablePage) -> list[int]:
    return [row["_offset"] for row in page.newest]


def test_a_page_has_columns_size_reasons_and_the_newest_rows_of_any_file(context: Context) -> None:
    day = [[NOON + timedelta(hours=hour, minutes=minute) for minute in range(10)] for hour in (3, 0, 2, 1)]
    batches = [[sale(10 * at + n, time) for n, time in enumerate(times)] for at, times in enumerate(day)]
    keep_sales(context, *batches, [sale(99, None)])
    bad = {"table_name": "sales", "source": "east", "topic": "sales", "generation": 1, "partition": 0, "key": None}
    bad |= {"timestamp": NOON, "value": b"secret", "recorded_at": NOON}
    reasons = ["not JSON", "too deep", "not JSON"]
    context.lake.append_rows(BAD_RECORDS, [{**bad, "offset": n, "reason": why} for n, why in enumerate(reasons)])

    page = read_page(context, "sales", newest=12)
    assert [(one.name, one.type) for one in page.columns][3:] == [
        ("_timestamp", "TIMESTAMP"),
        ("amount", "DECIMAL(12,2)"),
        ("lines", "ARRAY<STRUCT<item: STRING>>"),
    ]
    assert page.columns[0].comment == "Alias of the source cluster"
    assert page.rows == 41
    assert page.bad_reasons == {"not JSON": 2, "too deep": 1}
    assert offsets(page) == [*range(9, -1, -1), 29, 28]
    assert offsets(read_page(context, "sales", newest=100))[-2:] == [10, 99], "without a time it is the last"
    text, html = page.to_text(rows=None), page.to_html(rows=None)
    for said in ("41 rows", "Alias of the source cluster", "not JSON", '[{"item": "<b>"}]', "2.25"):
        assert said in text
    assert "secret" not in text, "a bad record is counted, and not shown"
    assert "<b>" not in html.replace("<b>sales</b>", "")


def test_the_command_shows_the_page_of_a_table(context: Context, tmp_path: Path) -> None:
    keep_sales(context, [sale(1, NOON)])
    page = told("tables", "--table", "sales", "--conf", str(tmp_path / "mirror.yml"))
    assert (page["status"]["verdict"], page["rows"], len(page["columns"])) == ("WARNING", 1, 6)
    [row] = page["newest"]
    assert (row["_offset"], row["amount"], row["lines"]) == (1, "0.25", [{"item": "<b>"}])


def test_newest_rows_are_read_from_the_files_that_may_have_them(context: Context) -> None:
    keep_sales(context, *([sale(n, NOON + timedelta(hours=n))] for n in range(4)))
    location = Path(context.lake.typed_location("sales"))
    oldest = min(location.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    oldest.unlink()
    assert offsets(read_page(context, "sales", newest=2)) == [3, 2]


def test_rows_of_a_topic_that_never_leaves_are_not_shown(tmp_path: Path) -> None:
    east = {"bootstrap_servers": "127.0.0.1:1", "never_leave": "sales.pii"}
    context = mirror(tmp_path, {"topics": "sales.*", "name": "sales"}, topics=["sales", "sales.pii"])
    keep_sales(context, [sale(1, NOON), sale(2, NOON, topic="sales.pii")])
    assert offsets(read_page(context, "sales", newest=5)) == [2, 1]
    context.config.clusters["east"] = type(context.config.clusters["east"]).model_validate(east)
    page = read_page(context, "sales", newest=5)
    assert offsets(page) == [1]
    assert page.notes == ("rows of sales.pii are not shown: the settings say that it never leaves east",)


def test_of_a_table_with_many_columns_the_first_are_shown(context: Context) -> None:
    rows = pa.Table.from_pylist([{**sale(1, NOON), **{f"c{n}": n for n in range(100)}}])
    keep(context, "sales", position=1, rows=rows)
    page = read_page(context, "sales", newest=5)
    assert (len(page.columns), len(page.newest[0])) == (106, MAX_SHOWN)
    assert page.notes == (f"rows show the first {MAX_SHOWN} of 106 columns",)


def test_a_table_without_a_row_and_one_that_only_spark_reads_say_so(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = read_page(context, "sales", newest=5)
    assert (page.status.state, page.columns) == ("new", ())
    assert "its first record makes it" in page.to_text()
    keep_sales(context, [sale(1, NOON)])
    monkeypatch.setattr(FolderTables, "has_deletion_vectors", lambda *_: True)
    page = read_page(context, "sales", newest=5)
    assert (page.newest, page.rows, len(page.columns)) == ((), None, 6)
    query = "SELECT * FROM sales ORDER BY _timestamp DESC LIMIT 5"
    said = f'are not shown, as only Spark reads them; next: mirror.sql("{query}").show()'
    assert page.notes == (f"rows {said}",)
    monkeypatch.setattr(context.lake, "content", lambda _: None)
    page = read_page(context, "sales", newest=5)
    assert page.newest == page.columns == ()
    assert page.notes == (f"columns and rows {said}",)


def test_a_name_of_no_table_is_refused_with_the_nearest_one(context: Context) -> None:
    with pytest.raises(UsageError, match="did you mean 'sales'"):
        read_page(context, "sale", newest=5)
