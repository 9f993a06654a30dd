"""Widgets in a page so slow that anywidget gives up on their scripts: they show all the same what they are sent."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.servers.lab import Lab, RunNotebook, screenshot, write_notebook

# anywidget gives a script 2 s; here no script is in time.
SLOW = "const limit = AbortSignal.timeout; AbortSignal.timeout = (ms) => limit.call(AbortSignal, ms === 2000 ? 0 : ms);"
SHOW = """\
from datetime import timedelta

import ipywidgets
import pandas as pd

from mirrorlake.lag import LINE_COLUMNS
from mirrorlake.mirror import utc_now
from mirrorlake.notebook.console.grid import Column, Grid, Row
from mirrorlake.notebook.console.lag import LagView
from mirrorlake.notebook.console.session import Session

rows = [(utc_now() + timedelta(minutes=n), "f", "republished", None, n, n * 1000) for n in range(3)]
lines = pd.DataFrame(rows, columns=[*LINE_COLUMNS])
session = Session(None, spark=None, now=utc_now)
lag = LagView(session, seen=lambda: lines)
grid = Grid("topics", [Column("topic", "Topic")], label="Topics")
grid.show([Row("t", {"topic": "orders"})])
tabs = ipywidgets.Tab([grid, lag.widget], titles=("Topics", "Lag"))
tabs"""
LATER = """\
lag.poller.put(lines)
grid.show([Row("t", {"topic": "payments"})])"""


def test_widgets_whose_scripts_load_too_late_show_what_they_are_sent(
    lab: Lab, window: Page, run_notebook: RunNotebook
) -> None:
    window.add_init_script(SLOW)
    write_notebook(lab, "slow.ipynb", SHOW, LATER)
    page = run_notebook("slow.ipynb")
    expect(page.locator(".ml-topics tbody")).to_contain_text("payments")
    page.get_by_role("tab", name="Lag", exact=True).click()
    chart = page.locator(".ml-lag-chart")
    expect(chart.locator(".xtitle")).to_have_text("time (UTC)")
    expect(chart.locator(".ytitle")).to_have_text("seconds")
    page.locator(".ml-lag-measure select").select_option("Offset lag")
    expect(chart.locator(".ytitle")).to_have_text("offsets")
    expect(chart.locator(".scatterlayer .trace")).to_have_count(1)
    screenshot(page, "slow-page", at=chart)

    wide = chart.locator(".main-svg").first.evaluate("svg => svg.clientWidth")
    page.set_viewport_size({"width": 800, "height": 900})
    page.wait_for_function(
        "wide => { const [svg] = document.querySelectorAll('.ml-lag-chart .main-svg');"
        " return svg.clientWidth < wide && svg.clientWidth <= svg.closest('.ml-lag-chart').clientWidth; }",
        arg=wide,
    )
