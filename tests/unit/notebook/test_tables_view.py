"""The console's tab of typed tables, over a lake in a folder and without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorlake.config import load
from mirrorlake.lake import Lake
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console.navigation import Navigation
from mirrorlake.notebook.console.tables import TablesView
from mirrorlake.notebook.console.window import TABS, Console
from tests.builders import NOON, mirror_config
from tests.lakes import no_session
from tests.unit.notebook.kit import EVIL, texts
from tests.unit.tables.kit import keep, mirror


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A console of a mirror with the table `sales` of two rows, in a process without Spark."""
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    place = {"_source": ["east"] * 2, "_topic": ["sales"] * 2, "_generation": [1] * 2, "_partition": [0] * 2}
    times = pa.array([NOON, NOON], pa.timestamp("us", "UTC"))
    rows = pa.table({**place, "_offset": [0, 1], "_timestamp": times, "note": [EVIL, None], "amount": [1.5, 10.0]})
    keep(context, "sales", position=2, rows=rows)
    with Console(Mirror(load(tmp_path / "mirror.yml"), spark=no_session)) as made:  # type: ignore[arg-type]
        yield made


def show(console: Console, tab: str) -> None:
    console.tabs.selected_index = TABS.index(tab)


def test_a_table_is_listed_as_mirrorlake_tables_shows_it_and_opened_by_its_link(console: Console) -> None:
    navigation, view = Navigation(console), console.tables
    show(console, "Tables")
    asyncio.run(view.poller.once())
    [row] = view.rows.rows
    assert row["cells"]["table"]["link"] == "table/sales"
    assert row["cells"]["topics"]["link"] == "topic/east/sales"
    [line] = texts(view.rows.rows)
    assert console.mirror is not None
    [status] = console.mirror.tables().tables
    assert (line["verdict"], line["state"], line["offset_lag"]) == (status.verdict, status.state, "2")
    assert line["why"] == status.why()
    view.rows.answer({"open": "table/sales"})
    assert navigation.widget.path == "table/sales"
    assert "2 rows" in view.shown.value
    assert texts(view.columns.rows)[-1] == {"column": "amount", "type": "DOUBLE", "comment": ""}
    assert [(one["note"], one["amount"]) for one in texts(view.newest.rows)] == [("‹null›", "10.0"), (EVIL, "1.5")]
    assert EVIL not in view.shown.value
    show(console, "Status")
    assert navigation.widget.path == "status"
    assert console.session.errors.errors == []


def test_tables_are_read_only_while_their_tab_is_open(console: Console) -> None:
    async def visit() -> list[bool]:
        console.start()
        found = [console.tables.poller.is_running]
        for tab in ("Tables", "Events", "Tables"):
            show(console, tab)
            found.append(console.tables.poller.is_running)
        console.stop()
        return [*found, console.tables.poller.is_running]

    assert asyncio.run(visit()) == [False, True, False, True, False]


def test_where_only_spark_reads_them_they_are_read_once(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lake, "is_spark_only", property(lambda _: True))
    asked: list[str] = []
    monkeypatch.setattr(console.tables.poller, "_ask", lambda: asked.append("once"))

    for tab in ("Tables", "Events", "Tables"):
        show(console, tab)
    assert asked == ["once"]
    assert not console.tables.poller.is_running


def test_without_tables_the_tab_says_what_to_write() -> None:
    with Console(Mirror(mirror_config())) as console:
        view: TablesView = console.tables
        show(console, "Tables")
        assert "tables:" in view.none.value
        assert "docs/typed-tables.md" in view.none.value
        assert view.rows.layout.display == "none"
    with Console() as console:
        assert (console.tables.none.value, console.tables.rows.empty) == ("", "There is no mirror yet: set one up.")
