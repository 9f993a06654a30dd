"""What a person sees of typed tables: status, lag, metrics and events, the page of one, and what `plan` says."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.config.schema import TableConfig
from mirrorlake.context import Context, utc_now
from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS, landed_positions
from mirrorlake.mirror.changes import pause_stream
from mirrorlake.model.control import PARK, STREAM, Subject
from mirrorlake.status import read_events
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.metrics import read_values
from mirrorlake.status.status import Status
from mirrorlake.tables import TableStatus, find_tables, list_tables, plan_tables, read_page, read_tables
from mirrorlake.tables.status import MAX_SHOWN
from mirrorlake.topics.settings_in_force import put_in_force, settings_plan
from tests.builders import NOON
from tests.kit.commands import told
from tests.kit.lake import LANDED_AT
from tests.unit.tables.kit import keep, mirror

REASONS = ["not JSON", "too deep", "not JSON"]
COLUMNS = {"_source": pa.string(), "_topic": pa.string(), "_offset": pa.int64()}
COLUMNS |= {"_timestamp": pa.timestamp("us", "UTC"), "amount": pa.decimal128(12, 2)}
COLUMNS |= {"lines": pa.list_(pa.struct({"item": pa.string()}))}
SALES = pa.schema(COLUMNS).set(0, pa.field("_source", pa.string(), metadata={"comment": "Alias of the source cluster"}))
MADE_WITH = {"mode": "append", "keys": "text", "values": "json", "schema": "inferred", "columns": {}}
AGAIN = "until it is built again: mirrorlake tables --rebuild sales --apply"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return mirror(tmp_path, {"topics": "sales"}, topics=["sales"])


def stands(context: Context, *, after: timedelta = timedelta()) -> TableStatus:
    """Return how the only table stands a while after its records were landed, or now."""
    now = LANDED_AT + after if after else utc_now()
    context.now = lambda: now
    [found] = read_tables(context).tables
    return found


def add_bad_records(context: Context) -> None:
    bad = {"table_name": "sales", "source": "east", "topic": "sales", "generation": 1, "partition": 0, "key": None}
    bad |= {"timestamp": NOON, "value": b"secret", "recorded_at": NOON}
    context.lake.append(BAD_RECORDS, [{**bad, "offset": at, "reason": why} for at, why in enumerate(REASONS)])


def test_lag_is_that_of_waiting_records_which_have_some_batches_of_time(context: Context, tmp_path: Path) -> None:
    new = stands(context)
    assert (new.state, new.verdict, "mirrorlake tables --run" in new.why()) == ("new", "STALL", True)
    keep(context, position=2)
    early, late = stands(context, after=timedelta(seconds=30)), stands(context)
    # Record 3 was produced three seconds before all were landed.
    assert (early.offset_lag, early.time_lag_ms, early.waited_ms, early.verdict) == (2, 33_000, 30_000, "OK")
    assert (late.state, late.verdict, "batches come" in late.why()) == ("behind", "WARNING", True)
    slow = mirror(tmp_path, {"topics": "sales", "every": "1m"})
    assert stands(slow, after=timedelta(minutes=5)).verdict == "OK"
    keep(context, position=4)
    reached = landed_positions(context.lake, "east").reached
    # Only markers of transactions follow.
    landed: Any = {"east": SimpleNamespace(reached={source: position + 2 for source, position in reached.items()})}
    [one] = read_tables(context, landed=landed).tables
    assert (one.offset_lag, one.verdict) == (0, "OK")


@pytest.mark.parametrize(
    ("state", "verdict", "why"),
    [
        ("parked", "STOP", "it failed; next: mend it"),
        ("paused", "PAUSED", "mirrorlake resume --table"),
        ("fault", "STOP", "two entries of `tables:` make the table sales"),
        ("broken", "STOP", "next: mirrorlake tables --rebuild sales --apply"),
    ],
)
def test_status_and_lag_show_a_table_that_is_stopped_with_its_reason(
    tmp_path: Path, state: str, verdict: str, why: str
) -> None:
    twice = [{"topics": "sales", "name": "sales"}] if state == "fault" else []
    context = mirror(tmp_path, {"topics": "sales"}, *twice, topics=["sales"])
    keep(context, position=4)
    if state == "parked":
        said = {"error": "UsageError", "cause": "it failed", "remedy": "mend it", "exit_code": 2, "is_retried": False}
        parked = Subject(kind=STREAM, name="table sales")
        context.control().append(PARK, parked, value={"since": NOON.isoformat(), **said})
    if state == "paused":
        pause_stream(context, table="sales", reason="a look")
    if state == "broken":
        Path(context.lake.typed_location("sales"), "_delta_log", f"{0:020}.json").write_text("{")
    one = stands(context)
    status = Status(flows=(), observed_at=NOON, tables=(one,))
    judged = LagVerdict(hops=(), status=status)
    assert (one.verdict, one.state, status.verdict, judged.is_fine) == (verdict, state, verdict, False)
    assert why in one.why()
    assert why in read_page(context, "sales", newest=0).to_text(rows=None).replace("\n", " ")
    assert (judged.as_dict()["tables"][0]["verdict"], status.as_dict()["tables"][0]["state"]) == (verdict, state)
    for shown in (status, judged):
        assert {"sales", verdict} <= {*shown.to_text().split()}
    assert ("table sales is parked" in status.to_text()) == (state == "parked")
    events = {(event.kind, event.subject) for event in read_events(context, NOON - timedelta(days=1))}
    assert ((state, "table sales") in events) == (state in ("parked", "paused"))


def test_lag_and_metrics_have_the_hop_in_table(context: Context) -> None:
    keep(context, position=1)
    add_bad_records(context)
    one = stands(context, after=timedelta(seconds=10))
    lag = LagVerdict(hops=(), status=Status(flows=(), observed_at=NOON, tables=(one,)))
    assert "in_table" in lag.to_text()
    values = read_values(lag, {})
    names = [f"mirrorlake_table_{name}" for name in ("offset_lag", "time_lag_seconds", "bad_records")]
    assert [values[name, ("sales",)] for name in names] == [3, 13, 3]


# -- the page -----------------------------------------------------------------------------------------------------------


def sale(offset: int, at: datetime | None = NOON, *, topic: str = "sales") -> dict[str, Any]:
    place = {"_source": "east", "_topic": topic, "_offset": offset, "_timestamp": at}
    return {**place, "amount": Decimal(offset) / 4, "lines": [{"item": "<b>"}]}


def offsets(context: Context, newest: int) -> list[int]:
    return [row["_offset"] for row in read_page(context, "sales", newest=newest).newest]


def test_a_page_has_columns_size_reasons_and_the_newest_rows_of_any_file(context: Context, tmp_path: Path) -> None:
    day = [[NOON + timedelta(hours=hour, minutes=minute) for minute in range(10)] for hour in (3, 0, 2, 1)]
    batches = [[sale(10 * at + n, time) for n, time in enumerate(times)] for at, times in enumerate(day)]
    for number, rows in enumerate([*batches, [sale(99, None)]], 1):
        keep(context, position=number, rows=pa.Table.from_pylist(rows, SALES))
    add_bad_records(context)
    page = read_page(context, "sales", newest=12)
    kinds = {"_timestamp": "TIMESTAMP", "amount": "DECIMAL(12,2)", "lines": "ARRAY<STRUCT<item: STRING>>"}
    assert {one.name: one.type for one in page.columns[3:]} == kinds
    assert (page.rows, [*page.bad_reasons.items()]) == (41, [("not JSON", 2), ("too deep", 1)])
    assert offsets(context, 100)[-2:] == [10, 99], "without a time it is the last"
    files = Path(context.lake.typed_location("sales")).glob("*.parquet")
    sorted(files, key=lambda file: file.stat().st_mtime_ns)[1].unlink()
    assert offsets(context, 12) == [*range(9, -1, -1), 29, 28], "the file of the oldest rows is not read"
    text, html = page.to_text(rows=None), page.to_html(rows=None)
    assert all(said in text for said in ("41 rows", "Alias of the source", "not JSON", '[{"item": "<b>"}]', "2.25"))
    assert "secret" not in text, "a bad record is counted, and not shown"
    assert "<b>" not in html.replace("<b>sales</b>", "")
    shown = told("tables", "--table", "sales", "--conf", str(tmp_path / "mirror.yml"))
    assert (shown["status"]["verdict"], shown["rows"], len(shown["columns"])) == ("OK", 41, 6)


def test_a_page_tells_what_it_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = mirror(tmp_path, {"topics": "sales.*", "name": "sales"}, topics=["sales", "sales.pii"])
    page = read_page(context, "sales", newest=5)
    assert (page.status.state, page.columns) == ("new", ())
    wide = {f"c{n}": n for n in range(100)}
    keep(context, position=1, rows=pa.Table.from_pylist([sale(1) | wide, sale(2, topic="sales.pii") | wide]))
    assert offsets(context, 5) == [2, 1]
    east = {"bootstrap_servers": "127.0.0.1:1", "never_leave": "sales.pii"}
    context.config.clusters["east"] = type(context.config.clusters["east"]).model_validate(east)
    assert offsets(context, 5) == [1]
    page = read_page(context, "sales", newest=5)
    assert (len(page.columns), len(page.newest[0])) == (106, MAX_SHOWN)
    hidden, cut = page.notes
    assert ("never leave" in hidden, cut) == (True, f"rows show the first {MAX_SHOWN} of 106 columns")
    monkeypatch.setattr(context.lake, "content", lambda _: None)
    page = read_page(context, "sales", newest=5)
    assert (page.newest, page.columns) == ((), ())
    assert 'next: mirror.sql("SELECT * FROM sales ORDER BY _timestamp DESC LIMIT 5").show()' in page.notes[0]
    with pytest.raises(UsageError, match="did you mean 'sales'"):
        read_page(context, "sale", newest=5)


# -- plans --------------------------------------------------------------------------------------------------------------


def notes(context: Context) -> list[str]:
    return [note.reason for note in plan_tables(context).notes]


def test_law_g_plan_shows_the_tables_to_come_changed_and_gone_and_once_applied_no_more(tmp_path: Path) -> None:
    written = {"topics": "orders", "name": "{source}_{topic}", "mode": "upsert", "sources": ["east"]}
    context = mirror(tmp_path, {"topics": "sales"}, written)
    made = settings_plan(context.config, context.control()).changes
    assert [(one.action, one.name) for one in made] == [("create", "east_orders"), ("create", "sales")]
    put_in_force(context.config, context.control())
    assert not settings_plan(context.config, context.control())
    edited = mirror(tmp_path, {"topics": "sales", "columns": {"day": "to_date(_timestamp)"}})
    gone, sales = settings_plan(edited.config, context.control()).changes
    assert (sales.action, sales.after) == ("change", {"columns.day": "to_date(_timestamp)"})
    assert (gone.action, gone.name) == ("remove", "east_orders")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"mode": "upsert"}, "mode: append, and the settings say upsert; its stream waits"),
        ({"schema": "n BIGINT"}, "schema: inferred, and the settings say n BIGINT; older rows stay as they are"),
    ],
)
def test_settings_that_a_tables_rows_were_not_made_with_are_told(tmp_path: Path, entry: Any, told: str) -> None:
    context = mirror(tmp_path, {"topics": "sales", **entry}, topics=["sales"])
    keep(context, position=4, settings=MADE_WITH)
    assert notes(context) == [f"its rows were made with {told} {AGAIN}"]
    [table] = find_tables(context)
    with pytest.raises(UsageError, match=f"{table.rebuilding}, give") if "mode" in entry else nullcontext():
        table.refuse_edits(context.lake.properties(context.lake.typed_location("sales")))


def test_plan_tells_of_what_keeps_a_table_from_being_written(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "gaps"}, topics=["gaps"])
    assert f"query delta.`{context.lake.typed_location('gaps')}`" in notes(context)[0]
    registry = {"url": "http://localhost:1"}
    given = [{"topics": "sales", "values": "avro", **more} for more in ({}, {"name": "own", "registry": registry})]
    config = context.config.model_copy(update={"tables": tuple(map(TableConfig.model_validate, given))})
    [own, sales] = list_tables(config, {"east": ["sales"]})
    assert (own.fault, "schemas, and its schema registry is not known" in str(sales.fault)) == (None, True)
