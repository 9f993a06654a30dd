"""The console's table in a real browser, without a notebook around it: what a person did survives every update."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.render import badge, breakable
from tests.servers.widget_page import start

COLUMNS = [
    Column("topic", "Topic"),
    Column("lag", "Offset lag", kind="number"),
    Column("verdict", "Verdict", kind="mark"),
]


@pytest.fixture
def page(window: Page) -> Page:
    window.set_content('<!doctype html><html lang="en"><title>Grid</title><body><main></main></body></html>')
    return window


def rows(numbers: Sequence[int], lag: int = 0) -> list[Row]:
    return [
        Row(
            f"t{number}",
            {"topic": f"t{number}", "lag": number + lag, "verdict": Cell.of(badge("in_step"))},
            parts=[Row(f"t{number}-{part}", {"topic": f"partition {part}", "lag": lag}) for part in range(2)],
        )
        for number in numbers
    ]


def draw(page: Page, rows: list[Row], columns: Sequence[Column] = COLUMNS, **options: Any) -> Grid:
    grid = Grid("x", columns, label="Topics", **options)
    grid.show(rows)
    names = ("label", "columns", "least", "rows", "selected", "select", "empty", "file")
    start(page, Grid, {name: getattr(grid, name) for name in names})
    return grid


def update(page: Page, grid: Grid, rows: list[Row]) -> None:
    grid.show(rows)
    page.evaluate("rows => model.set('rows', rows)", grid.rows)


def test_what_a_person_did_survives_an_update_and_all_that_are_shown_are_chosen(page: Page) -> None:
    grid = draw(page, rows(range(12)), select="many")
    page.get_by_role("button", name="Offset lag").click()
    page.get_by_role("button", name="Offset lag").click()
    page.get_by_role("searchbox").fill("t1")
    page.get_by_role("checkbox", name="Choose t11").check()
    page.get_by_role("button", name="Parts of t10").click()
    page.get_by_role("button", name="Parts of t10").focus()
    update(page, grid, rows(range(13), lag=100))
    names = page.locator("tbody tr:not(.ml-grid-part)")
    expect(names).to_have_count(4)
    assert [one.get_attribute("data-key") for one in names.all()] == ["t12", "t11", "t10", "t1"], "sorted and filtered"
    expect(page.locator("tbody tr.ml-grid-part")).to_have_count(2)
    expect(page.get_by_role("checkbox", name="Choose t11")).to_be_checked()
    expect(page.get_by_role("button", name="Parts of t10")).to_be_focused()
    expect(page.get_by_role("status")).to_have_text("4 of 13, 1 chosen")
    expect(page.locator("tr[data-key=t10] td.ml-grid-number")).to_have_text("110")
    page.get_by_role("checkbox", name="Choose all").check()
    assert sorted(page.evaluate("model.get('selected')")) == ["t1", "t10", "t11", "t12"], (
        "those that are shown, no others"
    )


def test_a_row_is_chosen_by_the_keyboard(page: Page) -> None:
    draw(page, rows(range(3)), select="one")
    page.locator("tr[data-key=t0]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("model.get('selected')") == ["t1"]
    expect(page.locator("tr[data-key=t1]")).to_have_attribute("aria-current", "true")


@pytest.mark.parametrize("width", [1280, 800, 350])
def test_the_least_important_columns_go_first_and_never_the_reason(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    least = ["f9", "f8", "f7", "f6", "f5", "f4", "f3", "f2", "f1", "f0"]
    columns = [*COLUMNS, *(Column(key, f"Figure {key}", kind="number") for key in reversed(least))]
    columns += [Column(key, key) for key in ("owner", "place")]
    reason = "nothing moves and records wait in /var/lib/lake/relay/east/topic=orders, " * 3
    figures = dict.fromkeys(least, f"{1000000} records/s")
    words = {"topic": "orders", "owner": "somebody", "place": "somewhere", "why": reason}
    row = Row("a", {**words, "lag": 1, "verdict": Cell.of(badge("behind")), **figures})
    draw(page, [row], [*columns, Column("why", "Why", kind="prose")], least=least)
    frame = page.locator(".ml-grid-frame")
    expect(page.locator("tr[data-key=a] td").last).to_contain_text(reason)
    assert frame.evaluate("one => one.scrollWidth <= one.clientWidth"), "the reason is on screen, whole"
    expect(page.locator("tr[data-key=a]")).to_contain_text("! behind")
    shown = page.locator("th[data-column]:not([hidden])").evaluate_all("all => all.map(one => one.dataset.column)")
    figures_shown = [key for key in shown if key in figures]
    assert figures_shown == sorted(figures)[: len(figures_shown)], "those that went are the least important ones"
    assert len(figures_shown) < 10
    assert {"topic", "verdict", "why"} <= set(shown), "what people read first"
    assert ("place" in shown) == (width > 350), "after those that the table names, others go"
    page.get_by_role("button", name="more columns").click()
    expect(page.locator("th[data-column]:not([hidden])")).to_have_count(len(columns) + 1)


def test_what_came_while_a_table_was_out_of_sight_is_fitted_when_it_is_seen(page: Page) -> None:
    page.set_viewport_size({"width": 500, "height": 800})
    row = Row("a", {"topic": "a", "lag": 1, "verdict": "", "why": ""})
    grid = draw(page, [row], [*COLUMNS, Column("why", "Why", kind="prose")], least=["lag"])
    expect(page.locator("th[data-column=lag]")).to_be_visible()
    page.evaluate("document.querySelector('main').style.display = 'none'")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    wide = {"topic": "t" * 30, "lag": 10**12, "verdict": Cell.of(badge("cluster away")), "why": "w"}
    update(page, grid, [Row("a", wide)])
    page.evaluate("document.querySelector('main').style.display = ''")
    expect(page.locator("th[data-column=lag]")).to_be_hidden()
    assert page.locator(".ml-grid-frame").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_a_name_wraps_as_in_all_our_html(page: Page) -> None:
    names = ["eu->central", "placed.by-customers.of_the.north", "to eu->central.placed.by-customers-v2 now"]
    draw(page, [Row(name, {"a": name}) for name in names], [Column("a", "A", kind="prose")])
    for name, cell in zip(names, page.locator("tbody td").all(), strict=True):
        marked, wanted = (re.sub("<span[^>]*>", "<span>", one) for one in (cell.inner_html(), breakable(name)))
        assert marked == wanted


def test_a_name_that_leads_somewhere_is_opened_by_mouse_and_keyboard(page: Page) -> None:
    draw(page, [Row("a", {"topic": Cell("orders", link="topic/east/orders"), "lag": 1})], select="one")
    name = page.get_by_role("link", name="orders")
    name.click()
    name.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("a")
    assert page.evaluate("sent.filter(one => one.open)") == [{"open": "topic/east/orders"}] * 2
    assert page.evaluate("model.get('selected')") == [], "it is opened, and not chosen"


def test_what_is_not_known_is_sorted_last_either_way(page: Page) -> None:
    draw(page, [Row(name, {"topic": name, "lag": lag}) for name, lag in (("a", None), ("b", 2), ("c", 10))])
    header = page.get_by_role("button", name="Offset lag")
    for expected in (["b", "c", "a"], ["c", "b", "a"]):
        header.click()
        assert [one.get_attribute("data-key") for one in page.locator("tbody tr").all()] == expected


def test_a_saved_file_holds_what_is_shown_with_its_parts_and_runs_nothing(page: Page) -> None:
    odd = [Row("a", {"topic": "=HYPERLINK(1)", "lag": 1}), Row("b", {"topic": 'say "b", c', "lag": 2})]
    draw(page, [*odd, *rows([7])], file="groups.csv")
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.suggested_filename == "groups.csv"
    lines = Path(saved.value.path()).read_text("utf-8-sig").splitlines()
    assert lines == [
        "Topic,Offset lag,Verdict",
        "'=HYPERLINK(1),1,",
        '"say ""b"", c",2,',
        "t7,7,in_step",
        "partition 0,0,",
        "partition 1,0,",
    ]


def test_five_hundred_rows_are_shown_in_steps(page: Page) -> None:
    draw(page, rows(range(500)))
    expect(page.locator("tbody tr")).to_have_count(300)
    page.get_by_role("button", name="Show 200 more").click()
    expect(page.locator("tbody tr")).to_have_count(500)
    page.get_by_role("searchbox").fill("t499")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("searchbox").fill("nothing")
    expect(page.get_by_text("No row matches the filter.")).to_be_visible()
