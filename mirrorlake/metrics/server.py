"""Serve a registry over HTTP from memory, and at `/healthz` whether the mirror makes progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from mirrorlake.metrics.health import Health

log = logging.getLogger(__name__)


class MetricsServer:
    """Serve the metrics of a process at an address.

    A taken port is only logged: a mirror never depends on its metrics.

    Port 0 takes a free one. Anybody who can reach the address reads the names of topics and groups. `health` answers `/healthz`
    with 503 if it reports a problem; without it, `/healthz` serves the metrics like every path.
    """

    def __init__(
        self, registry: CollectorRegistry, *, port: int, address: str = "127.0.0.1", health: Health | None = None
    ) -> None:
        self._registry = registry
        self._health = health
        self._address = address
        self.port = port
        self._server: WSGIServer | None = None

    def start(self) -> MetricsServer:
        try:
            self._server, _ = start_http_server(self.port, addr=self._address, registry=self._registry)
        except OSError as error:
            log.warning(
                "metrics.not_served address=%s:%s why=%s next=name a free port with metrics.port or --metrics-port",
                self._address,
                self.port,
                error.strerror or error,
            )
            return self
        metrics = self._server.get_app()
        if self._health is not None and metrics is not None:
            self._server.set_app(partial(_with_health, metrics, self._health))
        self.port = self._server.server_port
        log.info("metrics.served address=%s:%s", self._address, self.port)
        return self

    def stop(self) -> None:
        """Stop serving; the port is free afterwards."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _with_health(
    metrics: Callable[..., Iterable[bytes]], health: Health, environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    if environ.get("PATH_INFO") != "/healthz":
        return metrics(environ, start_response)
    is_well, document = health.document()
    start_response("200 OK" if is_well else "503 Service Unavailable", [("Content-Type", "application/json")])
    return [document]
