"""Serve the console: the page, its kernel, and Voilà's scripts that draw the widgets."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_server.base.handlers import FileFindHandler
from jupyter_server.services.kernels.handlers import KernelHandler
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler
from traitlets.config import Config
from voila.app import Voila
from voila.configuration import VoilaConfiguration
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.static_file_handler import MultiStaticFileHandler
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler
from voila.utils import get_page_config

from mirrorlake.errors import UsageError
from mirrorlake.notebook.web.gate import Gate

log = logging.getLogger(__name__)

_PAGE = Path(__file__).with_name("page.html")
# The addresses of `navigation`: what a browser asks by itself, as for an icon, starts no kernel.
_PATHS = r"/([a-z-]*|(?:flow|topic|group|table|passport)/.+)"
_KERNEL = r"(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)"
# Others that a user has, as jupytext's, are made for JupyterLab: each page would load them, and fail to.
_EXTENSIONS = ("@jupyter-widgets/jupyterlab-manager", "@voila-dashboards/widgets-manager8", "anywidget")
# A kernel takes about 200 MB: a link in a busy ticket must not fill the machine.
MAX_KERNELS = 8
# A page that is reloaded or sleeps for a moment finds its kernel again.
_ABANDONED_S, _REAP_INTERVAL_S = 60.0, 10.0
_OPEN_TIMEOUT_S = 120.0
# Nothing of another site is loaded, and nothing is sent there; widgets' scripts are blobs.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline' blob:; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws: blob:; frame-ancestors 'none'"
)


class OwnKernels(KernelSpecManager):
    """Start kernels with this very Python, whichever the user has registered as `python3`."""

    def get_kernel_spec(self, _: str) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--HistoryManager.enabled=False"]
        return KernelSpec(argv=argv, display_name="mirrorlake console", language="python")


class Kernels:
    """The kernels of the open pages. `manager` is Voilà's: its kernels take only messages of widgets, so that no page can run code."""

    def __init__(self, manager: Any, code: str) -> None:
        self._manager = manager
        self._code = code
        self._seen: dict[str, float] = {}
        self._starting = 0

    @property
    def is_full(self) -> bool:
        return len(self._manager.list_kernel_ids()) + self._starting >= MAX_KERNELS

    async def open(self) -> tuple[str, dict[str, Any]]:
        """Start a kernel and show the console in it, or end the kernel; return its id and what it shows."""
        # Counted before anything is awaited: pages that open at once would all find a place.
        self._starting += 1
        try:
            number: str = await self._manager.start_kernel(
                kernel_name="console", cwd=str(Path.cwd()), env=dict(os.environ)
            )
        finally:
            self._starting -= 1
        # No page can reach it yet, and on a busy machine its console takes a minute: it is not abandoned.
        self._seen[number] = math.inf
        try:
            shown = await self._show(number)
        except BaseException:
            if number in self._manager.list_kernel_ids():
                await self._manager.shutdown_kernel(number, now=True)
            raise
        self._seen[number] = time.monotonic()
        return number, shown

    async def _show(self, number: str) -> dict[str, Any]:
        client = self._manager.get_kernel(number).client()
        client.start_channels()
        shown: list[dict[str, Any]] = []

        def collect(message: dict[str, Any]) -> None:
            if message["msg_type"] == "execute_result":
                shown.append(message["content"]["data"])

        try:
            await client.wait_for_ready(timeout=_OPEN_TIMEOUT_S)
            reply = await client.execute_interactive(
                self._code, store_history=False, allow_stdin=False, timeout=_OPEN_TIMEOUT_S, output_hook=collect
            )
        finally:
            client.stop_channels()
        if reply["content"]["status"] != "ok" or not shown:
            raise RuntimeError(reply["content"].get("evalue", "the console was not shown"))
        return {"output_type": "display_data", "data": shown[-1], "metadata": {}}

    async def reap(self) -> None:
        """End kernels whose page was closed without saying so, repeatedly."""
        while True:
            for number in self._manager.list_kernel_ids():
                try:
                    await self._end_abandoned(number)
                except Exception as error:
                    # Its page may be closed meanwhile; the others still end.
                    log.info("console.not_ended kernel=%s", number, exc_info=error)
            await asyncio.sleep(_REAP_INTERVAL_S)

    async def _end_abandoned(self, number: str) -> None:
        if number not in self._manager.list_kernel_ids():
            return
        now = time.monotonic()
        if self._manager.kernel_model(number)["connections"]:
            self._seen[number] = now
        elif now - self._seen.setdefault(number, now) > _ABANDONED_S:
            log.info("console.abandoned kernel=%s", number)
            await self._manager.shutdown_kernel(number, now=True)


