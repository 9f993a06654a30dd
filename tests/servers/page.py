"""`mirrorlake console`: the page in a process of its own, as a person starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mirrorlake.sandbox.ports import free_ports


class ConsolePage:
    """A running page: `link` is what it printed, `root` the same without the token."""

    def __init__(self, conf: Path, log: Path, *options: str) -> None:
        self._log = log
        (port,) = free_ports(1)
        words = ["console", "--conf", str(conf), "--port", str(port), "--json", *options]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mirrorlake", *words], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.root = f"http://127.0.0.1:{port}/"

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        self.link = str(json.loads(line)["link"])

    @property
    def token(self) -> str:
        return self.link.partition("token=")[2]

    def close(self) -> str:
        """End the page and its kernels; return what it printed after the link, and its log."""
        self._process.terminate()
        output, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self._log.read_text()
        return output + self._log.read_text()


@contextmanager
def console_page(conf: Path, log: Path, *options: str) -> Iterator[ConsolePage]:
    """Serve the console while the block runs."""
    page = ConsolePage(conf, log, *options)
    try:
        yield page
    finally:
        if page._process.poll() is None:
            page.close()
