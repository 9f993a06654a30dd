"""JupyterLab in a real browser: a server of its own on a free port, and Debian's Chromium that opens it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import nbformat
import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect, sync_playwright

from mirrorlake.sandbox.ports import LOOPBACK, free_ports

HOUSE = Path(__file__).parents[2]
# In build/, which git ignores: whoever runs the tests can look at them.
SCREENSHOTS = HOUSE / "build" / "screenshots"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# It must neither ask the network for anything nor the person for a first choice.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_START_S = 400.0
_DONE = re.compile(r"\[\d+\]")
# Longer than any cell that is waited for; a condition that comes true ends the wait.
WAIT_MS = 400_000
_OPEN_MS = 400_000
_FAILED = "Traceback (most recent call last)"
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Else cells out of sight are not in the page, and cannot be asserted.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}

# Names of tabs whose labels are cut.
CUT = """() => [...document.querySelectorAll(".ml-console .lm-TabBar-tabLabel, .ml-setup .lm-TabBar-tabLabel")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `cut: ${one.textContent}`)"""


class Lab:
    """A running JupyterLab with a folder of notebooks."""

    def __init__(self, folder: Path) -> None:
        self.notebooks = folder / "notebooks"
        self.notebooks.mkdir(parents=True)
        self._token = secrets.token_hex(16)
        (self._port,) = free_ports(1)
        for name, content in _SETTINGS.items():
            file = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content))
        places = {"CONFIG": "config", "DATA": "data", "RUNTIME": "runtime"}
        environment = {
            **os.environ,
            **{f"JUPYTER_{key}_DIR": str(folder / name) for key, name in places.items()},
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": os.pathsep.join([str(HOUSE), os.environ.get("PYTHONPATH", "")]),
            "JUPYTER_TOKEN": self._token,
        }
        self._log = folder / "lab.log"
        options = (
            f"--ServerApp.port={self._port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.ip={LOOPBACK}",
            f"--ServerApp.root_dir={self.notebooks}",
            "--ServerApp.open_browser=False",
            "--ServerApp.allow_root=True",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.extension_manager=readonly",
            # A page that is gone leaves its kernel behind; if we die, too, it goes by itself.
            "--MappingKernelManager.cull_idle_timeout=300",
            "--MappingKernelManager.cull_interval=60",
        )
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options], stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"JupyterLab ended: {self._log.read_text()[-2000:]}"
            try:
                self._ask("api/status")
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"JupyterLab does not answer: {self._log.read_text()[-2000:]}")

    def address(self, notebook: str) -> str:
        return f"http://{LOOPBACK}:{self._port}/lab/tree/{notebook}?token={self._token}&reset"

    def end_kernels(self) -> None:
        """End every kernel with what it started, as closing a notebook does."""
        for kernel in self._ask("api/kernels"):
            self._ask(f"api/kernels/{kernel['id']}", method="DELETE")

    def close(self) -> None:
        """End the server, its kernels and what they started."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # Killed by what identifies them: psutil compares the time of birth, so a pid that was given anew is left alone.
        for process in family:
            # They are ending just now.
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _ask(self, path: str, *, method: str = "GET") -> Any:
        request = Request(f"http://{LOOPBACK}:{self._port}/{path}", method=method)
        request.add_header("Authorization", f"token {self._token}")
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.loads(answer.read() or "null")


_NO_BROWSER = "no Chromium was found"


def chromium() -> str:
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        pytest.skip(_NO_BROWSER)
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the browser tests that were not run in the last lines, whatever passed above them."""
    if missed := _without_browser(terminalreporter):
        terminalreporter.section("not run", red=True)
        for name in missed:
            terminalreporter.line(name)
        terminalreporter.line(f"{len(missed)} browser tests were not run: {_NO_BROWSER}. Next: make browser")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI that has no browser: what it lands was not looked at."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter and _without_browser(reporter) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _without_browser(reporter: pytest.TerminalReporter) -> list[str]:
    return sorted(one.nodeid for one in reporter.stats.get("skipped", ()) if _NO_BROWSER in str(one.longrepr))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start JupyterLab for the tests of one file, with a copy of the notebooks."""
    server = Lab(tmp_path_factory.mktemp("lab"))
    try:
        for path in (HOUSE / "notebooks").glob("*.ipynb"):
            shutil.copy(path, server.notebooks)
        server.wait_ready()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Open a browser window for the tests of one file."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("chromium"),
            executable_path=chromium(),
            headless=True,
            args=list(FLAGS),
            viewport={"width": 1280, "height": 900},
        )
        browser.set_default_timeout(_OPEN_MS)
        expect.set_options(timeout=_OPEN_MS)
        yield browser.pages[0]
        browser.close()


def open_notebook(lab: Lab, window: Page, name: str) -> Page:
    """Open a notebook in the browser, run all of its cells from the menu, and return the page when the last has ended."""
    window.goto(lab.address(name))
    # The notebook's own sign says idle before there is a kernel; cells that are run then are not run at all.
    expect(window.locator(".jp-StatusBar-TextItem", has_text="| Idle")).to_be_visible(timeout=_OPEN_MS)
    window.get_by_role("menuitem", name="Run", exact=True).click()
    window.get_by_role("menu").get_by_text("Run All Cells", exact=True).click()
    notebook = window.locator(".jp-Notebook")
    done = notebook.locator(".jp-CodeCell .jp-InputPrompt").last.filter(has_text=_DONE)
    failed = notebook.locator(".jp-OutputArea-output", has_text=_FAILED).or_(window.locator(".jp-Dialog"))
    try:
        expect(done.or_(failed).first).to_be_visible(timeout=WAIT_MS)
        assert failed.count() == 0, failed.first.inner_text()
    except AssertionError:
        screenshot(window, "failed")
        raise
    return window


def write_notebook(lab: Lab, name: str, *cells: str) -> None:
    """Write a notebook of code cells."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel}
    )
    nbformat.write(made, lab.notebooks / name)


def serious(page: Page, context: str | None = None, *, rules: Sequence[str] = ()) -> list[str]:
    """Ask axe-core about a page, or a part of it, and return what it finds serious or critical."""
    found = Axe().run(page, context=context, options={"runOnly": [*rules]} if rules else None).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def screenshot(page: Page, name: str, *, at: Locator | None = None) -> Path:
    """Keep a picture of the page, with a place of it in sight, and print where the picture is."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    if at is not None:
        at.first.scroll_into_view_if_needed()
    page.screenshot(path=path)
    print(f"screenshot: {path.relative_to(HOUSE)}")  # noqa: T201 - whoever ran the test looks there
    return path
