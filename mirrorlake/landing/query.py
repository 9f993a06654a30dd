"""Wait for a streaming query: until it is done, fails, or is asked to stop."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql.streaming import StreamingQuery

from mirrorlake.lake import kafka_positions
from mirrorlake.model.flow import TopicPartition

log = logging.getLogger(__name__)

# A batch that is under way may finish; after this long it is interrupted, and the next start repeats it safely (law F). A
# process has 20 s in all from SIGTERM to its end.
GRACE_S = 12.0


def await_query(query: StreamingQuery, stop: threading.Event, *, tick: Callable[[], None] = lambda: None) -> None:
    """Wait until the query has ended or, after `stop` was set, has been stopped between two batches.

    A batch under way is given `GRACE_S` to finish. `tick` is called about five times a second.

    Raises:
        StreamingQueryException: the query failed.
    """
    try:
        while not query.awaitTermination(0.2):
            if stop.is_set():
                break
            tick()
        if query.isActive:
            _finish_batch(query)
    finally:
        if query.isActive:
            query.stop()
    failure = query.exception()
    if failure is not None and not stop.is_set():
        raise failure


def _finish_batch(query: StreamingQuery) -> None:
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and query.isActive:
        status = query.status
        if not status["isTriggerActive"] or not status["isDataAvailable"]:
            return
        query.awaitTermination(0.05)


def reported_ends(query: StreamingQuery) -> dict[TopicPartition, int] | None:
    """Return where the topics of a query's Kafka source end by its last finished batch; None before there is one.

    For a query that drains, that is where it will stop. Nothing is asked for: Spark looked there for the batch itself.
    """
    try:
        progress = query.lastProgress
        # PySpark gives the JSON document as a Python dictionary prints itself; names of topics hold no quotes.
        text = str(progress["sources"][0]["latestOffset"]).replace("'", '"') if progress else ""
        return kafka_positions(json.loads(text)) if text else None
    except Exception as error:
        # A platform may report in another shape: then nobody knows how much is left, and the work goes on.
        log.debug("progress.no_ends why=%s: %s", type(error).__name__, str(error)[:200])
        return None


def met_another(text: str) -> bool:
    """Tell whether a query failed because another process runs on its checkpoint location."""
    return "CONCURRENT_STREAM_LOG_UPDATE" in text or "concurrently using" in text
