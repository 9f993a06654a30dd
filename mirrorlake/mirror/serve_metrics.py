"""Measure a mirror for as long as it runs; where no port is named, nothing is loaded, started or counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError
from mirrorlake.lag.figures import Figures, measure
from mirrorlake.lag.verdict import LagVerdict
from mirrorlake.mirror.services import Wiring

if TYPE_CHECKING:
    from mirrorlake.metrics.registry import Metrics

log = logging.getLogger(__name__)

# The streams need all cores for their start.
_FIRST_LOOK_S = 10.0
_LATENCY_SPAN, _LATENCY_BUCKET = "10m", "5m"


@contextmanager
def measured(wiring: Wiring, *, port: int | None) -> Iterator[Metrics | None]:
    """Serve the metrics of a mirror while the body runs.

    Args:
        wiring: the mirror.
        port: where to serve them; None takes that of the settings, and without one there is nothing to do.
    """
    settings = wiring.config.metrics
    port = settings.port if port is None else port
    if port is None:
        yield None
        return
    # Heavy imports for those who serve no metrics.
    from mirrorlake.metrics.feed import BatchListener, MetricsFeed, committed
    from mirrorlake.metrics.registry import Metrics
    from mirrorlake.metrics.server import MetricsServer

    metrics = Metrics(per_partition=settings.per_partition)
    with ExitStack() as stack:
        try:
            server = MetricsServer(metrics.registry, port=port, address=settings.address).start()
            stack.callback(_quietly, server.stop)
            listener = BatchListener(metrics, now=wiring.now)
            wiring.spark.streams.addListener(listener)
            stack.callback(_quietly, wiring.spark.streams.removeListener, listener)
            wiring.on_commit = committed(metrics)
            wiring.on_parked = metrics.parked
            stack.callback(wiring.forget_listener)
            every_s = settings.every.total_seconds()
            feed = MetricsFeed(
                metrics, lambda: look(wiring), every_s=every_s, first_s=min(every_s, _FIRST_LOOK_S)
            ).start()
            stack.callback(_quietly, feed.stop)
        except Exception:
            log.exception("metrics.failed what=start; the mirror runs without them")
        yield metrics


def _quietly(call: Callable[..., object], *arguments: object) -> None:
    """Call, and only log a failure: metrics never make a mirror fail."""
    try:
        call(*arguments)
    except Exception:
        log.exception("metrics.failed what=stop")


def look(wiring: Wiring) -> Figures:
    """Return the figures of this moment out of the tables.

    Raises:
        StoreError: the lake failed.
    """
    lag = wiring.lag(wiring.config.flows)
    try:
        verdict = lag.verdict()
    except UsageError:
        # Nothing was sampled yet.
        verdict = LagVerdict(hops=())
    try:
        latency = lag.latency(_LATENCY_SPAN, bucket=_LATENCY_BUCKET)
    except UsageError:
        latency = None
    return measure(wiring.lake, lag=verdict, latency=latency, now=wiring.now())
