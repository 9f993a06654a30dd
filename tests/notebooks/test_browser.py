"""What a person sees: JupyterLab in a real browser, on real brokers."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.servers.lab import Lab, RunNotebook, screenshot


def test_the_tour_in_a_browser(lab: Lab, run_notebook: RunNotebook) -> None:
    shorten(lab, "00_tour.ipynb", "records = 3000", "records = 1200")
    page = run_notebook("00_tour.ipynb")
    outputs = page.locator(".jp-Notebook .jp-OutputArea-output")
    plan = outputs.filter(has_text="east.payments.card").locator("table").first
    expect(plan.locator("th", has_text="action")).to_be_visible()
    proof = outputs.filter(has_text="✓ equal")
    expect(proof.locator("th", has_text="republished")).to_be_visible()
    expect(outputs.filter(has_text="payments.invoice|")).to_contain_text("300")
    screenshot(page, "tour-top")
    proof.scroll_into_view_if_needed()
    screenshot(page, "tour-proof")


def shorten(lab: Lab, notebook: str, before: str, after: str) -> None:
    """Change a notebook's parameters cell, as a person would."""
    path = lab.notebooks / notebook
    content = json.loads(path.read_text())
    [cell] = [cell for cell in content["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    assert before in "".join(cell["source"])
    cell["source"] = ["".join(cell["source"]).replace(before, after)]
    path.write_text(json.dumps(content))
