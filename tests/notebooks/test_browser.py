"""What a person sees and clicks: JupyterLab in a real browser, on real brokers, and while its kernel is busy, slow or restarted."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.servers.lab import Lab, RunNotebook, screenshot, write_notebook

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


def shorten(lab: Lab, notebook: str, before: str, after: str) -> None:
    """Change a notebook's parameters cell, as a person would."""
    path = lab.notebooks / notebook
    content = json.loads(path.read_text())
    [cell] = [cell for cell in content["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    assert before in "".join(cell["source"])
    cell["source"] = ["".join(cell["source"]).replace(before, after)]
    path.write_text(json.dumps(content))
