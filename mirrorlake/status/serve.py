"""Serve the metrics of a running mirror, and at `/healthz` whether it makes progress; without a port nothing is started.

    streams ──batches, commits──┐
    tables  ──every minute──────┴──> Metrics ──> http://127.0.0.1:9464/metrics and /healthz

A scrape reads memory only: it calls no cluster and no Spark. No failure in here reaches a stream.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

from mirrorlake.context import Context
from mirrorlake.runtime import PeriodicTask, PeriodicTasks
from mirrorlake.status.metrics import Metrics, measure, only_logged
from mirrorlake.status.monitor import Monitor

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

# The streams need all cores for their start.
_FIRST_READ_S = 10.0


@contextmanager
def serving_metrics(context: Context, *, port: int | None) -> Iterator[None]:
    """Serve the metrics of a mirror while the body runs, if `port` or the settings name a port."""
    settings = context.config.metrics
    port = settings.port if port is None else port
    if port is None:
        yield
        return
    with ExitStack() as stack:
        with only_logged("start"):
            metrics = Metrics(now=context.now, per_partition=settings.per_partition)
            if (server := start_server(metrics, address=settings.address, port=port)) is not None:
                stack.callback(_stop, server.server_close)
                stack.callback(_stop, server.shutdown)
            listener, streams = batch_listener(metrics), context.spark.streams
            streams.addListener(listener)
            stack.callback(_stop, streams.removeListener, listener)
            context.metrics = metrics
            stack.callback(setattr, context, "metrics", None)
            every_s = settings.every.total_seconds()
            run, first_s = figures_reader(context, metrics), min(every_s, _FIRST_READ_S)
            task = PeriodicTask(name="metrics", interval_s=every_s, first_delay_s=first_s, run=run)
            reads = PeriodicTasks("metrics", [task])
            reads.start()
            stack.callback(_stop, reads.stop)
        yield


def _stop(call: Callable[..., object], *arguments: object) -> None:
    with only_logged("stop"):
        call(*arguments)


def figures_reader(context: Context, metrics: Metrics) -> Callable[[], None]:
    """Return a function for one thread that reads the tables once, and shows what it found."""
    monitor = context.shared(Monitor)
    newest = monitor.newest()

    def read() -> None:
        try:
            lag = monitor.lag(context.config.flows)
            metrics.show(measure(context.lake, lag, newest(), at=context.now()))
        except Exception:
            metrics.failed()
            raise

    return read


def start_server(metrics: Metrics, *, address: str, port: int) -> WSGIServer | None:
    """Serve the metrics at an address; a taken port is only logged, because a mirror never depends on its metrics.

    Port 0 takes a free one. Anybody who can reach the address reads the names of topics and groups.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(cast("Collector", metrics))
    try:
        server, _ = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        text = "metrics.not_served address=%s:%s why=%s next=name a free port with metrics.port or --metrics-port"
        log.warning(text, address, port, error.strerror or error)
        return None
    scrape = cast("Callable[..., Iterable[bytes]]", server.get_app())

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return scrape(environ, start_response)
        document = metrics.health.as_dict()
        status = "200 OK" if document["live"] else "503 Service Unavailable"
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(document).encode()]

    server.set_app(answer)
    log.info("metrics.served address=%s:%s", address, server.server_port)
    return server


def batch_listener(metrics: Metrics) -> Any:
    """Return the listener for Spark's batches; it knows their streams by the query names of landing and republishing.

    Spark calls from its own thread after the batch; the batch's rows are in the lake by then.
    """
    # It takes 0.3 s to load.
    from pyspark.sql.streaming import StreamingQueryListener

    class BatchListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not followed (pyproject)
        def __init__(self) -> None:
            self._names: dict[str, str] = {}

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
            # Reports on an idle query have its id only.
            self._names[str(event.id)] = event.name or ""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
            stream, _, name = (event.progress.name or "").partition(" ")
            if stream == "land":
                metrics.landed(name, max(0, event.progress.numInputRows))
            elif stream == "republish":
                metrics.turned(f"republish {name}")

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
            name = self._names.get(str(event.id), "")
            if name.startswith(("land ", "republish ")):
                metrics.turned(name)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
            self._names.pop(str(event.id), None)

    return BatchListener()
