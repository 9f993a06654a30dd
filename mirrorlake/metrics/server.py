"""Serve a registry over HTTP, from memory."""

from __future__ import annotations

import logging
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

log = logging.getLogger(__name__)


class MetricsServer:
    """Serve the metrics of a process at an address.

    A port that is taken is logged and changes nothing else: a mirror never depends on its metrics.

    Args:
        registry: what to serve.
        port: the port; 0 takes a free one.
        address: the address to listen at. Anybody who can reach it reads the names of topics and groups.

    Example:
        >>> server = MetricsServer(CollectorRegistry(), port=0).start()
        >>> server.port > 0
        True
        >>> server.stop()
    """

    def __init__(self, registry: CollectorRegistry, *, port: int, address: str = "127.0.0.1") -> None:
        self._registry = registry
        self._address = address
        self.port = port
        self._server: WSGIServer | None = None

    def start(self) -> MetricsServer:
        """Begin to serve in the background, and return this server."""
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
        self.port = self._server.server_port
        log.info("metrics.served address=%s:%s", self._address, self.port)
        return self

    def stop(self) -> None:
        """End; the port is free when this returns."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
