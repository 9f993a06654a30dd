"""Serve the metrics of a running mirror; without a port nothing is imported, started or counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from mirrorlake.context import Context
from mirrorlake.lag import Figures, Monitor, Status, measure

log = logging.getLogger(__name__)

# The streams need all cores for their start.
_FIRST_LOOK_S = 10.0


@contextmanager
def measured(context: Context, *, port: int | None) -> Iterator[None]:
    """Serve the metrics of a mirror while the body runs, if `port` or the settings name a port."""
    settings = context.config.metrics
    port = settings.port if port is None else port
    if port is None:
        yield
        return
    # Too heavy to import for a mirror that serves no metrics.
    from mirrorlake.metrics import Metrics, MetricsFeed, MetricsServer
    from mirrorlake.metrics.batch_listener import BatchListener

    metrics = Metrics(per_partition=settings.per_partition)
    with ExitStack() as stack:
        try:
            server = MetricsServer(metrics.registry, port=port, address=settings.address, health=metrics.health).start()
            stack.callback(_quietly, server.stop)
            listener, streams = BatchListener(metrics, now=context.now), context.spark.streams
            streams.addListener(listener)
            stack.callback(_quietly, streams.removeListener, listener)
            context.metrics = metrics
            stack.callback(setattr, context, "metrics", None)
            every_s = settings.every.total_seconds()
            # One sampler for all samples: it remembers unreachable clusters, and probes them in parallel.
            look = partial(_look, context, context.shared(Monitor).statuses())
            first_s = min(every_s, _FIRST_LOOK_S)
            feed = MetricsFeed(metrics, look, every_s=every_s, first_s=first_s).start()
            stack.callback(_quietly, feed.stop)
        except Exception:
            log.exception("metrics.failed what=start; the mirror runs without them")
        yield


def _quietly(call: Callable[..., object], *arguments: object) -> None:
    """Call, and only log a failure: metrics never make a mirror fail."""
    try:
        call(*arguments)
    except Exception:
        log.exception("metrics.failed what=stop")


def _look(context: Context, status: Callable[[], Status]) -> Figures:
    return measure(context.lake, context.shared(Monitor).lag(context.config.flows, status=status), now=context.now)
