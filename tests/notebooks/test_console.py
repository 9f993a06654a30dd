"""The console and the set-up form in JupyterLab in a real browser; their clusters are away, and their lake is a folder.

What they ask of clusters is tested by tests/unit/notebook, and on real brokers by the page. Pictures are kept in `build/screenshots`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from mirrorlake.config import load
from tests.servers.lab import CUT, Lab, open_notebook, screenshot, serious, write_notebook

CONF = """\
lake: {{root: {root}}}
clusters:
  east: {{bootstrap_servers: "127.0.0.1:9"}}  # the first
  west: {{bootstrap_servers: "127.0.0.1:9"}}
flows:
  - {{source: east, target: west, topics: orders}}
"""


@dataclass(frozen=True)
class Notebook:
    """A page with a console and a set-up form of the settings file `conf`."""

    page: Page
    conf: Path

    def tab(self, tabs: str, name: str) -> None:
        self.page.locator(f".ml-{tabs}").get_by_role("tab", name=name, exact=True).click()

    def part(self, name: str) -> Locator:
        return self.page.locator(f".ml-{name}").first


@pytest.fixture(scope="module")
def notebook(lab: Lab, window: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    conf = tmp_path_factory.mktemp("console") / "mirror.yml"
    conf.write_text(CONF.format(root=conf.parent / "lake"))
    cells = f"import mirrorlake as ml\nml.console(ml.load({str(conf)!r}))", f"ml.setup({str(conf)!r})"
    write_notebook(lab, "console.ipynb", *cells)
    page = open_notebook(lab, window, "console.ipynb")
    page.set_viewport_size({"width": 1500, "height": 1000})
    yield Notebook(page, conf)
    lab.end_kernels()


def test_the_console_shows_pauses_and_draws_events(notebook: Notebook) -> None:
    page = notebook.page
    expect(notebook.part("status")).to_contain_text("east")
    notebook.part("pause").click()
    expect(notebook.part("pause-said")).to_contain_text("landing goes on")
    notebook.tab("tabs", "Events")
    expect(notebook.part("events")).to_contain_text("paused in the console")
    expect(notebook.part("events-figure").locator(".main-svg").first).to_be_visible()
    screenshot(page, "console-events", at=notebook.part("console"))
    faults = serious(page, ".ml-console", rules=("color-contrast",)) + page.evaluate(CUT)
    assert not faults, json.dumps(faults, indent=1)


def test_the_form_previews_what_is_typed_and_saves_it_with_its_comments(notebook: Notebook) -> None:
    page = notebook.page
    notebook.tab("steps", "2 Flow")
    page.locator(".ml-flow select").select_option("east->west")
    topics = page.locator(".ml-flow-topics input")
    expect(topics).to_have_value("orders")
    topics.fill("orders, clicks*")
    expect(notebook.part("flow-preview")).to_contain_text("dangling star")
    topics.fill("orders, clicks.*")
    expect(notebook.part("flow-preview")).to_contain_text("Read the source")
    screenshot(page, "setup-flow", at=notebook.part("setup"))
    notebook.tab("steps", "3 Review and apply")
    notebook.part("save").click()
    expect(notebook.part("saved")).to_contain_text("saved")
    assert notebook.conf.read_text().count("# the first") == 1
    assert str(load(notebook.conf).flows[0].topics) == "orders, clicks.*"
    faults = serious(page, ".ml-setup", rules=("color-contrast",)) + page.evaluate(CUT)
    assert not faults, json.dumps(faults, indent=1)
