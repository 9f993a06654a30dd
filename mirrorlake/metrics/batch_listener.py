"""Count the batches that Spark reports; importing it needs pyspark, which takes 0.3 s."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from mirrorlake.metrics.registry import Metrics


class BatchListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not followed (pyproject)
    """Count the batches that Spark reports, by the query names that landing and republishing give.

    Spark calls from its own thread after the batch; the batch's rows are in the lake by then.
    """

    def __init__(self, metrics: Metrics, *, now: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._now = now
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Store the query's name: reports on an idle query have its id only."""
        self._names[str(event.id)] = event.name or ""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        progress = event.progress
        stream, _, name = (progress.name or "").partition(" ")
        seconds, at = progress.batchDuration / 1000, self._now().timestamp()
        if stream == "land":
            self._metrics.landed(name, records=max(0, progress.numInputRows), seconds=seconds, at=at)
        elif stream == "republish":
            self._metrics.republished_batch(name, seconds=seconds, at=at)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        name = self._names.get(str(event.id), "")
        if name.startswith(("land ", "republish ")):
            self._metrics.looked(name, at=self._now().timestamp())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        self._names.pop(str(event.id), None)
