"""Feed metrics: Spark's reports on batches, and a look at the tables now and then; neither can stop a stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from mirrorlake.lag import Figures
from mirrorlake.metrics.registry import Metrics

log = logging.getLogger(__name__)

# A look waits for Spark; nobody waits for a look that hangs.
_GRACE_S = 20.0


class BatchListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not followed (pyproject)
    """Hear from Spark which batches ended, by the names that landing and republishing give their queries.

    Spark calls from a thread of its own, after the batch; what a batch did is in the lake by then.

    Args:
        metrics: where they are counted.
        now: the clock, in UTC.
    """

    def __init__(self, metrics: Metrics, *, now: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._now = now
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Remember the name: Spark's reports on an idle query have its id only."""
        self._names[str(event.id)] = event.name or ""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Count a batch."""
        progress = event.progress
        stream, _, name = (progress.name or "").partition(" ")
        seconds, at = progress.batchDuration / 1000, self._now().timestamp()
        if stream == "land":
            self._metrics.landed(name, records=max(0, progress.numInputRows), seconds=seconds, at=at)
        elif stream == "republish":
            self._metrics.republished_batch(name, seconds=seconds, at=at)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Note that a stream looked and found nothing new."""
        name = self._names.get(str(event.id), "")
        if name.startswith(("land ", "republish ")):
            self._metrics.looked(name, at=self._now().timestamp())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Forget the name."""
        self._names.pop(str(event.id), None)


class MetricsFeed:
    """Look at the tables every so often, in the background, and show what is found.

    Args:
        metrics: where it is shown.
        look: looks at the tables.
        every_s: time between the starts of two looks, in seconds.
        first_s: time until the first one.
    """

    def __init__(self, metrics: Metrics, look: Callable[[], Figures], *, every_s: float, first_s: float = 0.0) -> None:
        self._metrics = metrics
        self._look = look
        self._every_s = every_s
        self._first_s = first_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._said = ""

    def start(self) -> MetricsFeed:
        """Begin, and return this feed."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End; a look under way is given a while to finish."""
        self._ended.set()
        self._thread.join(_GRACE_S)

    def look(self) -> None:
        """Look once; a failure is counted, and logged once."""
        try:
            self._metrics.show(self._look())
            self._said = ""
        except Exception as error:
            # Whatever it is, records go on; the figures stay as old as their timestamp says.
            self._metrics.failed()
            text = f"{type(error).__name__}: {str(error)[:200]}"
            if text != self._said:
                log.warning("metrics.failed what=look at the tables why=%s", text)
            self._said = text

    def _work(self) -> None:
        pause = self._first_s
        while not self._ended.wait(pause):
            self.look()
            pause = self._every_s
