"""The face of `mirrorlake.metrics`: what other rooms use of it; its modules are its own."""

from mirrorlake.metrics.feed import BatchListener as BatchListener
from mirrorlake.metrics.feed import MetricsFeed as MetricsFeed
from mirrorlake.metrics.registry import Metrics as Metrics
from mirrorlake.metrics.server import MetricsServer as MetricsServer
