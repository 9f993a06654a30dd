"""Wait for a streaming query until it ends, fails, or is asked to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def await_query(query: StreamingQuery, stop: threading.Event, *, tick: Callable[[], None] = lambda: None) -> None:
    """Wait until the query has ended or, after `stop` was set, has been stopped between two batches.

    A batch under way is given `grace_s` to finish. `tick` is called about five times a second.
    """
    try:
        while not query.awaitTermination(0.2):
            if stop.is_set():
                break
            tick()
        deadline = time.monotonic() + timing().grace_s
        while query.isActive and time.monotonic() < deadline:
            status = query.status
            if not status["isTriggerActive"] or not status["isDataAvailable"]:
                break
            query.awaitTermination(0.05)
    finally:
        if query.isActive:
            query.stop()
    failure = query.exception()
    if failure is not None and not stop.is_set():
        raise failure


def is_location_in_use(text: str) -> bool:
    """Return whether a query failed because another process runs on its checkpoint location."""
    return "CONCURRENT_STREAM_LOG_UPDATE" in text or "concurrently using" in text
