"""The console in JupyterLab while its kernel is busy, and after it was restarted."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.servers.lab import Lab, open_notebook, screenshot, write_notebook


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
