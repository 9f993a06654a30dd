"""Feed the metrics: Spark's batch reports, and periodic reads of the tables; neither can stop a stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mirrorlake.lag import Figures
from mirrorlake.metrics.registry import Metrics

log = logging.getLogger(__name__)

# A read waits for Spark; `stop` must not wait for a read that hangs.
_GRACE_S = 20.0


class MetricsFeed:
    def __init__(self, metrics: Metrics, look: Callable[[], Figures], *, every_s: float, first_s: float = 0.0) -> None:
        self._metrics = metrics
        self._look = look
        self._every_s = every_s
        self._first_s = first_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._said = ""

    def start(self) -> MetricsFeed:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread; wait up to 20 s for a read in progress."""
        self._ended.set()
        self._thread.join(_GRACE_S)

    def look(self) -> None:
        """Read once; count a failure, and log a new one."""
        try:
            self._metrics.show(self._look())
            self._said = ""
        except Exception as error:
            # Any error: the streams continue, and the figures stay as old as their timestamp says.
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
