"""Metrics of a running mirror, for Prometheus (docs/metrics.md): the only room that knows prometheus_client.

    streams ──batches, commits──┐
    tables  ──every minute──────┴──> Metrics ──> registry ──> http://127.0.0.1:9464/metrics

A scrape reads memory only: it asks no cluster and no Spark. Nothing that fails in here reaches a stream.
"""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
