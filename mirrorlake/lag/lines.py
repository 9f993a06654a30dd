"""Lag over time as the lines of a chart: one a hop of a flow, over all of its partitions."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from mirrorlake.lag.lag import Lag, When

LINE_COLUMNS = ("observed_at", "flow", "hop", "group_id", "offset_lag", "time_lag_ms")


def lag_lines(lag: Lag, since: When = "1h") -> Any:
    """Return the largest time lag and the sum of offset lags of each hop at each sampling moment, as a pandas frame.

    A figure is null where that of one partition is not known: the largest may be the one that is not known. Added up by Spark:
    partitions do not come to the notebook.

    Raises:
        UsageError: nothing was sampled yet.
    """

    def whole(column: str, total: Any) -> Any:
        return F.when(F.count(column) == F.count("*"), total(column)).alias(column)

    keys = LINE_COLUMNS[:4]
    found = lag.over(since).groupBy(*keys).agg(whole("offset_lag", F.sum), whole("time_lag_ms", F.max))
    return found.select(*LINE_COLUMNS).orderBy("observed_at").toPandas()
