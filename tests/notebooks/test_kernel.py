"""The console in JupyterLab while its kernel is busy or slow, and after it was restarted."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.servers.lab import Lab, open_notebook, screenshot, write_notebook

# A draft of two clusters that nobody asks.
SET_UP = """\
import mirrorlake as ml
from mirrorlake.config.edit import ClusterDraft

shown = ml.console()
steps = shown.wizard
steps.clusters.clusters = {one: ClusterDraft(alias=one, servers=f"{one}:9092") for one in ("east", "west")}
steps.flow.offer(steps.clusters.clusters)
steps.steps.selected_index = 1
shown"""


def test_a_console_says_when_its_kernel_is_busy_and_rests_when_it_was_restarted(lab: Lab, window: Page) -> None:
    write_notebook(lab, "kernel.ipynb", "import mirrorlake as ml\n\nml.console()")
    page = open_notebook(lab, window, "kernel.ipynb")
    said, tabs = page.locator(".ml-kernel"), page.locator(".ml-console > .ml-tabs")
    try:
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
    finally:
        lab.end_kernels()


def test_a_click_acts_on_all_that_was_typed_before_it_into_a_slow_kernel(lab: Lab, window: Page) -> None:
    write_notebook(lab, "form.ipynb", SET_UP)
    page = open_notebook(lab, window, "form.ipynb")
    keep, rows, name = page.locator(".ml-flow-keep"), page.locator(".ml-flow-row"), page.locator(".ml-flow-name input")
    try:
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
    finally:
        lab.end_kernels()