class PageHandler(RequestHandler):
    def initialize(self, *, kernels: Kernels, config: Callable[[], dict[str, Any]]) -> None:
        self._kernels = kernels
        self._config = config

    async def get(self, _: str) -> None:
        """Send the page's head at once, and its console when it is there."""
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        # Reading it sets its cookie, without which the page that is left may not end its kernel.
        self.xsrf_token  # noqa: B018
        if self._kernels.is_full:
            self.set_status(503)
            await self.finish(f"{MAX_KERNELS} pages of this console are open: close one, then reload this page.")
            return
        before, after = _PAGE.read_text(encoding="utf-8").split("<!-- console -->")
        self.write(before)
        # Not awaited: no other page may take the place between the count and the start.
        self.flush()
        try:
            number, output = await self._kernels.open()
        except Exception as error:  # the page's head is out: the rest says why it is empty
            log.warning("console.failed", exc_info=error)
            await self.finish(f'<pre role="alert">The console cannot be opened: {escape(str(error))}</pre>')
            return
        config = {**self._config(), "kernelId": number}
        self.write(_script("jupyter-config-data", "application/json", config))
        self.write(f"<div>{_script('', 'application/vnd.voila.cell-output+json', output)}</div>")
        await self.finish(after)


def _script(name: str, kind: str, content: dict[str, Any]) -> str:
    named = f' id="{name}"' if name else ""
    return f'<script{named} type="{kind}">{json.dumps(content).replace("<", chr(92) + "u003c")}</script>'


async def serve(code: str, *, host: str, port: int, token: str, ready: Callable[[], None]) -> None:
    """Serve the console until SIGTERM or Ctrl-C; `ready` is called when it listens."""
    # It takes Jupyter's intervals for seconds, and warns of each page.
    logging.getLogger("tornado.general").setLevel(logging.ERROR)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with tempfile.TemporaryDirectory(prefix="mirrorlake-console-") as folder:
        voila = _voila(folder)
        application = Application(**voila.init_settings(), log_function=lambda _: None)
        kernels = Kernels(voila.kernel_manager, code)
        application.add_handlers(".*$", _routes(voila, application, kernels))
        server = HTTPServer(Gate(application, token, port))
        try:
            server.listen(port, host)
        except OSError as error:
            raise UsageError(
                f"the console cannot listen at {host}:{port}: {error.strerror or error}",
                consequence="nothing was started",
                remedy="end what listens there, or choose another --port",
            ) from None
        ready()
        reaping = asyncio.create_task(kernels.reap())
        try:
            await stop.wait()
        finally:
            reaping.cancel()
            server.stop()
            await voila.kernel_manager.shutdown_all(now=True)


def _voila(folder: str) -> Voila:
    """Return Voilà without its configuration files, folders and log."""
    config = Config()
    if sys.platform == "linux":
        # Sockets in a folder of ours: whoever has an account here could read those of TCP. Elsewhere paths may be too long.
        config.KernelManager.transport = "ipc"
    voila = Voila(config=config, log_level=logging.ERROR, root_dir=folder, connection_dir=folder)
    voila.voila_configuration = VoilaConfiguration(
        parent=voila, kernel_spec_manager_class=OwnKernels, extension_allowlist=list(_EXTENSIONS)
    )
    voila.setup_template_dirs()
    return voila


def _routes(voila: Voila, application: Application, kernels: Kernels) -> list[Any]:
    def config() -> dict[str, Any]:
        made: dict[str, Any] = get_page_config(
            base_url="/", settings=application.settings, log=voila.log, voila_configuration=voila.voila_configuration
        )
        return made

    return [
        (rf"/api/kernels/{_KERNEL}", KernelHandler),
        (rf"/api/kernels/{_KERNEL}/channels", VoilaKernelWebsocketHandler),
        (r"/voila/static/(.*)", MultiStaticFileHandler, {"paths": voila.static_paths}),
        (r"/voila/labextensions/(.*)", FileFindHandler, {"path": voila.labextensions_path}),
        (r"/voila/api/shutdown/(.*)", VoilaShutdownKernelHandler),
        (_PATHS, PageHandler, {"kernels": kernels, "config": config}),
    ]
