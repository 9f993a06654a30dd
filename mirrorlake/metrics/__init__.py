"""Metrics of a running mirror for Prometheus (docs/metrics.md); no other package imports prometheus_client.

    streams ──batches, commits──┐
    tables  ──every minute──────┴──> Metrics ──> registry ──> http://127.0.0.1:9464/metrics

A scrape reads memory only: it calls no cluster and no Spark. No failure in this package reaches a stream.
"""

from mirrorlake.metrics.feed import MetricsFeed
from mirrorlake.metrics.registry import Metrics
from mirrorlake.metrics.server import MetricsServer
