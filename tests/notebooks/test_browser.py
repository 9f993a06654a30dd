"""What a person sees and clicks: JupyterLab in a real browser, on real brokers, and while its kernel is busy, slow or restarted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Page, expect

from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, new_topic
from tests.servers.lab import SLOW, Lab, RunNotebook, open_notebook, screenshot, write_notebook
from tests.servers.lakes import MakeMirror

# A draft of two clusters that nobody asks.
SET_UP = """\
import mirrorlake as ml
from mirrorlake.config.edit import BLANK_CLUSTER

shown = ml.console()
steps = shown.wizard
for one in ("east", "west"):
    steps.kept = steps.kept.with_cluster(one, {**BLANK_CLUSTER, "servers": f"{one}:9092"})
steps.flow.offer()
steps.steps.selected_index = 1
shown"""
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


def test_the_tour_in_a_browser(lab: Lab, run_notebook: RunNotebook) -> None:
    shorten(lab, "00_tour.ipynb", "records = 3000", "records = 1200")
    page = run_notebook("00_tour.ipynb")
    outputs = page.locator(".jp-Notebook .jp-OutputArea-output")
    plan = outputs.filter(has_text="east.payments.card").locator("table").first
    expect(plan.locator("th", has_text="name")).to_be_visible()
    proof = outputs.filter(has_text="✓ equal")
    expect(proof).to_contain_text("1 200 records verified")
    expect(outputs.filter(has_text="|payments.invoice|")).to_contain_text("300")
    expect(outputs.filter(has_text="✓ OK").first).to_be_visible()
    screenshot(page, "tour-plan", at=plan)
    screenshot(page, "tour-proof", at=proof)


@pytest.mark.law("G")
def test_the_console_in_a_browser_makes_the_topics_that_it_showed(
    lab: Lab,
    run_notebook: RunNotebook,
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    tmp_path: Path,
) -> None:
    orders = new_topic(east, 6, partitions=3)
    commit(east.bootstrap_servers, f"audit-{orders}", orders, {0: 1})
    # The mirror of a job elsewhere, on the lake that the wizard names.
    flow = {"source": "east", "target": "central", "topics": orders, "sync": {"groups": False}}
    mirror = make_mirror({"east": east, "central": central}, [flow])
    before = topics(central)
    write_notebook(lab, "console.ipynb", "import mirrorlake as ml\n\nml.console()")
    page = run_notebook("console.ipynb")
    for alias, cluster in (("east", east), ("central", central)):
        keep_cluster(page, alias, cluster.bootstrap_servers)

    page.get_by_role("tab", name="2 Flow").click()
    page.locator(".ml-flow-source select").select_option("east")
    page.locator(".ml-flow-target select").select_option("central")
    page.locator(".ml-flow-topics input").fill(orders)
    page.locator(".ml-flow-look").click()
    expect(page.locator(".ml-flow-preview")).to_contain_text(f"east.{orders}")

    page.get_by_role("tab", name="3 Review and apply").click()
    page.locator(".ml-lake-root input").fill(str(tmp_path / "lake"))
    page.locator(".ml-review").click()
    expect(page.locator(".ml-plan")).to_contain_text(f"east.{orders}")
    expect(page.locator(".ml-yaml-text")).to_contain_text(f"topics: {orders}")
    expect(page.locator(".ml-apply")).to_be_disabled()
    assert topics(central).keys() == before.keys(), "law G: looking changes nothing"

    page.locator(".ml-confirm input").fill("east->central")
    page.locator(".ml-apply").click()
    expect(page.locator(".ml-applied")).to_contain_text("applied")
    expect(page.locator(".ml-errors")).to_be_hidden()
    made = {name: count for name, count in topics(central).items() if name not in before}
    assert made[f"east.{orders}"] == 3

    page.get_by_role("tab", name="Status").click()
    refresh_until(page, "nothing was landed yet")
    mirror.run(once=True)
    refresh_until(page, "✓ OK")
    expect(page.locator(".ml-lag-chart .js-plotly-plot")).to_be_visible()

    page.get_by_role("tab", name="Recovery").click()
    page.locator(".ml-recovery-look").click()
    expect(page.locator(".ml-recovery-objectives")).to_contain_text(orders)
    expect(page.locator(".ml-recovery-drills")).to_contain_text("No drill of this flow")
    expect(page.locator(".ml-recovery-cutover")).to_be_disabled()
    expect(page.locator(".ml-errors")).to_be_hidden()


def test_a_console_says_when_its_kernel_is_busy_and_rests_when_it_was_restarted(
    lab: Lab, run_notebook: RunNotebook
) -> None:
    write_notebook(lab, "kernel.ipynb", "import mirrorlake as ml\n\nml.console()")
    page = run_notebook("kernel.ipynb")
    said, tabs = page.locator(".ml-kernel"), page.locator(".ml-console > .ml-tabs")
    expect(tabs).to_be_visible()
    expect(said).to_be_hidden()
    # A cell alone does not keep it from answering: JupyterLab asks beside it.
    process = lab.kernel_process()
    process.suspend()
    try:
        expect(said).to_contain_text("The kernel is busy")
        assert not tabs.evaluate("one => one.inert"), "what is clicked now is done later"
    finally:
        process.resume()
    expect(said).to_be_hidden()
    [kernel] = lab.kernels()
    lab.restart(kernel["id"])
    expect(said).to_contain_text("run the cell again")
    assert tabs.evaluate("one => one.inert")
    screenshot(page, "console-restarted", at=said)


def test_a_click_acts_on_all_that_was_typed_before_it_into_a_slow_kernel(lab: Lab, run_notebook: RunNotebook) -> None:
    write_notebook(lab, "form.ipynb", SET_UP)
    page = run_notebook("form.ipynb")
    keep, rows, name = page.locator(".ml-flow-keep"), page.locator(".ml-flow-row"), page.locator(".ml-flow-name input")
    page.locator(".ml-flow-source select").select_option("east")
    page.locator(".ml-flow-target select").select_option("west")
    page.locator(".ml-flow-topics input").fill("orders")
    expect(page.locator(".ml-flow-preview")).to_contain_text("Read the source")
    process = lab.kernel_process()
    process.suspend()
    try:
        name.press_sequentially("long")
        keep.click()
    finally:
        process.resume()
    expect(rows.locator("b")).to_have_text("long")
    expect(page.locator(".ml-errors")).to_be_hidden()


def test_widgets_whose_scripts_load_too_late_show_what_they_are_sent(lab: Lab, window: Page) -> None:
    page = window.context.new_page()
    page.add_init_script(SLOW)
    write_notebook(lab, "slow.ipynb", SHOW, LATER)
    open_notebook(lab, page, "slow.ipynb")
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
    page.close()
    lab.end_kernels()


def refresh_until(page: Page, verdict: str) -> None:
    """Refresh the status until it shows a verdict, as a person does whose click went to a page that was busy."""
    answer = page.locator(".ml-status-fresh")
    for _ in range(8):
        page.locator(".ml-status-refresh").click()
        try:
            expect(page.locator(".ml-status-rows")).to_contain_text(verdict, timeout=15_000)
        except AssertionError:
            print(f"status: {answer.inner_text()}; errors: {page.locator('.ml-errors').inner_text()}")  # noqa: T201
        else:
            return
    raise AssertionError(f"the status never showed {verdict}: {answer.inner_text()}")


def keep_cluster(page: Page, alias: str, servers: str) -> None:
    """Fill the wizard's first step in, test the cluster and keep it."""
    title = page.locator(".ml-cluster-form")
    if "A new cluster" not in (title.text_content() or ""):
        page.locator(".ml-cluster-new").click()
        # The last that is emptied: a field that is filled in earlier would be emptied too.
        expect(title).to_contain_text("A new cluster")
    page.locator(".ml-cluster-alias input").fill(alias)
    page.locator(".ml-cluster-servers input").fill(servers)
    page.locator(".ml-cluster-test").click()
    expect(page.locator(".ml-cluster-result")).to_contain_text("answers")
    page.locator(".ml-cluster-add").click()
    expect(page.locator(".ml-cluster-list")).to_contain_text(alias)


def topics(cluster: KafkaCluster) -> dict[str, int]:
    """Return the partitions of each topic, as an independent client sees them; a broker makes its own when it is asked."""
    known = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=60).topics
    return {name: len(topic.partitions) for name, topic in known.items() if not name.startswith("__")}


def shorten(lab: Lab, notebook: str, before: str, after: str) -> None:
    """Change a notebook's parameters cell, as a person would."""
    path = lab.notebooks / notebook
    content = json.loads(path.read_text())
    [cell] = [cell for cell in content["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    assert before in "".join(cell["source"])
    cell["source"] = ["".join(cell["source"]).replace(before, after)]
    path.write_text(json.dumps(content))
