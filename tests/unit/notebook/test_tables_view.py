"""The console's tab of typed tables, over a lake in a folder and without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config import load
from mirrorlake.lake import Lake
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console.tables import TablesView
from mirrorlake.notebook.console.window import TABS, Console
from tests.builders import mirror_config
from tests.unit.tables.kit import mirror


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A console of a mirror with the table `sales`, in a process without Spark."""
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    with Console(Mirror(load(tmp_path / "mirror.yml"), spark=lambda: pytest.fail("Spark is asked for"))) as made:  # type: ignore[arg-type]
        yield made


def show(console: Console, tab: str) -> None:
    console.tabs.selected_index = TABS.index(tab)


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
